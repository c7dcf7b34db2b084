"""An Avro value comes out with its own bytes, framed by the id of the schema that was derived from its own."""

import io
import json

import fastavro
import httpx
import pytest

from slotstream.operators.registry import Registry, RegistryConfig
from slotstream.schemas.errors import ConfigError, DecodeError, OutputSchemaRefused, RegistryUnavailable
from tests.operators.codec_examples import DECIDED, REVIEW, SCHEMA, Schemas, codec, framed, message


def test_an_avro_value_keeps_its_bytes_and_gets_the_derived_schemas_id() -> None:
    schemas = Schemas(SCHEMA)
    avro_codec = codec("avro", schemas=schemas)
    record = avro_codec.decode(framed(b"\x04hi"))
    assert (record.fields, record.schema_id) == ({"text": "hi"}, 1)
    written = avro_codec.encode(record, DECIDED)
    assert written.startswith(b"\0\0\0\0\x65\x04hi")
    ((subject, text),) = schemas.registered
    assert subject == "out-value"
    value = fastavro.schemaless_reader(io.BytesIO(written[5:]), fastavro.parse_schema(json.loads(text)))
    assert (value["text"], value["refund"], value["decision_id"]) == ("hi", True, "u:0:7:h")


def test_each_schema_is_fetched_and_registered_once() -> None:
    other = {**SCHEMA, "fields": [{"name": "id", "type": "int"}, *SCHEMA["fields"]]}
    schemas = Schemas(SCHEMA, other)
    avro_codec = codec("avro", schemas=schemas)
    for _ in range(3):
        for value in (framed(b"\x04hi", 1), framed(b"\x02\x04hi", 2)):
            avro_codec.encode(avro_codec.decode(value), DECIDED)
    assert schemas.asked == [1, 2]
    assert [subject for subject, _ in schemas.registered] == ["out-value", "out-value"]


def test_each_route_has_the_subject_of_its_topic() -> None:
    schemas = Schemas(SCHEMA)
    avro_codec = codec("avro", schemas=schemas)
    record = avro_codec.decode(framed(b"\x04hi"))
    heads = {avro_codec.encode(record, decision)[:5] for decision in (DECIDED, REVIEW)}
    assert [subject for subject, _ in schemas.registered] == ["out-value", "unsure-value"]
    assert len(heads) == 2


def test_a_record_that_another_process_decoded_is_encoded() -> None:
    schemas = Schemas(SCHEMA)
    record = codec("avro", schemas=schemas).decode(framed(b"\x04hi"))
    assert codec("avro", schemas=schemas).encode(record, DECIDED).startswith(b"\0\0\0\0\x65\x04hi")


def test_an_empty_record_is_five_bytes() -> None:
    empty = {"type": "record", "name": "Empty", "fields": []}
    avro_codec = codec("avro", schemas=Schemas(empty))
    record = avro_codec.decode(framed(b""))
    assert record.fields == {}
    assert len(avro_codec.encode(record, DECIDED)) > 5


@pytest.mark.parametrize(
    ("value", "code", "named"),
    [
        (b"", "framing_empty", "empty"),
        (b"\0", "framing_unknown", "00 and has 1 bytes"),
        (b"\0\0\0\1", "framing_unknown", "00 00 00 01 and has 4 bytes"),
        (b"\0\0\0\0\0\0\0\0\x05\x04hi", "framing_unknown", "8-byte id of Apicurio 2"),
        (b"\x01" + b"g" * 16 + b"\x04hi", "framing_unknown", "01 67 67 67, Confluent v1"),
        (b"\xc3\x01" + b"f" * 8 + b"\x04hi", "framing_unknown", "single-object"),
        (b"Obj\x01...", "framing_unknown", "an Avro file"),
        (b'{"text":"hi"}', "framing_unknown", "7b 22 74 65, JSON"),
        (b"\x04hi", "framing_unknown", "04 68 69, bare Avro"),
        (b"\0\0\0\0\x09\x04hi", "schema_not_found", "9"),
    ],
)
def test_a_value_in_another_framing_is_dead_and_the_message_says_what_it_looks_like(
    value: bytes, code: str, named: str
) -> None:
    with pytest.raises(DecodeError, match=named) as caught:
        codec("avro", schemas=Schemas(SCHEMA)).decode(message(value))
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["__value_schema_id", "apicurio.value.globalId", "apicurio.value.contentId"])
def test_a_schema_id_in_a_header_is_named_as_not_supported(name: str) -> None:
    with pytest.raises(DecodeError, match=name) as caught:
        codec("avro", schemas=Schemas(SCHEMA)).decode(message(b"\0\0\0\0\x01\x04hi", (name, b"\1")))
    assert caught.value.code == "framing_unknown"


def test_a_header_that_names_no_schema_is_no_hindrance() -> None:
    avro_codec = codec("avro", schemas=Schemas(SCHEMA))
    record = avro_codec.decode(message(b"\0\0\0\0\x01\x04hi", ("apicurio.value.encoding", b"BINARY"), ("n", None)))
    assert record.fields == {"text": "hi"}


def test_a_broken_schema_is_dead_each_time_and_fetched_once() -> None:
    schemas = Schemas({**SCHEMA, "name": "no-name"})
    avro_codec = codec("avro", schemas=schemas)
    for _ in range(2):
        with pytest.raises(DecodeError, match=r"schema 1: .*no-name") as caught:
            avro_codec.decode(framed(b"\x04hi"))
        assert caught.value.code == "avro_schema_invalid"
    assert schemas.asked == [1]


def test_a_refused_output_schema_names_the_input_schema_and_stops() -> None:
    schemas = Schemas(SCHEMA)
    avro_codec = codec("avro", schemas=schemas)
    record = avro_codec.decode(framed(b"\x04hi"))
    schemas.fail = OutputSchemaRefused("subject out-value: HTTP 409 incompatible")
    with pytest.raises(OutputSchemaRefused, match="input schema 1: subject out-value: HTTP 409 incompatible"):
        avro_codec.encode(record, DECIDED)


def test_a_registry_that_is_away_is_asked_again() -> None:
    schemas = Schemas(SCHEMA)
    avro_codec = codec("avro", schemas=schemas)
    record = avro_codec.decode(framed(b"\x04hi"))
    schemas.fail = RegistryUnavailable("away")
    with pytest.raises(RegistryUnavailable):
        avro_codec.encode(record, DECIDED)
    assert avro_codec.encode(record, DECIDED)


def test_an_input_field_of_our_name_stops_before_anything_is_asked() -> None:
    taken = {**SCHEMA, "fields": [{"name": "Refund", "type": "int"}]}
    schemas = Schemas(taken)
    avro_codec = codec("avro", schemas=schemas)
    with pytest.raises(ConfigError, match=r"shop\.Ticket.*Refund.*output\.field_prefix"):
        avro_codec.decode(framed(b"\x02"))
    prefixed = codec("avro", schemas=schemas, field_prefix="ai_")
    assert prefixed.encode(prefixed.decode(framed(b"\x02")), DECIDED)


@pytest.mark.registry
def test_a_schema_with_references_goes_through_a_real_registry(schema_registry: str) -> None:
    part = {"type": "record", "name": "Part", "namespace": "codec.test", "fields": [{"name": "text", "type": "string"}]}
    whole = {
        **part,
        "name": "Whole",
        "fields": [{"name": "a", "type": "Part"}, {"name": "b", "type": "codec.test.Part"}],
    }
    reference = {"name": "codec.test.Part", "subject": "codec-part", "version": 1}
    with httpx.Client(base_url=schema_registry) as http:
        http.post("/subjects/codec-part/versions", json={"schema": json.dumps(part)}).raise_for_status()
        body = {"schema": json.dumps(whole), "references": [reference]}
        schema_id = http.post("/subjects/codec-in-value/versions", json=body).raise_for_status().json()["id"]
    registry = Registry(RegistryConfig(urls=(schema_registry,)))
    avro_codec = codec("avro", ["b.text"], schemas=registry)
    record = avro_codec.decode(framed(b"\x02x\x04hi", schema_id))
    assert record.fields == {"b": {"text": "hi"}}
    written = avro_codec.encode(record, DECIDED)
    output = registry.schema(int.from_bytes(written[1:5], "big"))
    assert output.references == ()  # it stands on its own, so it can be registered elsewhere too
    value = fastavro.schemaless_reader(io.BytesIO(written[5:]), fastavro.parse_schema(json.loads(output.text)))
    assert (value["a"], value["b"], value["refund"]) == ({"text": "x"}, {"text": "hi"}, True)
    registry.close()
