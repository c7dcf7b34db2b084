"""What the Kafka suites do to topics: fill them, read them through a session, copy a batch, read all of one."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from kafka.structs import TopicPartition

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.headers import Stamp, decision_headers, identity_of
from slotstream.operators.kafka.rows import records_of
from slotstream.operators.kafka.session import ConsumerSession
from slotstream.operators.kafka.sink import Outgoing
from slotstream.operators.kafka.writer import BatchWriter
from slotstream.schemas.errors import BrokerError
from slotstream.schemas.record import Message

STAMP = Stamp(schema_hash="cafe", group="labels", version="0.1.0")


def fill(producer: Any, topic: str, count: int, *, partitions: int = 1, first: int = 0) -> None:
    """Records `b"0"`, `b"1"`, ... in turns over the partitions; returns when they are there."""
    sent = [
        producer.send(topic, b"%d" % n, key=b"k%d" % n, partition=n % partitions) for n in range(first, first + count)
    ]
    for future in sent:
        future.get(timeout=20)


def take_all(session: ConsumerSession, count: int, *, timeout_s: float = 20) -> list[Message]:
    """Take, without committing, until `count` messages came."""
    until, taken = time.monotonic() + timeout_s, list[Message]()
    while len(taken) < count:
        assert time.monotonic() < until, f"{len(taken)} of {count} messages came in {timeout_s} s"
        session.wait(200)
        taken += session.take(count - len(taken))
    return taken


def until(what: Callable[[], object], *, timeout_s: float = 30) -> None:
    """Call it again and again until it is true."""
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, "it did not become true in time"


def values(messages: Sequence[Message]) -> list[int]:
    return [int(message.value or b"-1") for message in messages]


def decided(message: Message) -> Outgoing:
    """The message as a decided record with its value unchanged."""
    return Outgoing("decided", message, message.value, decision_headers(message, STAMP))


def copy_batch(session: ConsumerSession, writer: BatchWriter, max_records: int = 1_000_000) -> int:
    """Write what is ready to `decided`, wait for it, and commit."""
    messages = session.take(max_records)
    for message in messages:
        writer.send(decided(message))
    writer.flush()
    session.commit(session.positions())
    return len(messages)


def read_all(kafka: KafkaConfig, topic: str) -> list[Any]:
    return list(records_of(kafka, topic))


def in_order(kafka: KafkaConfig, topic: str) -> bool:
    """Whether the first copies of the records rise in their source's offsets, per partition."""
    seen: dict[int, list[int]] = {}
    for record in records_of(kafka, topic):
        identity = identity_of(tuple(record.headers))
        assert identity is not None
        assert identity.origin.partition == record.partition
        seen.setdefault(record.partition, []).append(identity.origin.offset)
    return all(list(dict.fromkeys(offsets)) == sorted(set(offsets)) for offsets in seen.values())


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


class Copying:
    """A member that copies the topic to `decided` on a thread of its own until it is stopped."""

    def __init__(self, session: ConsumerSession, make_writer: Callable[[], BatchWriter], max_records: int = 50) -> None:
        self.session = session
        self.copied = 0
        self.failed: BaseException | None = None
        self.broker_errors = 0
        self._make_writer = make_writer
        self._max_records = max_records
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)
        assert self.failed is None, self.failed

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    if self.session.wait(100):
                        self.copied += copy_batch(self.session, self._make_writer(), self._max_records)
                except BrokerError:
                    self.broker_errors += 1
                    self.session.rewind()
                    time.sleep(0.2)
        except BaseException as error:
            self.failed = error
        finally:
            self.session.close(timeout_ms=2_000)
