"""What turns a message's value into fields, and a decision into the value that is written: one contract, three formats.

avro  Confluent framing or bare; the output is the input's bytes with the decision fields behind them
json  an object; the output is the input's text with the decision fields spliced in before its last brace
text  UTF-8 as the field `text`; the output is a JSON object of `value` and the decision fields
"""

from collections.abc import Mapping
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from slotstream.operators.codecs.avro import AvroCodec
from slotstream.operators.codecs.json_object import JsonCodec
from slotstream.operators.codecs.text import TextCodec
from slotstream.operators.registry import SchemaRegistry
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import ConfigError
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Decision
from slotstream.schemas.record import Headers, Message, Record

__all__ = ["Codec", "ValueConfig", "build_codec", "output_headers"]


@runtime_checkable
class Codec(Protocol):
    """Reads and writes values of one format; thread-safe. A tombstone (value None) never reaches it."""

    def decode(self, message: Message) -> Record:
        """The fields that the decision schema's state needs, out of the message's value.

        Raises:
            DecodeError: the value is not what the topic promises; `code` says how.
            RegistryUnavailable: its schema cannot be fetched now.
            ConfigError: its schema has a field that a decision field would be named; found before anything is asked.
        """
        ...

    def encode(self, record: Record, decision: Decision) -> bytes:
        """The value to write: the record's own, with the decision fields added.

        Raises:
            EncodeError: the decision cannot be written behind this record.
            OutputSchemaRefused, RegistryUnavailable: the output schema cannot be registered (now).
        """
        ...


class ValueConfig(BaseModel):
    """How the values of the input topic are written, and what is added to them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["avro", "json", "text"] = Field("avro", description="Format of the input topic's values.")
    framing: Literal["confluent", "none"] = Field(
        "confluent", description="Avro: a zero byte and a 4-byte schema id before each datum, or bare data."
    )
    field_prefix: str = Field("", description="Stands before the name of every decision field.")
    probabilities: bool = Field(False, description="Add each question's full distribution to the decision fields.")


def build_codec(
    config: ValueConfig,
    schema: DecisionSchema,
    *,
    topics: Mapping[Literal["decided", "review"], str],
    source: SchemaRegistry | None = None,
    sink: SchemaRegistry | None = None,
) -> Codec:
    """The codec of a decision schema's records.

    Args:
        topics: output topic a route: an Avro output schema is registered as `<topic>-value` for each.
        source: where input schemas come from (Avro only).  sink: where output schemas go; default is `source`.

    Raises:
        ConfigError: Avro without a source of schemas, or decision fields that cannot be named.
    """
    fields = DecisionFields(
        [(question.id, question.type) for question in schema.questions],
        prefix=config.field_prefix,
        probabilities=config.probabilities,
    )
    paths = schema.state.paths
    if config.format == "json":
        return JsonCodec(fields, paths)
    if config.format == "text":
        return TextCodec(fields, paths)
    if source is None:
        raise ConfigError("Avro values need a schema registry or a schema file, and neither is configured")
    return AvroCodec(
        fields,
        paths,
        source=source,
        sink=sink or source,
        subjects={route: f"{topic}-value" for route, topic in topics.items()},
        framed=config.framing == "confluent",
    )


def output_headers(headers: Headers) -> Headers:
    """The headers without those that name the input value's schema: with them a reader would decode our bytes by it."""
    return tuple((name, value) for name, value in headers if not _names_value_schema(name))


def _names_value_schema(name: str) -> bool:
    return name == "__value_schema_id" or name.startswith("apicurio.value.")
