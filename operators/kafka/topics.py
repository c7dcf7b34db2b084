"""The topics before records flow: what exists, what their settings mean for this pipeline, and making them."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import TopicPartition

from slotstream.operators.finding import Finding
from slotstream.operators.kafka.connection import KafkaConfig, broker_errors
from slotstream.operators.kafka.header_keys import accept_any_header_key
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig

__all__ = ["NEVER", "TopicSettings", "check_topics", "create_topics", "judge", "topic_settings"]

NEVER = 1 << 62
"""Milliseconds; Kafka's own "no limit" values are -1 and 2^63-1."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic and the settings that matter here. Kafka's names in `configs`; `may` is what the broker lets us do."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str]
    may: frozenset[str] | None = None

    def ms(self, name: str) -> int:
        """A duration, NEVER when it is unlimited or the broker does not say."""
        value = int(self.configs.get(name, -1))
        return NEVER if value < 0 else value


def check_topics(
    kafka: KafkaConfig, source: SourceConfig, sink: SinkConfig, clock: Callable[[], float] = time.time
) -> list[Finding]:
    """Look at the input and the output topics on the broker.

    Args:
        kafka: the cluster.
        source: the input.
        sink: the outputs.
        clock: Unix seconds.

    Raises:
        BrokerError: the cluster does not answer.
        ConfigError: it refuses the login.
    """
    names = [source.topic, sink.decided, sink.review, sink.dead]
    found = topic_settings(kafka, names)
    with broker_errors(f"looking at the topics on {kafka.bootstrap_servers}"):
        oldest_ms = _oldest_ms(kafka, found[source.topic]) if source.topic in found else None
    return list(judge(source, sink, found, oldest_ms=oldest_ms, now_ms=int(clock() * 1000)))


def topic_settings(kafka: KafkaConfig, names: list[str]) -> dict[str, TopicSettings]:
    """Those of the topics that exist, by name.

    Raises:
        BrokerError: the cluster does not answer.
        ConfigError: it refuses the login.
    """
    with broker_errors(f"looking at the topics on {kafka.bootstrap_servers}"):
        admin = KafkaAdminClient(**kafka.client_arguments("check"))
        try:
            return _settings(admin, names)
        finally:
            admin.close()


def create_topics(
    kafka: KafkaConfig,
    partitions: Mapping[str, int],
    *,
    replicas: int = 1,
    configs: Mapping[str, str] | None = None,
) -> list[str]:
    """Create those of the topics (name to number of partitions) that are missing, and wait for their leaders.

    Returns the names that were created.

    Raises:
        BrokerError, ConfigError: the cluster does not make them.
    """
    created = []
    with broker_errors(f"creating topics on {kafka.bootstrap_servers}"):
        admin = KafkaAdminClient(**kafka.client_arguments("setup"))
        try:
            for name, count in partitions.items():
                wanted = {"num_partitions": count, "replication_factor": replicas, "configs": dict(configs or {})}
                try:
                    admin.create_topics({name: wanted}, wait_for_metadata=True)
                    created.append(name)
                except TopicAlreadyExistsError:
                    continue
        finally:
            admin.close()
    return created


def judge(
    source: SourceConfig,
    sink: SinkConfig,
    found: Mapping[str, TopicSettings],
    *,
    oldest_ms: int | None,
    now_ms: int,
) -> Iterator[Finding]:
    """What the topics mean for the pipeline. Pure.

    Args:
        source: the input.
        sink: the outputs.
        found: those of the topics that exist.
        oldest_ms: time stamp of the oldest record in the input, Unix milliseconds; None when it is empty.
        now_ms: Unix milliseconds.
    """
    uses = Counter([source.topic, source.redrive_topic, sink.decided, sink.review, sink.dead])
    for name in (name for name, count in uses.items() if count > 1):
        yield Finding("error", f"topic {name}", "is used twice", "give input, decided, review and dead a topic each")
    given = found.get(source.topic)
    if given is None:
        yield Finding("error", f"topic {source.topic}", "the input topic does not exist", _create(source.topic, 1))
    elif given.may is not None and "READ" not in given.may:
        yield Finding("error", f"topic {given.name}", "this login may not read it", "grant READ on it")
    else:
        yield Finding("ok", f"topic {given.name}", f"input, {given.partitions} partitions")
    for route in ("decided", "review", "dead"):
        name = getattr(sink, route)
        if name not in found:
            advice = _create(name, given.partitions if given else 1)
            yield Finding("error", f"topic {name}", f"the output topic of {route} does not exist", advice)
            continue
        wrong = list(_output(found[name], given, route, oldest_ms, now_ms))
        yield from wrong or [Finding("ok", f"topic {name}", f"{route}, {found[name].partitions} partitions")]


def _output(
    topic: TopicSettings, given: TopicSettings | None, route: str, oldest_ms: int | None, now_ms: int
) -> Iterator[Finding]:
    subject = f"topic {topic.name}"
    if topic.may is not None and "WRITE" not in topic.may:
        yield Finding("error", subject, "this login may not write to it", "grant WRITE on it")
    needed = int(topic.configs.get("min.insync.replicas", 1))
    if needed > topic.replicas:
        message = f"min.insync.replicas is {needed} and it has {topic.replicas} replicas: every write fails"
        yield Finding("error", subject, message, "lower min.insync.replicas or add replicas")
    if "compact" in topic.configs.get("cleanup.policy", ""):
        what = "letters with equal keys are deleted" if route == "dead" else "records without a key are refused"
        yield Finding("warning", subject, f"it is compacted: {what}", "set cleanup.policy=delete, unless that is meant")
    if topic.configs.get("message.timestamp.type") == "LogAppendTime":
        message = "message.timestamp.type=LogAppendTime replaces the records' own time stamps"
        yield Finding("warning", subject, message, "set it to CreateTime to keep them")
    elif oldest_ms is not None:
        yield from _times(topic, oldest_ms, now_ms)
    if given is not None:
        yield from _beside_input(topic, given, route)


def _times(topic: TopicSettings, oldest_ms: int, now_ms: int) -> Iterator[Finding]:
    age_ms, subject = now_ms - oldest_ms, f"topic {topic.name}"
    old = f"the input's oldest record is {age_ms / 86_400_000:.1f} days old"
    if "delete" in topic.configs.get("cleanup.policy", "delete") and age_ms > topic.ms("retention.ms"):
        message = f"{old} and retention.ms is {topic.ms('retention.ms')}: such records are deleted right after writing"
        yield Finding("warning", subject, message, "raise retention.ms")
    if age_ms > topic.ms("message.timestamp.before.max.ms"):
        limit = topic.ms("message.timestamp.before.max.ms")
        message = f"{old} and message.timestamp.before.max.ms is {limit}: such records are refused and go to dead"
        yield Finding("warning", subject, message, "raise message.timestamp.before.max.ms")


def _beside_input(topic: TopicSettings, given: TopicSettings, route: str) -> Iterator[Finding]:
    subject = f"topic {topic.name}"
    if route != "dead" and topic.partitions != given.partitions:
        message = f"it has {topic.partitions} partitions, the input {given.partitions}: order holds per key only"
        yield Finding("warning", subject, message, "give it as many partitions as the input")
    ours, theirs = (int(at.configs.get("max.message.bytes", 0)) for at in (topic, given))
    if 0 < ours < theirs:
        goes = "larger dead letters lose their value" if route == "dead" else "larger records go to dead"
        message = f"max.message.bytes is {ours}, the input's is {theirs}: {goes}"
        yield Finding("warning", subject, message, "raise it above the input's: the decision adds some bytes")
    future = "message.timestamp.after.max.ms"
    if future in topic.configs and topic.ms(future) < given.ms(future):
        message = f"{future} is {topic.ms(future)}, the input's is larger: records from the future are refused"
        yield Finding("warning", subject, message, f"raise {future} to the input's value")


def _create(name: str, partitions: int) -> str:
    return f"create it: kafka-topics.sh --create --topic {name} --partitions {partitions}"


def _settings(admin: KafkaAdminClient, names: list[str]) -> dict[str, TopicSettings]:
    found = [topic for topic in admin.describe_topics(names) if topic["error_code"] == 0]
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic["name"]) for topic in found]
    told: Mapping[str, Any] = admin.describe_configs(asked, config_filter="all").get("topic", {}) if asked else {}
    return {
        topic["name"]: TopicSettings(
            name=topic["name"],
            partitions=len(topic["partitions"]),
            replicas=min(len(partition["replica_nodes"]) for partition in topic["partitions"]),
            configs={key: str(config["value"]) for key, config in told.get(topic["name"], {}).items()},
            may=frozenset(topic["authorized_operations"]) if topic.get("authorized_operations") else None,
        )
        for topic in found
    }


def _oldest_ms(kafka: KafkaConfig, topic: TopicSettings) -> int | None:
    """The smallest time stamp among the first records of the partitions: exact where time rises with the offset."""
    accept_any_header_key()
    consumer = KafkaConsumer(auto_offset_reset="earliest", **kafka.client_arguments("check"))
    try:
        partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        filled = [at for at in partitions if starts[at] < ends[at]]
        oldest: list[int] = []
        for at in filled:
            consumer.assign([at])
            consumer.seek(at, starts[at])
            for records in consumer.poll(timeout_ms=2_000, max_records=1).values():
                oldest += [record.timestamp for record in records if record.timestamp >= 0]
        return min(oldest, default=None)
    finally:
        consumer.close(autocommit=False, timeout_ms=1_000)
