"""One walk over a datum proves it whole and reads what is wanted."""

import io
import json
from collections.abc import Iterable
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.schemas.avro import DatumReader, parse_writer_schema
from slotstream.schemas.errors import DecodeError
from tests.schemas.avro.generated import Generated, generated_records, unhurried


def read(schema: Any, datum: bytes, paths: Iterable[str] = ()) -> dict[str, Any]:
    return DatumReader(parse_writer_schema(json.dumps(schema)), paths).read(datum)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "A", "fields": [{"name": key, "type": type_} for key, type_ in fields.items()]}


CUSTOMER: dict[str, Any] = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "name", "type": "string"}, {"name": "note", "type": "bytes"}, {"name": "age", "type": "int"}],
}


@unhurried(300)
@given(generated_records())
def test_what_fastavro_writes_is_read_whole(generated: Generated) -> None:
    datum = written(generated.schema, generated.written)
    fields = [field["name"] for field in generated.schema["fields"]]
    assert read(generated.schema, datum, fields) == generated.plain
    assert read(generated.schema, datum) == {}


@unhurried(200)
@given(generated_records(), st.data())
def test_no_part_of_a_datum_is_a_datum(generated: Generated, data: st.DataObject) -> None:
    datum = written(generated.schema, generated.written)
    if datum:
        cut = data.draw(st.integers(0, len(datum) - 1))
        with pytest.raises(DecodeError):
            read(generated.schema, datum[:cut])
    with pytest.raises(DecodeError) as caught:
        read(generated.schema, datum + b"\0")
    assert caught.value.code == "avro_trailing_bytes"


@unhurried(300)
@given(generated_records(), st.binary(max_size=60))
def test_bytes_at_random_are_read_or_refused_and_nothing_else(generated: Generated, datum: bytes) -> None:
    fields = [field["name"] for field in generated.schema["fields"]]
    try:
        values = read(generated.schema, datum, fields)
    except DecodeError as error:
        assert error.code.startswith("avro_")  # noqa: PT017 - both outcomes are checked
        return
    stream = io.BytesIO(datum)
    again = fastavro.schemaless_reader(stream, fastavro.parse_schema(generated.schema))
    assert stream.tell() == len(datum)
    assert values.keys() == again.keys()


def test_only_the_wanted_fields_are_read() -> None:
    schema = record(id="long", text="string", flag="boolean", customer=["null", CUSTOMER])
    datum = written(
        schema, {"id": 7, "text": "hello", "flag": True, "customer": {"name": "Bo", "note": b"\xff", "age": 3}}
    )
    assert read(schema, datum, ["text"]) == {"text": "hello"}
    assert read(schema, datum, ["text", "customer.name"]) == {"text": "hello", "customer": {"name": "Bo"}}
    assert read(schema, datum, ["customer.age", "customer"]) == {"customer": {"name": "Bo", "note": b"\xff", "age": 3}}


def test_a_sub_record_that_is_not_there_is_null() -> None:
    schema = record(customer=["null", CUSTOMER])
    assert read(schema, written(schema, {"customer": None}), ["customer.name"]) == {"customer": None}


def test_a_field_that_the_schema_lacks_is_left_out() -> None:
    schema = record(customer=CUSTOMER)
    datum = written(schema, {"customer": {"name": "Bo", "note": b"", "age": 3}})
    assert read(schema, datum, ["text", "customer.phone"]) == {"customer": {}}


def test_a_path_into_a_map_gets_the_map() -> None:
    schema = record(tags={"type": "map", "values": "string"})
    assert read(schema, written(schema, {"tags": {"a": "1"}}), ["tags.a"]) == {"tags": {"a": "1"}}


def test_a_path_reads_whichever_record_of_a_union_is_there() -> None:
    firm = {**CUSTOMER, "name": "Firm", "fields": [{"name": "vat", "type": "int"}, CUSTOMER["fields"][0]]}
    schema = record(who=[CUSTOMER, firm])
    datum = written(schema, {"who": ("Firm", {"vat": 1, "name": "Ltd"})})
    assert read(schema, datum, ["who.name"]) == {"who": {"name": "Ltd"}}


def test_a_recursive_record_is_read_along_its_path() -> None:
    schema = record(v="int", next=["null", "A"])
    datum = written(schema, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}})
    assert read(schema, datum, ["next.next.v"]) == {"next": {"next": {"v": 3}}}
    assert read(schema, datum, ["next"]) == {"next": {"v": 2, "next": {"v": 3, "next": None}}}


def test_text_that_is_no_utf8_matters_only_where_it_is_wanted() -> None:
    schema = record(a="string", b="string")
    datum = b"\x04\xff\xfe" + b"\x02z"
    assert read(schema, datum, ["b"]) == {"b": "z"}
    with pytest.raises(DecodeError, match="byte 1") as caught:
        read(schema, datum, ["a"])
    assert caught.value.code == "avro_invalid_utf8"
    keyed = record(m={"type": "map", "values": "int"})
    with pytest.raises(DecodeError) as caught:
        read(keyed, b"\x02\x02\xff\x02\x00", ["m"])
    assert caught.value.code == "avro_invalid_utf8"


BYTES = {"type": "bytes", "logicalType": "decimal"}
FIXED = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal"}


@pytest.mark.parametrize(
    ("type_", "datum", "text"),
    [
        ({**BYTES, "precision": 9, "scale": 2}, "0404d2", "12.34"),
        ({**BYTES, "precision": 9, "scale": 2}, "04fb2e", "-12.34"),
        ({**BYTES, "precision": 9, "scale": 2}, "040001", "0.01"),
        ({**BYTES, "precision": 9}, "0404d2", "1234"),
        ({**BYTES, "precision": 9, "scale": 9}, "0201", "0.000000001"),
        ({**BYTES, "precision": 9}, "00", "0"),
        ({**FIXED, "precision": 4, "scale": 1}, "04d2", "123.4"),
        ({**FIXED, "precision": 5, "scale": 1}, "04d2", b"\x04\xd2"),
        ({**BYTES, "precision": 2, "scale": 5}, "0201", b"\x01"),
        ({**BYTES, "precision": 2**40, "scale": 5}, "0201", "0.00001"),
    ],
)
def test_a_decimal_is_its_number_as_text_and_an_invalid_one_is_bytes(type_: Any, datum: str, text: Any) -> None:
    assert read(record(x=type_), bytes.fromhex(datum), ["x"]) == {"x": text}


def test_a_record_of_nothing_but_nulls_is_empty() -> None:
    nothing = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}
    assert read(record(x=nothing, y="int"), b"\x02", ["x", "y"]) == {"x": {}, "y": 1}


def test_other_logical_types_are_their_plain_values() -> None:
    schema = record(at={"type": "long", "logicalType": "timestamp-millis"})
    year_10000 = bytes.fromhex("80f0fea1fa9d73")
    assert read(schema, year_10000, ["at"]) == {"at": 253402300800000}


def test_a_message_names_the_schema_and_the_place_and_no_text() -> None:
    schema = record(secret="string", kind={"type": "enum", "name": "Kind", "symbols": ["a", "b"]})
    with pytest.raises(DecodeError, match=r"datum of A, 8 bytes: enum Kind at byte 7 has index 4 of 2") as caught:
        read(schema, b"\x0csecret" + b"\x08")
    assert "secret" not in str(caught.value)
