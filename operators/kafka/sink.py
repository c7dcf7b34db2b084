"""Where records go: the three output topics, and what one record on its way to one of them is."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slotstream.operators.kafka.headers import HeaderStyle
from slotstream.schemas.label import Route
from slotstream.schemas.record import Headers, Message

__all__ = ["Outgoing", "SinkConfig"]


class SinkConfig(BaseModel):
    """The output topics and how they are written. They must exist: nothing is created behind your back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decided: str = Field(min_length=1, description="Topic of the records that were decided.")
    review: str = Field(min_length=1, description="Topic of the records whose decision is not certain enough.")
    dead: str = Field(min_length=1, description="Topic of the records that could not be decided, as they were read.")
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = Field(
        "none", description="Compression of the written batches."
    )
    linger_ms: int = Field(
        50,
        ge=0,
        le=1_000,
        description="How long a batch waits for more records; it stops waiting when all records in flight are decided.",
    )
    batch_bytes: int = Field(262_144, ge=1_024, description="Size of a batch, per partition.")
    max_request_bytes: int = Field(
        16_777_216, ge=1_048_576, description="Largest record that is tried, before compression."
    )
    delivery_timeout_ms: int = Field(
        60_000, ge=5_000, description="How long a record is retried before the batch of records fails."
    )
    dead_header_style: HeaderStyle = Field(
        "connect", description="Names of the error headers on dead letters, beside our own."
    )

    @model_validator(mode="after")
    def _topics_differ(self) -> Self:
        names = [self.decided, self.review, self.dead]
        if len(set(names)) < len(names):
            raise ValueError(f"decided, review and dead must be three topics, got {', '.join(names)}")
        return self

    def topic(self, route: Route) -> str:
        """The topic of a route."""
        return {"decided": self.decided, "review": self.review, "dead": self.dead}[route]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to write. Key, timestamp and source partition are the message's own.

    message: as it was read; its value is what `dead` gets if the output topic refuses this record.
    value, headers: what is written.
    schema_id: the input value's schema id, for the error headers.
    keyless: the key is left out (the last resort of a dead letter that fits nowhere else).
    """

    route: Route
    message: Message
    value: bytes | None
    headers: Headers
    schema_id: int | None = None
    keyless: bool = False

    @property
    def key(self) -> bytes | None:
        """The key to write."""
        return None if self.keyless else self.message.key

    def least_bytes(self) -> int:
        """The least that this record can take, uncompressed, as a batch of its own: Kafka limits batches."""
        size = 61 + 7 + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += 2 + len(name) + len(value or b"")
        return size
