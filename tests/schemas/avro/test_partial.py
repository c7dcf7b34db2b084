"""A datum is told piece by piece, every byte once, up to the first byte that is not what the schema says."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.schemas.avro import DatumReader, parse_writer_schema
from slotstream.schemas.avro.partial import MOST_PIECES, Partial, read_partly
from slotstream.schemas.errors import DecodeError

TICKET = {
    "type": "record",
    "name": "Ticket",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "ok", "type": "boolean"},
    ],
}
RECORD = {"id": 7, "text": "hi", "kind": "b", "tags": ["x", "yz"], "more": {"k": 0.5}, "raw": b"\1\2", "ok": True}


def datum(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def partly(schema: Any, value: bytes, start: int = 0) -> Partial:
    return read_partly(parse_writer_schema(json.dumps(schema)), value, start)


def test_a_whole_datum_is_told_with_every_value_and_its_bytes() -> None:
    found = partly(TICKET, b"12345" + datum(TICKET, RECORD), 5)
    assert [(piece.path, piece.value) for piece in found.pieces] == [
        ("id", 7),
        ("text", "hi"),
        ("kind", "b"),
        ("tags[0]", "x"),
        ("tags[1]", "yz"),
        ("more['k']", 0.5),
        ("raw", b"\1\2"),
        ("ok", True),
    ]
    assert (found.stopped_at, found.why, found.more) == (None, "", 0)
    assert (found.pieces[0].start, found.pieces[0].end) == (5, 6)


@pytest.mark.parametrize(
    ("value", "stopped_at", "why"),
    [
        (b"\x0e\x02\x04hi\x04\x00\x00", 5, "kind (Kind): enum Kind at byte 5 has index 2 of 2"),
        (b"\x0e\x06", 1, "text (union): a union at byte 1 has index 3 of 2"),
        (b"\x0e\x02\x03hi", 2, "text (string): the length before byte 3 is -2"),
        (b"\x0e\x02\x40hi", 2, "text (string) needs more bytes than are left (3)"),
        (b"\x0e\x00\x00\x04\x02a", 6, "tags[1] (string) needs more bytes than are left (0)"),
        (b"\x0e\x00\x00\x02\x02a\x00\x02\x40k", 8, "a key of more needs more bytes than are left (2)"),
        (b"\x80" * 11, 0, "id (long): the varint before byte 10 takes more than 10 bytes"),
        (b"", 0, "id (long) needs more bytes than are left (0)"),
    ],
)
def test_reading_stops_at_the_first_wrong_value_and_says_why(value: bytes, stopped_at: int, why: str) -> None:
    found = partly(TICKET, value)
    assert (found.stopped_at, found.why) == (stopped_at, why)


def test_bytes_behind_a_datum_are_where_reading_stops() -> None:
    whole = datum(TICKET, RECORD)
    found = partly(TICKET, whole + b"xyz")
    assert (found.stopped_at, found.why) == (len(whole), "the datum ends here, and 3 bytes follow it")


def test_text_that_is_no_utf_8_and_an_odd_boolean_are_noted_and_passed() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "t", "type": "string"}, {"name": "b", "type": "boolean"}],
    }
    found = partly(schema, b"\x04\x61\xff\x02")
    assert [(piece.value, piece.note) for piece in found.pieces] == [
        ("a\\xff", "not UTF-8 at byte 2"),
        (False, "byte 3 is 2, neither 0 nor 1"),
    ]
    assert found.stopped_at is None


@pytest.mark.parametrize(
    ("schema", "value", "path", "shown"),
    [
        ("string", b"\x02a", "", "a"),
        ({"type": "array", "items": "int"}, b"\0", "", []),
        ({"type": "map", "values": "int"}, b"\0", "", {}),
        ({"type": "array", "items": "null"}, b"\2\0", "[0]", None),
        ({"type": "record", "name": "E", "fields": []}, b"", "", {}),
        ({"type": "array", "items": "int"}, b"\x01\x02\x08\x00", "[0]", 4),  # a block that says its size
    ],
)
def test_a_datum_that_is_no_record_is_told_too(schema: Any, value: bytes, path: str, shown: object) -> None:
    found = partly(schema, value)
    assert [(piece.path, piece.value) for piece in found.pieces] == [(path, shown)]
    assert found.stopped_at is None


@pytest.mark.parametrize(
    "value",
    [b"\xfe" * 9 + b"\x01", b"\x80\x80\x80\x80\x80\x80\x80\x01" + b"\0" * 9],
    ids=["a giant count", "2^48 nulls"],
)
def test_a_giant_count_stops_at_once(value: bytes) -> None:
    for items in ("null", "string"):
        assert partly({"type": "array", "items": items}, value).stopped_at == 0


def test_deep_nesting_and_many_values_are_bounded() -> None:
    deep = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    found = partly(deep, b"\2" * 5_000)
    assert "nested deeper than 100" in found.why
    many = partly({"type": "array", "items": "boolean"}, datum({"type": "array", "items": "boolean"}, [True] * 10_005))
    assert (len(many.pieces), many.more, many.stopped_at) == (MOST_PIECES, 5, None)


@given(st.integers(0, 100), st.binary(max_size=4))
def test_it_stops_exactly_where_the_strict_reader_refuses(cut: int, tail: bytes) -> None:
    value = datum(TICKET, RECORD)[:cut] + tail
    found = partly(TICKET, value)
    strict = DatumReader(parse_writer_schema(json.dumps(TICKET)), ["id"])
    try:
        strict.read(value)
        refused = False
    except DecodeError:
        refused = True
    assert (found.stopped_at is not None) == refused
    ends = [0]
    for piece in found.pieces:
        assert ends[-1] <= piece.start <= piece.end <= len(value)
        ends.append(piece.end)
    assert found.stopped_at is None or ends[-1] <= found.stopped_at <= len(value)
