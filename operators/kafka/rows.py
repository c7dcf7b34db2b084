"""The topics as rows for operators/audit.py: read from the beginning to the end of this moment, by no group."""

from collections.abc import Iterator
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.structs import TopicPartition

from slotstream.operators.audit import Audit, Row, audit
from slotstream.operators.kafka.connection import KafkaConfig, broker_errors
from slotstream.operators.kafka.header_keys import accept_any_header_key
from slotstream.operators.kafka.headers import header_value, identity_of
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig, describe_topics
from slotstream.schemas.errors import BrokerError
from slotstream.schemas.label import Route
from slotstream.schemas.record import Origin

__all__ = ["audit_topics", "output_rows", "records_of"]

ROUTES: tuple[Route, ...] = ("decided", "review", "dead")


def audit_topics(kafka: KafkaConfig, source: SourceConfig, sink: SinkConfig, *, tombstones: bool = True) -> Audit:
    """Audit what a group has read so far.

    Args:
        kafka: the cluster.
        source: the input topic and the group.
        sink: the output topics.
        tombstones: whether records without a value are expected in the output; not when they are dropped.

    Raises:
        BrokerError: a topic cannot be read to its end.
    """
    with broker_errors("asking for the group's commits"):
        admin = KafkaAdminClient(**kafka.client_arguments("audit"))
        try:
            committed = admin.list_group_offsets(source.group)[source.group]
            topic = describe_topics(admin, [source.topic])[source.topic]
        finally:
            admin.close()
    until = {at: kept.offset for at, kept in committed.items() if at.topic == source.topic}
    read = {
        Origin(topic.name, topic.id, record.partition, record.offset)
        for record in records_of(kafka, source.topic)
        if record.offset < until.get(TopicPartition(record.topic, record.partition), 0)
        and (tombstones or record.value is not None)
    }
    return audit(output_rows(kafka, sink), read)


def output_rows(kafka: KafkaConfig, sink: SinkConfig) -> Iterator[Row]:
    """Every record of the output topics that carries our headers."""
    prefix = kafka.header_prefix
    for route in ROUTES:
        for record in records_of(kafka, sink.topic(route)):
            identity = identity_of(tuple(record.headers), prefix=prefix)
            if identity is not None:
                code = header_value(tuple(record.headers), f"{prefix}.error.code") if route == "dead" else None
                yield Row(route, identity.origin, identity.schema_hash, identity.attempt, code)


def records_of(kafka: KafkaConfig, topic: str) -> Iterator[Any]:
    """All committed records (kafka-python's ConsumerRecord) of a topic, partition after partition, up to its end now.

    Raises:
        BrokerError: the topic does not exist, or its end is not reached in request_timeout_ms.
    """
    accept_any_header_key()
    with broker_errors(f"reading {topic}"):
        consumer = KafkaConsumer(
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            **kafka.client_arguments("audit"),
        )
        try:
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
            if not partitions:
                raise BrokerError(f"topic {topic} does not exist on {kafka.bootstrap_servers}")
            for at, end in sorted(consumer.end_offsets(partitions).items()):
                consumer.assign([at])
                consumer.seek_to_beginning(at)
                while consumer.position(at, timeout_ms=kafka.request_timeout_ms) < end:
                    before = consumer.position(at)
                    yield from consumer.poll(timeout_ms=kafka.request_timeout_ms, max_records=5_000).get(at, ())
                    if consumer.position(at) == before:
                        raise BrokerError(f"{topic}[{at.partition}] gives nothing between {before} and its end {end}")
        finally:
            consumer.close(autocommit=False, timeout_ms=1_000)
