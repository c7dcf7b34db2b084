"""A dead letter's value is read as far as it goes, in each format, and nothing that is wrong with it raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.codec import ValueConfig
from slotstream.operators.letter_value import read_value
from slotstream.operators.registry import RegisteredSchema
from slotstream.schemas.errors import DecodeError, RegistryUnavailable

SCHEMA = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "int"}, {"name": "text", "type": "string"}]}
AVRO = ValueConfig(format="avro")
BARE = ValueConfig(format="avro", framing="none")
JSON = ValueConfig(format="json")
TEXT = ValueConfig(format="text")


def schema(schema_id: int) -> RegisteredSchema:
    if schema_id == 404:
        raise DecodeError("the registry knows no schema with id 404", code="schema_not_found")
    if schema_id == 503:
        raise RegistryUnavailable("no schema registry answers")
    return RegisteredSchema(schema_id, json.dumps(SCHEMA) if schema_id != 6 else "{")


def id_(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("config", "value", "what", "stopped_at", "why"),
    [
        (AVRO, id_(1) + b"\2\4hi", "Avro, schema 1 (T)", None, ""),
        (AVRO, id_(1) + b"\2\x40hi", "Avro, schema 1 (T)", 6, "text (string) needs more bytes"),
        (AVRO, b'{"text": 1}', "not Confluent-framed Avro", 0, "a zero byte and a 4-byte schema id"),
        (AVRO, b"\0\0", "not Confluent-framed Avro", 0, "a zero byte"),
        (AVRO, id_(404) + b"\2", "Avro, schema 404", 5, "knows no schema with id 404"),
        (AVRO, id_(503) + b"\2", "Avro, schema 503", 5, "no schema registry answers"),
        (AVRO, id_(6) + b"\2", "Avro, schema 6", 5, "is no JSON"),
        (BARE, b"\2\4hi", "bare Avro (T)", None, ""),
        (BARE, b"\2\4hi!", "bare Avro (T)", 4, "the datum ends here, and 1 bytes follow it"),
        (JSON, b'{"a": 1}', "JSON", None, ""),
        (JSON, '{"ä": }'.encode(), "JSON", 7, "no JSON: Expecting value"),
        (JSON, b"", "JSON", 0, "no JSON"),
        (JSON, b'{"\xff', "JSON", 2, "no UTF-8"),
        (JSON, b"1" * 5_000, "JSON", None, ""),
        (JSON, b"[" * 100_000, "JSON", None, "nested too deeply"),
        (TEXT, "grüße".encode(), "plain text", None, ""),
        (TEXT, b"gr\xfc", "plain text", 2, "no UTF-8"),
    ],
)
def test_a_value_is_read_to_the_byte_that_is_wrong(
    config: ValueConfig, value: bytes, what: str, stopped_at: int | None, why: str
) -> None:
    found = read_value(value, config, schema)
    assert (found.what, found.stopped_at) == (what, stopped_at)
    assert why in found.why
    if found.text is not None and stopped_at is not None:
        assert found.text.encode() == value[:stopped_at]


def test_avro_without_any_schema_is_told() -> None:
    assert read_value(id_(1) + b"\2", AVRO, None).why == "no schema is configured"


@given(st.binary(max_size=60), st.sampled_from([AVRO, BARE, JSON, TEXT]))
def test_no_value_raises(value: bytes, config: ValueConfig) -> None:
    found = read_value(value, config, schema)
    assert found.stopped_at is None or 0 <= found.stopped_at <= len(value)
