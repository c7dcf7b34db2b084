"""Members of one group share the topic, come, go, stall and die, and so does the broker: nothing is lost."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.local.broker import LocalBroker
from slotstream.operators.audit import Audit
from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.producers import Producers
from slotstream.operators.kafka.rows import audit_topics
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.writer import BatchWriter
from tests.conftest import TopicFactory
from tests.operators.kafka.conftest import MemberFactory
from tests.operators.kafka.traffic import STAMP, Copying, fill, in_order, take_all, until, values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("apache_kafka")]
PARTITIONS = 4


@pytest.fixture
def source(topic: TopicFactory) -> str:
    return topic("in", partitions=PARTITIONS)


@pytest.fixture
def sink(topic: TopicFactory) -> SinkConfig:
    return SinkConfig(decided=topic("decided", partitions=PARTITIONS), review=topic("review"), dead=topic("dead"))


@pytest.fixture
def writers(source: str, sink: SinkConfig, producers: Callable[[SinkConfig], Producers]) -> Callable[[], BatchWriter]:
    shared = producers(sink)
    return lambda: BatchWriter(shared, sink, STAMP, source)


@pytest.fixture
def audited(kafka: KafkaConfig, source: str, sink: SinkConfig) -> Callable[[], Audit]:
    return lambda: audit_topics(kafka, SourceConfig(topic=source, group=f"group-of-{source}"), sink)


def test_two_members_share_the_partitions_and_a_third_of_them_moves_without_a_copy(
    source: str,
    producer: Any,
    member: MemberFactory,
    writers: Callable[[], BatchWriter],
    audited: Callable[[], Audit],
) -> None:
    fill(producer, source, 400, partitions=PARTITIONS)
    with Copying(member(source), writers) as one:
        until(lambda: one.copied >= 100)
        with Copying(member(source), writers) as two:
            until(lambda: len(one.session.assigned) == len(two.session.assigned) == 2)
            fill(producer, source, 400, partitions=PARTITIONS, first=400)
            until(lambda: one.copied + two.copied >= 800)
            assert two.copied >= 100
            assert not one.session.assigned & two.session.assigned
        until(lambda: len(one.session.assigned) == PARTITIONS)
        fill(producer, source, 100, partitions=PARTITIONS, first=800)
        until(lambda: one.copied + two.copied >= 900)
    found = audited()
    assert (found.read, found.sound, found.copies, found.ahead) == (900, True, 0, ())
    assert one.broker_errors + two.broker_errors == 0


def test_a_partition_in_flight_moves_only_when_it_is_committed(
    source: str, producer: Any, member: MemberFactory
) -> None:
    """Where batches overlap polling (an unbounded runner): one thread polls, another commits."""
    fill(producer, source, 40, partitions=PARTITIONS)
    one, two = member(source), member(source)
    messages = take_all(one, 40)
    positions = one.positions()
    polling = threading.Event()
    first_poller = threading.Thread(target=lambda: [one.wait(100) for _ in iter(polling.is_set, True)])
    second_poller = threading.Thread(target=lambda: [two.wait(100) for _ in iter(polling.is_set, True)])
    first_poller.start()
    second_poller.start()
    try:
        until(lambda: one._reader.rebalance.leaving, timeout_s=10)
        assert not two.assigned
        one.commit(positions)
        until(lambda: len(two.assigned) == 2, timeout_s=4)
        assert two.take(100) == []
        assert sorted(values(messages)) == list(range(40))
    finally:
        polling.set()
        first_poller.join()
        second_poller.join()


def test_a_partition_whose_batch_takes_too_long_is_read_again_by_its_new_owner(
    source: str, producer: Any, member: MemberFactory
) -> None:
    fill(producer, source, 40, partitions=PARTITIONS)
    one, two = member(source, release_wait_ms=300), member(source)
    take_all(one, 40)
    late = one.positions()
    polling = threading.Event()
    pollers = [
        threading.Thread(target=lambda session=session: [session.wait(100) for _ in iter(polling.is_set, True)])
        for session in (one, two)
    ]
    for poller in pollers:
        poller.start()
    try:
        until(lambda: len(two.assigned) == 2)
        again = take_all_ready(two, 20)
        one.commit(late)  # its own two partitions only
        assert {message.origin.partition for message in again} == {at.partition for at in two.assigned}
        assert sorted(m.origin.offset for m in again) == sorted([*range(10), *range(10)])
    finally:
        polling.set()
        for poller in pollers:
            poller.join()
    two.close()
    one.close()
    rest = take_all(member(source), 20)
    assert {message.origin.partition for message in rest} == {message.origin.partition for message in again}


def take_all_ready(session: Any, count: int) -> list[Any]:
    taken: list[Any] = []

    def enough() -> bool:
        taken.extend(session.take(count))
        return len(taken) >= count

    until(enough)
    return taken


@pytest.mark.slow
def test_a_process_that_was_stopped_too_long_writes_nothing_and_joins_again(
    *,
    source: str,
    sink: SinkConfig,
    producer: Any,
    kafka_broker: LocalBroker,
    member: MemberFactory,
    writers: Callable[[], BatchWriter],
    audited: Callable[[], Audit],
) -> None:
    fill(producer, source, 40, partitions=PARTITIONS)
    script = Path(__file__).with_name("stopped_member.py")
    command = [sys.executable, str(script), kafka_broker.bootstrap, source, sink.decided, sink.review, sink.dead]
    stopped = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert stopped.stdin is not None
    assert stopped.stdout is not None
    try:
        assert stopped.stdout.readline() == "took 20\n"
        stopped.send_signal(signal.SIGSTOP)
        with Copying(member(source), writers) as other:
            until(lambda: other.copied >= 40)
            stopped.stdin.write("\n")
            stopped.stdin.flush()
            stopped.send_signal(signal.SIGCONT)
            assert stopped.stdout.readline().startswith("refused itself: no")
            assert stopped.stdout.readline() == "member again\n"
            assert stopped.wait(timeout=20) == 0
    finally:
        stopped.kill()
        stopped.communicate()
    found = audited()
    assert (found.read, found.sound, found.copies) == (40, True, 0)


@pytest.mark.slow
def test_a_broker_that_is_killed_and_restarted_costs_time_and_no_record(
    *,
    kafka: KafkaConfig,
    source: str,
    sink: SinkConfig,
    producer: Any,
    kafka_broker: LocalBroker,
    member: MemberFactory,
    writers: Callable[[], BatchWriter],
    audited: Callable[[], Audit],
) -> None:
    fill(producer, source, 2_000, partitions=PARTITIONS)
    with Copying(member(source), writers) as one:
        until(lambda: one.copied >= 200)
        kafka_broker.kill()
        time.sleep(1)
        kafka_broker.restart()
        until(lambda: audited().read == 2_000, timeout_s=90)
    found = audited()
    assert found.sound
    assert found.folded == 2_000
    assert in_order(kafka, sink.decided)


def test_a_member_that_dies_without_a_word_leaves_its_records_to_the_others(
    source: str, producer: Any, kafka: KafkaConfig, member: MemberFactory
) -> None:
    fill(producer, source, 40, partitions=PARTITIONS)
    dead = member(source)
    take_all(dead, 30)
    # What kill -9 leaves: a member that says nothing more, and nothing committed.
    dead._reader._consumer._coordinator._heartbeat_closed = True
    dead._reader._consumer._client.close()
    heir = member(source)
    assert sorted(values(take_all(heir, 40, timeout_s=40))) == list(range(40))
