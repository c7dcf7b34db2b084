"""Avro in and out: the record's own bytes, and the decision fields behind them under a derived schema."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slotstream.operators.registry import SchemaRegistry
from slotstream.schemas.avro import DatumReader, DecisionEncoder, derive, parse_writer_schema
from slotstream.schemas.errors import DecodeError, OutputSchemaRefused
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Decision
from slotstream.schemas.record import Message, Record

__all__ = ["AvroCodec"]

_ELSEWHERE = frozenset(
    ["__value_schema_id", *(f"apicurio.value.{id_}" for id_ in ("globalId", "contentId", "contentHash", "artifactId"))]
)
"""Headers that carry the schema's id instead of the value's first bytes."""


@dataclass(slots=True)
class _Input:
    """What is known of one input schema."""

    reader: DatumReader
    output: str
    heads: dict[str, bytes] = field(default_factory=dict)
    """Subject to the bytes that stand before a datum of the derived schema."""


class AvroCodec:
    """Reads and writes Avro values; schemas are fetched, derived and registered at first sight and kept for ever.

    Args:
        fields: what is added.  paths: what the state needs.
        source: gives input schemas.  sink: takes output schemas.
        subjects: route to the subject of its output schema.
        framed: values start with Confluent's zero byte and 4-byte schema id; else they are bare, of schema 0.
    """

    def __init__(
        self,
        fields: DecisionFields,
        paths: Sequence[str],
        *,
        source: SchemaRegistry,
        sink: SchemaRegistry,
        subjects: Mapping[str, str],
        framed: bool = True,
    ) -> None:
        self._fields = fields
        self._paths = tuple(paths)
        self._source = source
        self._sink = sink
        self._subjects = dict(subjects)
        self._framed = framed
        self._encoder = DecisionEncoder(fields)
        self._inputs: dict[int, _Input | DecodeError] = {}

    def decode(self, message: Message) -> Record:
        """The wanted fields, nested as in the record.

        Raises:
            DecodeError: `framing_empty`, `framing_unknown`, `schema_not_found`, `avro_schema_invalid`, or a code of
                `DatumReader.read`.
            RegistryUnavailable: the schema cannot be fetched now.
            ConfigError: the schema has a field that a decision field would be named.
        """
        schema_id, start = self._framing(message) if self._framed else (0, 0)
        assert message.value is not None
        fields = self._input(schema_id).reader.read(message.value[start:])
        return Record(message, fields, schema_id if self._framed else None)

    def encode(self, record: Record, decision: Decision) -> bytes:
        """The input's datum with the decision fields behind it, framed as the input with the derived schema's id.

        Raises:
            OutputSchemaRefused, RegistryUnavailable: the derived schema cannot be registered (now).
            EncodeError: a value of the decision has not the type of its field.
        """
        assert record.message.value is not None
        schema_id, start = (record.schema_id or 0, 5) if self._framed else (0, 0)
        head = self._head(schema_id, self._subjects[decision.route])
        return head + record.message.value[start:] + self._encoder.encode(decision)

    def _input(self, schema_id: int) -> _Input:
        known = self._inputs.get(schema_id)
        if known is None:
            registered = self._source.schema(schema_id)
            try:
                writer = parse_writer_schema(registered.text, registered.references)
                known = _Input(DatumReader(writer, self._paths), derive(writer, self._fields).text)
            except DecodeError as error:  # a schema never changes under its id
                known = DecodeError(f"schema {schema_id}: {error}", code=error.code)
            self._inputs[schema_id] = known
        if isinstance(known, DecodeError):
            raise DecodeError(str(known), code=known.code)
        return known

    def _head(self, schema_id: int, subject: str) -> bytes:
        known = self._input(schema_id)
        head = known.heads.get(subject)
        if head is None:
            try:
                output_id = self._sink.register(subject, known.output)
            except OutputSchemaRefused as error:
                raise OutputSchemaRefused(f"output schema of input schema {schema_id}: {error}") from error
            head = known.heads[subject] = b"\0" + output_id.to_bytes(4, "big") if self._framed else b""
        return head

    def _framing(self, message: Message) -> tuple[int, int]:
        """The schema's id and where the datum starts."""
        value = message.value
        assert value is not None
        if message.headers and (named := [name for name, _ in message.headers if name in _ELSEWHERE]):
            raise _unknown(f"its schema's id is in header {named[0]!r} (Confluent v1 or Apicurio)")
        if not value:
            raise DecodeError(
                "the value is empty: neither a tombstone (null) nor Confluent-framed Avro", code="framing_empty"
            )
        if value[0] != 0 or len(value) < 5:
            raise _unknown(_guess(value))
        schema_id = int.from_bytes(value[1:5], "big")
        if schema_id == 0:
            raise _unknown("its schema id is 0: an 8-byte id of Apicurio 2?")
        return schema_id, 5


def _unknown(what: str) -> DecodeError:
    return DecodeError(
        f"the value is not framed as Confluent v0 (a zero byte and a 4-byte schema id): {what}",
        code="framing_unknown",
    )


def _guess(value: bytes) -> str:
    shown = f"it starts with {value[:4].hex(' ')}"
    if value[0] == 0:
        return f"{shown} and has {len(value)} bytes"
    if value[0] == 1 and len(value) >= 17:
        return f"{shown}, Confluent v1 with a GUID?"
    if value[:2] == b"\xc3\x01":
        return f"{shown}, Avro single-object encoding"
    if value[:4] == b"Obj\x01":
        return f"{shown}, an Avro file"
    if value[:1] in b"{[":
        return f"{shown}, JSON? (set the format to json)"
    return f"{shown}, bare Avro? (set the framing to none and give a schema file)"
