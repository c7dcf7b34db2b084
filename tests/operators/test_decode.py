"""Decode: a message becomes a record, a dead letter or a tombstone; nothing else."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam import Pipeline
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from slotstream.operators import decode as decode_module
from slotstream.operators.codec import ValueConfig
from slotstream.operators.decode import CodecSource, DecodeFn, condemn_latest, decode
from slotstream.operators.outcome import Dead, Forwarded
from slotstream.operators.registry_file import SchemaFileConfig
from slotstream.schemas.errors import ConfigError, DecodeError, RegistryUnavailable
from slotstream.schemas.record import Message, Origin, Record
from tests.examples import example_schema

JSON = CodecSource(ValueConfig(format="json"), example_schema(), {"decided": "d", "review": "r"})


def message(value: bytes | None, offset: int = 0) -> Message:
    return Message(Origin("in", "uuid", 0, offset), 0, 0, b"key", value)


class BrokenCodec:
    """Raises what it is given."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def decode(self, message: Message) -> Record:
        raise self._error

    def encode(self, record: Any, decision: Any) -> bytes:
        raise self._error


def test_a_sound_value_becomes_a_record_of_its_message() -> None:
    given = message(b'{"text": "hello", "other": 1}')
    assert decode(given, JSON.codec()) == Record(given, {"text": "hello"})


def test_a_value_that_is_not_what_the_topic_promises_is_dead_with_its_code() -> None:
    given = message(b"no json")
    decoded = decode(given, JSON.codec())
    assert isinstance(decoded, Dead)
    assert decoded.message is given
    assert (decoded.error.stage, decoded.error.code) == ("decode", "json_invalid")


def test_an_empty_value_is_no_tombstone() -> None:
    assert isinstance(decode(message(b""), JSON.codec()), Dead)


def test_a_tombstone_is_forwarded_without_the_codec() -> None:
    given = message(None)
    assert decode(given, BrokenCodec(AssertionError())) == Forwarded(given)


def test_a_tombstone_is_dropped_where_the_configuration_says_so() -> None:
    assert decode(message(None), JSON.codec(), "drop") is None


def test_no_record_is_blamed_for_a_registry_that_does_not_answer() -> None:
    with pytest.raises(RegistryUnavailable):
        decode(message(b"x"), BrokenCodec(RegistryUnavailable("down")))


def test_a_codec_is_built_once_a_process() -> None:
    again = CodecSource(ValueConfig(format="json"), example_schema(), {"decided": "d", "review": "r"})
    other = CodecSource(ValueConfig(format="json", field_prefix="x_"), example_schema(), JSON.topics)
    assert JSON.codec() is again.codec()
    assert JSON.codec() is not other.codec()


def test_avro_without_a_source_of_schemas_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither is configured"):
        CodecSource(ValueConfig(), example_schema(), JSON.topics).codec()


def test_a_schema_file_stands_in_for_a_registry(tmp_path: Any) -> None:
    file = tmp_path / "in.avsc"
    file.write_text('{"type": "record", "name": "T", "fields": [{"name": "text", "type": "string"}]}')
    source = CodecSource(
        ValueConfig(framing="none"), example_schema(), JSON.topics, source=SchemaFileConfig(input_file=file)
    )
    decoded = decode(message(b"\x0ahello"), source.codec())
    assert isinstance(decoded, Record)
    assert decoded.fields == {"text": "hello"}


def test_the_step_keeps_the_order_of_records_tombstones_and_dead_letters() -> None:
    values = [b'{"text": "a"}', None, b"bad", b'{"text": "b"}']

    def kind(decoded: Any) -> str:
        return f"{type(decoded).__name__} {decoded.message.origin.offset}"

    pipeline = Pipeline(runner=FnApiRunner())
    kinds = (
        pipeline
        | beam.Create([message(value, offset) for offset, value in enumerate(values)], reshuffle=False)
        | beam.ParDo(DecodeFn(JSON))
        | beam.Map(kind)
    )
    assert_that(kinds, equal_to(["Record 0", "Forwarded 1", "Dead 2", "Record 3"]))
    counters = pipeline.run().metrics().query()["counters"]
    assert {counter.key.metric.name: counter.committed for counter in counters}["tombstones_forwarded"] == 1


def test_a_condemned_record_is_dead_without_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "_condemned", set())
    step = DecodeFn(JSON)
    step.start_bundle()
    killer, other = message(b'{"text": "a"}', 7), message(b'{"text": "a"}', 8)
    assert isinstance(next(step.process(killer)), Record)
    assert condemn_latest() == killer.origin
    (dead,) = step.process(killer)
    assert isinstance(dead, Dead)
    assert dead.error.code == "engine_crash"
    assert isinstance(next(step.process(other)), Record)


def test_a_failing_registry_fails_the_bundle() -> None:
    step = DecodeFn(JSON)
    step.start_bundle()
    step._decode = lambda given: decode(given, BrokenCodec(RegistryUnavailable("down")))
    with pytest.raises(RegistryUnavailable):
        list(step.process(message(b"x")))


def test_a_record_error_of_any_kind_is_dead() -> None:
    decoded = decode(message(b"x"), BrokenCodec(DecodeError("odd", code="odd_code")))
    assert isinstance(decoded, Dead)
    assert decoded.error.code == "odd_code"
