"""Plain text values, headers, and what no codec can be built of."""

import json

import pytest
from pydantic import ValidationError

from slotstream.operators.codec import Codec, ValueConfig, output_headers
from slotstream.schemas.errors import ConfigError, DecodeError
from slotstream.schemas.record import Headers
from tests.operators.codec_examples import ADDED, DECIDED, Schemas, codec, message


def test_every_format_has_a_codec() -> None:
    for built in (codec("json"), codec("text"), codec("avro", schemas=Schemas())):
        assert isinstance(built, Codec)


@pytest.mark.parametrize("text", ["hi", "", 'quotes " and \\ and }', "größe 😀\n\0", '{"text":"looks like JSON"}'])
def test_text_becomes_an_object_of_the_text_and_the_decision(text: str) -> None:
    text_codec = codec("text")
    record = text_codec.decode(message(text.encode()))
    assert record.fields == {"text": text}
    written = text_codec.encode(record, DECIDED).decode()
    assert json.loads(written)["value"] == text
    assert written.endswith("," + ADDED + "}")


def test_text_that_is_no_utf8_goes_to_dead() -> None:
    with pytest.raises(DecodeError, match="byte 1") as caught:
        codec("text").decode(message(b"a\xff"))
    assert caught.value.code == "text_invalid_utf8"


def test_plain_text_has_one_field() -> None:
    with pytest.raises(ConfigError, match="'subject'"):
        codec("text", ["text", "subject"])


def test_avro_without_schemas_is_refused() -> None:
    with pytest.raises(ConfigError, match="registry or a schema file"):
        codec("avro")


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError):
        ValueConfig.model_validate({"format": "avro", "prefix": "x"})


def test_headers_that_name_the_input_values_schema_are_dropped() -> None:
    headers: Headers = (
        ("traceparent", b"00-1"),
        ("__value_schema_id", b"\1" + bytes(16)),
        ("apicurio.value.globalId", bytes(8)),
        ("apicurio.value.encoding", b"BINARY"),
        ("__key_schema_id", b"\1"),
        ("apicurio.key.globalId", bytes(8)),
        ("n", None),
        ("n", b"\xff"),
    )
    assert output_headers(headers) == (headers[0], *headers[4:])
