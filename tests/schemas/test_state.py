"""The state of a record: what its text is, and that no record whatever can do worse than be refused."""

import datetime
import decimal
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slotstream.schemas.errors import DecodeError
from slotstream.schemas.state import StateTemplate


def state(written: Any) -> StateTemplate:
    return StateTemplate.model_validate(written)


# The forms


def test_one_field_is_its_text_alone() -> None:
    assert state("text").render({"text": "Hello\nthere", "other": 1}) == "Hello\nthere"
    assert state(["text"]) == state("text") == state({"fields": ["text"]})


def test_several_fields_are_one_line_each_without_the_empty_ones() -> None:
    template = state(["subject", "body", "customer.plan", "note"])
    record = {"subject": "Twice", "body": "Charged twice.\nAgain.", "customer": {"plan": "pro"}, "note": None}
    assert template.render(record) == "subject: Twice\nbody: Charged twice.\nAgain.\ncustomer.plan: pro"


def test_a_template_stands_around_the_fields() -> None:
    template = state({"template": "{{ {subject} }}: {customer.plan}{subject}"})
    assert template.paths == ("subject", "customer.plan")
    assert template.render({"subject": "s", "customer": {"plan": "p"}}) == "{ s }: ps"


def test_braces_and_fields_in_a_record_are_text() -> None:
    template = state({"template": "{a} {b}"})
    assert template.render({"a": "{b} {{ }} {0}", "b": "%s"}) == "{b} {{ }} {0} %s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0, "0"),
        (-1.5, "-1.5"),
        (float("nan"), "NaN"),
        (["a", "ü", None], '["a", "ü", null]'),
        (("a", 1), '["a", 1]'),
        ({"a": {"b": [1]}}, '{"a": {"b": [1]}}'),
        (OrderedDict(a=1), '{"a": 1}'),
        (MappingProxyType({"a": MappingProxyType({"b": 1})}), '{"a": {"b": 1}}'),
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"x"), "x"),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.date(2026, 11, 1), "2026-11-01"),
        (datetime.datetime(2026, 11, 1, 8, tzinfo=datetime.UTC), "2026-11-01 08:00:00+00:00"),
        (datetime.time(8, 30), "08:30:00"),
        (datetime.timedelta(seconds=90), "0:01:30"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (
            {"at": datetime.date(2026, 11, 1), "of": decimal.Decimal("2.0"), "raw": b"y"},
            '{"at": "2026-11-01", "of": "2.0", "raw": "y"}',
        ),
        ("cut \ud83d", "cut \ufffd"),
        ("in two \ud83d\ude00", "in two 😀"),
        (["\ude00"], '["\ufffd"]'),
    ],
)
def test_values_that_are_not_text_have_one_text_form(value: Any, text: str) -> None:
    assert state("field").render({"field": value}) == text


# Records that it refuses


@pytest.mark.parametrize(
    ("written", "record", "code", "message"),
    [
        ("text", {}, "state_field_missing", "needs field 'text' and the record has no 'text' there"),
        ("a.b", {"a": {"c": 1}}, "state_field_missing", "needs field 'a.b' and the record has no 'b' there"),
        ("a.b", {"a": "text"}, "state_field_missing", "has no 'b' there"),
        ("a.b", {"a": ["x"]}, "state_field_missing", "has no 'b' there"),
        ("a.0", {"a": ["x"]}, "state_field_missing", "has no '0' there"),
        ("text", {"text": None}, "state_empty", r"\(text\) are all empty"),
        ("text", {"text": " \n\t"}, "state_empty", "all empty"),
        (["a", "b.c"], {"a": "", "b": None}, "state_empty", r"\(a, b.c\) are all empty"),
        ({"template": "Subject: {a}"}, {"a": None}, "state_empty", "all empty"),
        ("raw", {"raw": b"\xff\xfe"}, "state_not_text", "field 'raw' of the state has no text form"),
        ("raw", {"raw": {"deep": b"\xff"}}, "state_not_text", "no text form"),
        ("odd", {"odd": {"a", "b"}}, "state_not_text", "set is no text, number, date, id, list or map"),
        ("odd", {"odd": [object()]}, "state_not_text", "object is no text"),
        ("odd", {"odd": {("a",): 1}}, "state_not_text", "keys must be"),
        ("odd", {"odd": 10**5000}, "state_not_text", "limit"),
    ],
)
def test_a_record_without_a_text_is_refused_with_a_code(written: Any, record: Any, code: str, message: str) -> None:
    with pytest.raises(DecodeError, match=message) as caught:
        state(written).render(record)
    assert (caught.value.code, caught.value.stage) == (code, "decode")


EMPTY = {"fields": ["subject", "who.name", "text"], "absent": "empty"}


@pytest.mark.parametrize(
    ("written", "record", "text"),
    [
        (EMPTY, {"text": "a"}, "text: a"),
        (EMPTY, {"text": "a", "who": {}}, "text: a"),
        (EMPTY, {"text": "a", "subject": None, "who": {"name": "b"}}, "who.name: b\ntext: a"),
        ({"template": "{subject}|{text}", "absent": "empty"}, {"text": "a"}, "|a"),
    ],
)
def test_a_field_that_is_left_out_is_empty_where_the_schema_says_so(written: Any, record: Any, text: str) -> None:
    assert state(written).render(record) == text


@pytest.mark.parametrize(
    ("record", "code"),
    [({}, "state_empty"), ({"other": "a"}, "state_empty"), ({"text": "a", "who": "Ann"}, "state_field_missing")],
)
def test_a_record_with_none_of_the_fields_or_of_another_shape_is_still_refused(record: Any, code: str) -> None:
    with pytest.raises(DecodeError) as caught:
        state(EMPTY).render(record)
    assert caught.value.code == code


def test_a_value_that_is_nested_too_deeply_or_holds_itself_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(DecodeError, match="nested too deeply"):
        state("x").render({"x": deep})
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(DecodeError, match="Circular"):
        state("x").render({"x": circle})
    for _ in range(100_000):  # so that its end does not recurse either
        deep = deep[0]


def test_no_message_holds_text_of_the_record() -> None:
    records: list[dict[str, Any]] = [
        {"secret words": "secret words"},
        {"a": {"b": "secret words"}},
        {"a": {"secret words"}},
    ]
    for record in records:
        with pytest.raises(DecodeError) as caught:
            state(["a", "a.b.c"]).render(record)
        assert "secret" not in str(caught.value)


# Templates that it refuses


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"template": "{}"}, "must be a plain field name"),
        ({"template": "{a!r}"}, "must be a plain field name"),
        ({"template": "{a:>10}"}, "must be a plain field name"),
        ({"template": "{a[0]}"}, "must be a plain field name"),
        ({"template": "{a..b}"}, "must be a plain field name"),
        ({"template": "{a"}, "expected '}'"),
        ({"template": "a}"}, "Single '}'"),
        ({"template": "no field"}, "names no field"),
        ({"template": ""}, "names no field"),
        ({"fields": []}, "names no field"),
        ({"fields": ["a", "a"]}, "names a field twice, got 'a'"),
        ({"fields": ["a", ""]}, "dotted path"),
        ({"fields": ["a."]}, "dotted path"),
        ({"fields": ["a"], "template": "{a}"}, "either fields or template"),
        ({"field": "a"}, "either fields or template"),
        ({"fields": ["a"], "sep": " "}, "Extra inputs"),
        ({}, "either fields or template"),
        (None, "with fields or template, got nothing"),
        (5, "with fields or template, got the number 5"),
        ([1], "valid string"),
        ("", "dotted path"),
    ],
)
def test_a_template_that_cannot_be_meant_is_refused(written: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        state(written)


@pytest.mark.parametrize("path", ["text.__class__", "text.__class__.__mro__", "__class__", "text.upper"])
def test_a_path_never_reaches_attributes(path: str) -> None:
    for template in (state(path), state({"template": f"{{{path}}}"})):
        with pytest.raises(DecodeError, match="the record has no"):
            template.render({"text": "secret"})


# Laws

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))  # with surrogates
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.dates()
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
_NAMES = st.sampled_from(["a", "b", "a.b", "a.b.c", "c"])


@given(
    template=st.lists(_NAMES, min_size=1, unique=True).map(state)
    | st.lists(_NAMES, min_size=1).map(lambda names: state({"template": "|".join(f"{{{name}}}" for name in names)})),
    record=st.dictionaries(
        st.sampled_from(["a", "b", "c"]), _VALUES | st.dictionaries(st.just("b"), _VALUES), max_size=3
    ),
)
def test_any_record_gives_text_that_can_be_encoded_or_a_decode_error(
    template: StateTemplate, record: Mapping[str, Any]
) -> None:
    with suppress(DecodeError):
        assert template.render(record).encode().strip()


@given(st.text().filter(str.strip), st.text())
def test_text_stands_in_a_template_as_it_is(a: str, b: str) -> None:
    assert state({"template": "<{a}> {b}."}).render({"a": a, "b": b}) == f"<{a}> {b}."
    assert state("a").render({"a": a}) == a
