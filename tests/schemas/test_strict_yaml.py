"""YAML and JSON files of people: what is read, and what is refused with a line number."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.schemas.strict_yaml import parse_yaml

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("name", ["true", "false", "yes", "no", "on", "off", "1", "010", "1.10", "1:30", "~", "null"])
def test_a_key_is_the_text_as_it_is_written(name: str) -> None:
    assert parse_yaml(f"{name}: x") == {name: "x"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# only a comment\n", None),
        ("base: &b {x: 1, y: 2}\nmore:\n  <<: *b\n  y: 3\n", {"base": {"x": 1, "y": 2}, "more": {"x": 1, "y": 3}}),
        ("one: &n [a]\ntwo: *n\n", {"one": ["a"], "two": ["a"]}),
        ("\ufeffa: 1", {"a": 1}),
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        ("a: ü".encode("utf-16"), {"a": "ü"}),
        ('{\n\t"a": 1\n}', {"a": 1}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ("{a: 1, no: 2}", {"a": 1, "no": 2}),
    ],
    ids=[
        "empty", "comment", "merge", "anchor", "BOM text", "BOM bytes", "BOM JSON", "UTF-16", "tabs in JSON",
        "escaped emoji in JSON", "flow map",
    ],
)  # fmt: skip
def test_what_people_write_is_read(text: str | bytes, value: Any) -> None:
    assert parse_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' stands twice in one map"),
        ("yes: 1\nyes: 2", "line 2: key 'yes' stands twice"),
        ("outer:\n  a: 1\n  a: 2", "line 3: key 'a' stands twice"),
        ('{"a": 1, "a": 2}', "key 'a' stands twice"),
        ("? [a]\n: 1", "line 1: a key is a plain name"),
        ("a: b: c", "line 1"),
        ("a: 1\n---\nb: 2", "expected a single document"),
        ("a: &x [*x]", "recursive"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        (b"a: \xff", "invalid start byte"),
        ("a: \x00", "special characters are not allowed"),
        ("[" * 5000, "nested too deeply"),
        ('{"a":' * 5000, "nested too deeply"),
    ],
)
def test_what_is_not_clear_is_refused_with_its_place(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)


@given(_JSON)
def test_json_reads_as_json(value: Any) -> None:
    assert parse_yaml(json.dumps(value)) == value


@given(st.text() | st.binary())
def test_any_file_is_read_or_refused_with_a_value_error(content: str | bytes) -> None:
    with suppress(ValueError):
        parse_yaml(content)
