"""Reading the dead topic: letter after letter from its beginning to its end of this moment, or one by its place."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from slotstream.operators.kafka.connection import KafkaConfig, broker_errors
from slotstream.operators.kafka.header_keys import accept_any_header_key
from slotstream.operators.kafka.letter import Letter, letter_of
from slotstream.operators.kafka.rows import records_of
from slotstream.schemas.errors import ConfigError

__all__ = ["TELL_EVERY_S", "letter_at", "letters_of", "told_as_it_goes"]

logger = logging.getLogger(__name__)

TELL_EVERY_S = 5.0
Item = TypeVar("Item")


def letters_of(
    kafka: KafkaConfig, topic: str, *, framed: bool = False, clock: Callable[[], float] = time.monotonic
) -> Iterator[Letter]:
    """Every letter, partition after partition in the order of offsets; holds one fetch at a time, and tells progress.

    Args:
        framed: see letter_of.
        clock: monotonic seconds.

    Raises:
        BrokerError: the topic does not exist, or cannot be read to its end.
    """
    records = told_as_it_goes(records_of(kafka, topic), f"records of {topic} read", clock)
    return (letter_of(record, prefix=kafka.header_prefix, framed=framed) for record in records)


def letter_at(kafka: KafkaConfig, topic: str, partition: int, offset: int, *, framed: bool = False) -> Letter | None:
    """The letter at that place of the dead topic, None when no record is there (any more).

    Raises:
        ConfigError: the topic has no such partition.
        BrokerError: Kafka does not answer.
    """
    accept_any_header_key()
    at = TopicPartition(topic, partition)
    with broker_errors(f"reading {topic}"):
        consumer = KafkaConsumer(
            isolation_level="read_committed",
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            **kafka.client_arguments("dead"),
        )
        try:
            partitions = consumer.partitions_for_topic(topic) or set()
            if partition not in partitions:
                raise ConfigError(f"topic {topic} has {len(partitions)} partitions, counted from 0, and no {partition}")
            consumer.assign([at])
            if not consumer.beginning_offsets([at])[at] <= offset < consumer.end_offsets([at])[at]:
                return None
            consumer.seek(at, offset)
            polled = consumer.poll(timeout_ms=kafka.request_timeout_ms, max_records=1).get(at, ())
            found = [record for record in polled if record.offset == offset]
            return letter_of(found[0], prefix=kafka.header_prefix, framed=framed) if found else None
        finally:
            consumer.close(autocommit=False, timeout_ms=1_000)


def told_as_it_goes(records: Iterator[Item], what: str, clock: Callable[[], float]) -> Iterator[Item]:
    """The same, with a log line of how many there were every TELL_EVERY_S."""
    told_at = clock()
    for count, record in enumerate(records, 1):
        if clock() - told_at >= TELL_EVERY_S:
            logger.info("%s %s", f"{count:,}", what)
            told_at = clock()
        yield record
