"""What travels through the stream: a message as Kafka gave it, and the record that was decoded from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Headers", "Message", "Origin", "Record"]

Headers = tuple[tuple[str, bytes | None], ...]
"""Kafka headers in their order; keys may repeat, values may be null or binary."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was read. With a decision schema's hash it is the record's id, in every copy of it.

    `topic_id` is the topic's UUID (KIP-516): a topic that is deleted and made again keeps its name, not its records.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"

    def decision_id(self, schema_hash: str) -> str:
        """`TOPIC_UUID:PARTITION:OFFSET:SCHEMA_HASH`, equal for all copies of one decision."""
        return f"{self.topic_id}:{self.partition}:{self.offset}:{schema_hash}"


@dataclass(frozen=True, slots=True)
class Message:
    """One Kafka message, byte for byte.

    `timestamp_type` is 0 for the producer's time and 1 for the broker's (LogAppendTime); -1 when there is none.
    `attempt` is 1, or what a redriven record says.
    """

    origin: Origin
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None = field(repr=False)  # keys, values and headers stay out of logs
    value: bytes | None = field(repr=False)
    headers: Headers = field(default=(), repr=False)
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded message: the fields that the decision schema asks for, and what the encoder needs to write it again.

    `schema_id` is the value's id in the input registry, None without framing.
    """

    message: Message
    fields: Mapping[str, Any] = field(repr=False)
    schema_id: int | None = None
