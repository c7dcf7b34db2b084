"""Writing on a real broker: nothing lost, nothing changed, order kept, and one bad record harms no other."""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError

from deploy.local.broker import LocalBroker
from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.dead_letter import dead_letter
from slotstream.operators.kafka.header_keys import RawHeaderKey
from slotstream.operators.kafka.headers import header_value, identity_of
from slotstream.operators.kafka.producers import Producers
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.writer import BatchWriter, refusal
from slotstream.schemas.errors import BrokerError, DecodeError
from slotstream.schemas.record import Headers, Message, Origin
from tests.conftest import TopicFactory
from tests.operators.kafka.traffic import STAMP, decided, read_all

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000
MakeProducers = Callable[[SinkConfig], Producers]


def message(offset: int, value: bytes | None = b"v", *, partition: int = 0, **changed: Any) -> Message:
    given: dict[str, Any] = {"timestamp_ms": NOW_MS, "timestamp_type": 0, "key": b"k%d" % offset}
    return Message(Origin("tickets", "uuid", partition, offset), value=value, **given | changed)


@pytest.fixture
def sink(topic: TopicFactory) -> SinkConfig:
    return SinkConfig(
        decided=topic("decided", partitions=2, configs={"max.message.bytes": "3000", "retention.ms": "-1"}),
        review=topic("review", partitions=2),
        dead=topic("dead", partitions=1),
        delivery_timeout_ms=10_000,
    )


def written(kafka: KafkaConfig, topic: str) -> list[tuple[int, int]]:
    """(partition, source offset) of each record, in log order."""
    rows = []
    for record in read_all(kafka, topic):
        identity = identity_of(tuple(record.headers))
        assert identity is not None
        rows.append((record.partition, identity.origin.offset))
    return rows


def test_key_value_headers_time_and_partition_are_kept(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, producers: MakeProducers
) -> None:
    source = topic("in", partitions=2)
    headers: Headers = (("a", b"1"), ("a", b"2"), (RawHeaderKey(b"\xff"), b"\x00"), ("null", None), ("empty", b""))
    writer = BatchWriter(producers(sink), sink, STAMP, source)
    writer.send(decided(message(0, b"\x00value", partition=1, headers=headers, timestamp_ms=1234)))
    writer.send(decided(message(1, None, partition=1, headers=())))
    writer.send(decided(message(2, None, partition=0, key=None)))
    writer.send(decided(message(3, b"", partition=0, key=b"", timestamp_ms=-1)))
    writer.flush()
    none_none, empty, full, tombstone = read_all(kafka, sink.decided)
    assert (full.key, full.value, full.partition, full.timestamp) == (b"k0", b"\x00value", 1, 1234)
    assert [(name.encode("utf-8"), value) for name, value in full.headers[:5]] == [
        (b"a", b"1"), (b"a", b"2"), (b"\xff", b"\x00"), (b"null", b""), (b"empty", b""),
    ]  # fmt: skip
    assert (tombstone.key, tombstone.value, tombstone.partition) == (b"k1", None, 1)
    assert (none_none.key, none_none.value) == (None, None)
    assert (empty.key, empty.value, empty.timestamp) == (b"", b"", -1)
    assert writer.written == Counter(decided=4, null_headers=1)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", "gzip"])
def test_one_record_that_is_too_large_goes_to_dead_and_all_others_arrive_in_order(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, producers: MakeProducers, compression: str
) -> None:
    source = topic("in", partitions=2)
    sink = sink.model_copy(update={"compression": compression})
    large = os.urandom(5_000)
    writer = BatchWriter(producers(sink), sink, STAMP, source)
    for offset in range(200):
        writer.send(decided(message(offset, large if offset in (30, 31, 150) else b"v", partition=offset % 2)))
    writer.flush()
    rows = written(kafka, sink.decided)
    for partition in (0, 1):
        first_seen = list(dict.fromkeys(offset for at, offset in rows if at == partition))
        expected = [n for n in range(partition, 200, 2) if n not in (30, 31, 150)]
        assert first_seen == expected
    letters = read_all(kafka, sink.dead)
    assert [letter.value for letter in letters] == [large] * 3
    assert {header_value(tuple(letter.headers), "slotstream.error.code") for letter in letters} == {"record_too_large"}
    assert writer.written == Counter(decided=197, dead=3, refused=3)


def test_a_producer_that_a_refusal_killed_is_renewed_for_the_next_batch(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, producers: MakeProducers
) -> None:
    source = topic("in", partitions=2)
    sink = sink.model_copy(update={"compression": "lz4"})
    shared = producers(sink)
    for batch in range(3):
        writer = BatchWriter(shared, sink, STAMP, source)
        writer.send(decided(message(2 * batch, os.urandom(5_000))))
        writer.send(decided(message(2 * batch + 1)))
        writer.flush()
    assert [offset for _, offset in written(kafka, sink.decided)] == [1, 3, 5]
    assert shared.generation == 3


@pytest.mark.usefixtures("apache_kafka")
def test_a_time_stamp_out_of_range_goes_to_dead_with_its_own_code(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, producers: MakeProducers
) -> None:
    source = topic("in", partitions=2)
    writer = BatchWriter(producers(sink), sink, STAMP, source)
    future_ms = NOW_MS + 100 * HOUR_MS  # message.timestamp.after.max.ms is one hour by default, on dead, too
    for offset in range(20):
        writer.send(decided(message(offset, timestamp_ms=future_ms if offset in (7, 8) else NOW_MS)))
    writer.flush()
    assert [offset for _, offset in written(kafka, sink.decided)] == [n for n in range(20) if n not in (7, 8)]
    letters = read_all(kafka, sink.dead)
    for letter in letters:
        headers = tuple(letter.headers)
        assert header_value(headers, "slotstream.error.code") == "timestamp_refused"
        assert header_value(headers, "slotstream.original.timestamp") == str(future_ms)
        assert letter.timestamp < future_ms
    assert writer.written == Counter(decided=18, dead=2, refused=2)


def test_a_record_without_a_key_on_a_compacted_topic_goes_to_dead(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, producers: MakeProducers
) -> None:
    source = topic("in", partitions=2)
    compacted = topic("compacted", partitions=2, configs={"cleanup.policy": "compact"})
    sink = sink.model_copy(update={"decided": compacted})
    writer = BatchWriter(producers(sink), sink, STAMP, source)
    for offset in range(5):
        writer.send(decided(message(offset, key=None if offset == 2 else b"k")))
    writer.flush()
    (letter,) = read_all(kafka, sink.dead)
    assert header_value(tuple(letter.headers), "slotstream.error.code") == "record_refused"
    assert len(read_all(kafka, compacted)) == 4


def test_a_limit_that_was_raised_is_noticed(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, kafka_broker: LocalBroker
) -> None:
    source, now = topic("in", partitions=2), [0.0]
    shared = Producers(kafka, sink, clock=lambda: now[0])
    try:
        for offset in range(2):
            writer = BatchWriter(shared, sink, STAMP, source)
            writer.send(decided(message(offset, b"x" * 5_000)))
            writer.flush()
            with KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap) as admin:
                raised = ConfigResource(ConfigResourceType.TOPIC, sink.decided, {"max.message.bytes": "1000000"})
                admin.alter_configs([raised])
            now[0] += 61
    finally:
        shared.close()
    assert [offset for _, offset in written(kafka, sink.decided)] == [1]
    assert [offset for _, offset in written(kafka, sink.dead)] == [0]


def test_a_letter_too_large_for_dead_goes_without_its_value(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, producers: MakeProducers
) -> None:
    source = topic("in", partitions=2)
    for compression in ("none", "lz4"):
        sink = sink.model_copy(update={"compression": compression})
        value = os.urandom(2_000_000)
        writer = BatchWriter(producers(sink), sink, STAMP, source)
        writer.send(dead_letter(message(0, value), STAMP, DecodeError("bad"), time_ms=NOW_MS))
        writer.flush()
        letter = read_all(kafka, sink.dead)[-1]
        assert (letter.key, letter.value) == (b"k0", b"")
        headers = tuple(letter.headers)
        assert header_value(headers, "slotstream.payload.size") == "2000000"
        assert header_value(headers, "slotstream.payload.sha256") == hashlib.sha256(value).hexdigest()
        assert writer.written == Counter(dead=1, shrunk=1)


def test_a_letter_with_a_giant_key_and_headers_still_arrives(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, producers: MakeProducers
) -> None:
    source = topic("in", partitions=2)
    giant = message(0, os.urandom(600_000), key=os.urandom(600_000), headers=(("own", os.urandom(600_000)),))
    writer = BatchWriter(producers(sink), sink, STAMP, source)
    writer.send(dead_letter(giant, STAMP, DecodeError("bad"), time_ms=NOW_MS))
    writer.flush()
    (letter,) = read_all(kafka, sink.dead)
    assert (letter.key, letter.value, header_value(tuple(letter.headers), "own")) == (None, b"", None)
    assert header_value(tuple(letter.headers), "slotstream.key.size") == "600000"


def test_a_letter_that_dead_cannot_take_at_all_fails_the_batch(
    topic: TopicFactory, sink: SinkConfig, producers: MakeProducers
) -> None:
    source = topic("in", partitions=2)
    tiny = topic("tiny", configs={"max.message.bytes": "300"})
    sink = sink.model_copy(update={"dead": tiny})
    writer = BatchWriter(producers(sink), sink, STAMP, source)
    with pytest.raises(BrokerError, match=r"does not take even a letter without key.*max\.message\.bytes"):
        writer.send(dead_letter(message(0), STAMP, DecodeError("bad"), time_ms=NOW_MS))


def test_other_partition_counts_place_by_key_and_say_so_once(
    kafka: KafkaConfig,
    topic: TopicFactory,
    sink: SinkConfig,
    producers: MakeProducers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = topic("in", partitions=5)
    writer = BatchWriter(producers(sink), sink, STAMP, source)
    for offset in range(100):
        writer.send(decided(message(offset, key=b"k%d" % (offset % 7), partition=offset % 5)))
    for offset in range(100, 110):
        writer.send(decided(message(offset, key=None, partition=3)))
    writer.flush()
    places: dict[bytes | None, set[int]] = {}
    for record in read_all(kafka, sink.decided):
        places.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in places.values())
    assert places[None] == {1}
    assert caplog.text.count("order holds per key only") == 1


@pytest.mark.usefixtures("apache_kafka")
def test_a_topic_that_is_missing_fails_the_batch(topic: TopicFactory, producers: MakeProducers) -> None:
    source = topic("in")
    sink = SinkConfig(decided="missing-1", review="missing-2", dead="missing-3", delivery_timeout_ms=5_000)
    writer = BatchWriter(producers(sink), sink, STAMP, source)
    with pytest.raises(BrokerError, match="missing-1"):
        writer.send(decided(message(0)))


def test_two_bundles_at_once_share_a_producer_and_survive_its_renewal(
    kafka: KafkaConfig, topic: TopicFactory, sink: SinkConfig, producers: MakeProducers
) -> None:
    source = topic("in", partitions=2)
    sink = sink.model_copy(update={"compression": "lz4"})
    shared = producers(sink)
    one, two = (BatchWriter(shared, sink, STAMP, source) for _ in range(2))
    for offset in range(100):
        one.send(decided(message(offset, os.urandom(5_000) if offset == 20 else b"v", partition=0)))
        two.send(decided(message(1000 + offset, partition=1)))
    one.flush()
    two.flush()
    rows = written(kafka, sink.decided)
    assert list(dict.fromkeys(offset for at, offset in rows if at == 0)) == [n for n in range(100) if n != 20]
    assert list(dict.fromkeys(offset for at, offset in rows if at == 1)) == list(range(1000, 1100))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MessageSizeTooLargeError(), "record_too_large"),
        (InvalidTimestampError("Timestamp 9 is out of range"), "timestamp_refused"),
        (InvalidRecordError("no key"), "record_refused"),
    ],
)
def test_a_refusal_has_a_stable_code_and_names_the_topic(error: Exception, code: str) -> None:
    told = refusal(error, "t.decided")
    assert (told.code, told.stage) == (code, "write")
    assert "t.decided" in str(told)
