"""Where records come from: the input topic, the group that remembers how far it was read, and where it starts."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import NoError, RetriableError
from kafka.structs import OffsetAndMetadata, TopicPartition
from pydantic import BaseModel, ConfigDict, Field, model_validator

from slotstream.schemas.errors import ConfigError

__all__ = ["CommitNote", "SourceConfig", "TopicFacts", "describe_topics", "seed_group"]

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
ATTEMPTS = 50  # the coordinator of a new cluster takes a moment to come up; kafka-python's admin does not retry it


class SourceConfig(BaseModel):
    """The topic to read and how to read it. Records of `<topic>.redrive` are read too when that topic exists."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: str = Field(min_length=1, description="The topic to read.")
    group: str = Field(min_length=1, description="Consumer group: replicas that share it share the topic's partitions.")
    start: Literal["earliest", "latest", "timestamp"] = Field(
        default="earliest",
        description="Where a group without any commit starts; partitions that appear later start at their beginning.",
    )
    start_timestamp_ms: int | None = Field(
        default=None,
        ge=0,
        description="Unix milliseconds, for start: timestamp; a partition without later records starts at its end.",
    )
    on_topic_recreated: Literal["stop", "earliest"] = Field(
        default="stop",
        description="The topic was deleted and made again: stop, or read the new one from its start.",
    )
    on_out_of_range: Literal["stop", "earliest", "latest"] = Field(
        default="stop", description="The committed offset is no longer in the log: stop, or go on at one of its ends."
    )
    session_timeout_ms: int = Field(
        default=20_000, ge=1_000, description="A replica that is silent for so long loses its partitions."
    )
    max_poll_interval_ms: int = Field(
        default=600_000, ge=10_000, description="Must be longer than the slowest batch and an engine restart."
    )
    release_wait_ms: int = Field(
        default=5_000, ge=0, description="How long a partition that moves away waits for its records in flight."
    )
    metadata_max_age_ms: int = Field(default=30_000, ge=1_000, description="New partitions are seen after so long.")
    max_buffered_records: int = Field(default=5_000, ge=1, description="Records held ready between two batches.")
    max_buffered_bytes: int = Field(
        default=67_108_864, ge=1, description="Size of the records held ready; at least one is held, however large."
    )
    max_partition_fetch_bytes: int = Field(
        default=1_048_576,
        ge=1_024,
        description="Fetched of a partition at a time; a larger record still comes whole.",
    )

    @property
    def redrive_topic(self) -> str:
        """Where dead letters are put back for another attempt."""
        return f"{self.topic}.redrive"

    @model_validator(mode="after")
    def _start_is_whole(self) -> Self:
        if (self.start == "timestamp") != (self.start_timestamp_ms is not None):
            raise ValueError("start: timestamp and start_timestamp_ms belong together: give both or neither")
        return self


@dataclass(frozen=True, slots=True)
class CommitNote:
    """What is kept in the commit's metadata: which topic it counts, and how often the engine died at this offset."""

    topic_id: str
    engine_deaths: int = 0

    def __str__(self) -> str:
        return json.dumps({"topic_id": self.topic_id, "engine_deaths": self.engine_deaths})

    @classmethod
    def read(cls, metadata: str | None) -> "CommitNote | None":
        """None when another program committed, or nobody."""
        try:
            note = json.loads(metadata or "")
            return cls(str(note["topic_id"]), int(note["engine_deaths"]))
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the cluster knows it; `id` is its UUID, or its name where the broker has no topic ids (before 2.8)."""

    name: str
    id: str
    partitions: int


def describe_topics(admin: KafkaAdminClient, names: list[str]) -> dict[str, TopicFacts]:
    """Facts about those of the named topics that exist."""
    return {
        topic["name"]: TopicFacts(topic["name"], str(topic["topic_id"] or topic["name"]), len(topic["partitions"]))
        for topic in admin.describe_topics(names)
        if topic["error_code"] == 0
    }


def seed_group(admin: KafkaAdminClient, source: SourceConfig, topic: TopicFacts) -> None:
    """Commit the start of a group that has never committed for this topic, if it is not the beginning.

    Done once for all partitions and before joining, so that a partition without a commit is always one that appeared
    later and is read from its beginning (with `latest` as the reset policy, its first records would be lost).
    """
    if source.start == "earliest":
        return
    if _committed(admin, source, topic):
        return
    partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    ends = _retried(lambda: admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)))
    starts = {partition: end.offset for partition, end in ends.items()}
    if source.start_timestamp_ms is not None:
        found = _retried(lambda: admin.list_partition_offsets(dict.fromkeys(partitions, source.start_timestamp_ms)))
        starts |= {partition: at.offset for partition, at in found.items() if at.offset >= 0}
    note = str(CommitNote(topic.id))
    offsets = {partition: OffsetAndMetadata(offset, note, -1) for partition, offset in starts.items()}
    refused = [
        error
        for error in _retried(lambda: admin.alter_group_offsets(source.group, offsets)).values()
        if error is not NoError
    ]
    if refused and not _committed(admin, source, topic):
        raise ConfigError(
            f"group {source.group}: start {source.start} of {topic.name} cannot be committed ({refused[0].__name__}): "
            "the group has members but no commits; give this run a group of its own or start: earliest"
        )
    logger.info("group %s starts at %s of %s", source.group, source.start, topic.name)


def _committed(admin: KafkaAdminClient, source: SourceConfig, topic: TopicFacts) -> Mapping[TopicPartition, Any]:
    committed = _retried(lambda: admin.list_group_offsets(source.group))[source.group]
    return {at: kept for at, kept in committed.items() if at.topic == topic.name and kept.offset >= 0}


def _retried(request: Callable[[], Result]) -> Result:
    for _ in range(ATTEMPTS - 1):
        try:
            return request()
        except RetriableError:
            time.sleep(0.1)
    return request()
