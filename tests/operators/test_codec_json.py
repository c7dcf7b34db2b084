"""A JSON object comes out with its own text, and the decision's members behind its own."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotstream.schemas.errors import DecodeError, EncodeError
from slotstream.schemas.label import Decision, Label
from tests.operators.codec_examples import ADDED, DECIDED, codec, message


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ('{"text":"hi"}', '{"text":"hi",ADDED}'),
        ('{"text":"hi"} \n', '{"text":"hi",ADDED} \n'),
        (' {\n "text": "hi"\n}', ' {\n "text": "hi"\n,ADDED}'),
        ('{"text":"}","n":1.0e400,"z":19999999999999999999,"a":-0.0}', None),
        ('{"text":"ü \\u00fc \\"}","nested":{"text":1,"text":2}}', None),
        ('{"text":"hi","long":' + "9" * 5000 + "}", None),
    ],
)
def test_a_json_object_keeps_its_text_and_gains_the_fields(value: str, output: str | None) -> None:
    json_codec = codec("json")
    record = json_codec.decode(message(value.encode()))
    written = json_codec.encode(record, DECIDED).decode()
    assert written == (output or value[:-1] + ",ADDED}").replace("ADDED", ADDED)
    json.loads(written, parse_int=str)


def test_an_empty_json_object_gains_the_fields_without_a_comma() -> None:
    json_codec = codec("json")
    record = json_codec.decode(message(b"{ }"))
    assert json_codec.encode(record, DECIDED).decode() == "{ " + ADDED + "}"


KEYS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_any_json_object_comes_out_with_its_own_members_first(
    members: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    json_codec = codec("json")
    value = json.dumps(members, ensure_ascii=ascii_only, indent=indent).encode()
    record = json_codec.decode(message(value))
    assert record.fields == {name: members[name] for name in ("text",) if name in members}
    assert json.loads(json_codec.encode(record, DECIDED)) == {**members, **json.loads("{" + ADDED + "}")}


def test_a_json_record_has_the_fields_that_the_state_needs() -> None:
    record = codec("json", ["text", "customer.name", "phone"]).decode(
        message(b'{"customer":{"name":"Bo","age":3},"text":"hi","id":7}')
    )
    assert record.fields == {"text": "hi", "customer": {"name": "Bo", "age": 3}}
    assert record.schema_id is None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", "json_invalid"),
        (b"not json", "json_invalid"),
        (b'\0\0\0\0\x05{"text":"hi"}', "framing_unknown"),
        (b'{"text":"hi"', "json_invalid"),
        (b'{"text":"hi"}}', "json_invalid"),
        (b'{"text":NaN}', "json_invalid"),
        (b'{"text":Infinity}', "json_invalid"),
        (b'\xef\xbb\xbf{"text":"hi"}', "json_invalid"),
        (b'{"text":"\xff"}', "json_invalid_utf8"),
        ('{"text":"hi"}'.encode("utf-16"), "json_invalid_utf8"),
        (b"[" * 100_000, "json_too_deep"),
        (b'{"a":' * 100_000, "json_too_deep"),
        (b'{"text":' + b"[" * 200 + b"]" * 200 + b"}", "json_too_deep"),
        (b"[1]", "json_not_an_object"),
        (b'"text"', "json_not_an_object"),
        (b"null", "json_not_an_object"),
        (b"1", "json_not_an_object"),
        (b'{"text":"a","text":"b"}', "json_duplicate_key"),
        (b'{"text":"a","te\\u0078t":"b"}', "json_duplicate_key"),
        (b'{"text":"a","refund":1}', "json_field_clash"),
        (b'{"text":"a","Decision_ID":1}', "json_field_clash"),
        (b'{"text":"\\ud800"}', "json_lone_surrogate"),
    ],
)
def test_a_value_that_is_no_usable_json_object_goes_to_dead(value: bytes, code: str) -> None:
    with pytest.raises(DecodeError) as caught:
        codec("json").decode(message(value))
    assert caught.value.code == code


def test_a_field_that_is_not_wanted_may_be_deep() -> None:
    json_codec = codec("json")
    value = b'{"text":"hi","x":' + b"[" * 200 + b"]" * 200 + b"}"
    assert json_codec.encode(json_codec.decode(message(value)), DECIDED).startswith(value[:-1])


def test_half_a_surrogate_pair_in_a_field_that_is_not_wanted_passes() -> None:
    json_codec = codec("json")
    value = b'{"text":"hi","x":"\\ud800"}'
    assert json_codec.encode(json_codec.decode(message(value)), DECIDED).startswith(value[:-1])


def test_a_prefix_makes_room_for_a_field_of_the_same_name() -> None:
    json_codec = codec("json", field_prefix="ai_")
    record = json_codec.decode(message(b'{"text":"a","refund":1}'))
    assert json.loads(json_codec.encode(record, DECIDED))["ai_refund"] is True


def test_a_distribution_is_a_list_of_options_in_json() -> None:
    json_codec = codec("json", probabilities=True)
    written = json.loads(json_codec.encode(json_codec.decode(message(b'{"text":"a"}')), DECIDED))
    assert written["refund_probabilities"] == [
        {"option": "yes", "probability": 0.9},
        {"option": "no", "probability": 0.1},
    ]


def test_a_number_that_json_cannot_hold_is_an_encode_error() -> None:
    label = Label("refund", "noul", True, None, float("nan"), 0.99, 0.8, 0.3, {})
    decision = Decision("u:0:7:h", "decided", (), (label,), "s", "1", "h", "m", "e", "p", 1, False, 0)
    json_codec = codec("json")
    with pytest.raises(EncodeError, match="u:0:7:h"):
        json_codec.encode(json_codec.decode(message(b'{"text":"a"}')), decision)
