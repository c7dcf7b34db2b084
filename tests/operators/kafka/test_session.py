"""One member of a group on a real broker: what it hands out, and what it commits."""

from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.structs import TopicPartition

from deploy.local.broker import LocalBroker
from slotstream.operators.kafka.header_keys import RawHeaderKey
from slotstream.operators.kafka.headers import decision_headers
from slotstream.operators.kafka.source import CommitNote
from slotstream.schemas.errors import BrokerError
from slotstream.schemas.record import Message
from tests.conftest import TopicFactory
from tests.operators.kafka.conftest import MemberFactory
from tests.operators.kafka.traffic import STAMP, fill, take_all, until, values

pytestmark = pytest.mark.broker


def committed(admin: Any, topic: str, partition: int = 0) -> Any:
    return admin.list_group_offsets(f"group-of-{topic}")[f"group-of-{topic}"].get(TopicPartition(topic, partition))


def test_a_message_comes_as_it_was_sent(topic: TopicFactory, producer: Any, member: MemberFactory) -> None:
    name = topic(partitions=3, configs={"retention.ms": "-1"})
    headers = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("ключ", b"\xff\x00")]
    producer.send(name, b"\x00\xffvalue", key=b"\x00key", headers=headers, partition=2, timestamp_ms=1234).get(10)
    producer.send(name, None, key=b"gone", partition=2, timestamp_ms=0).get(10)
    producer.send(name, b"", partition=2, timestamp_ms=5).get(10)
    session = member(name)
    first, tombstone, empty = take_all(session, 3)
    assert (first.key, first.value, first.headers) == (b"\x00key", b"\x00\xffvalue", tuple(headers))
    assert (first.timestamp_ms, first.timestamp_type, first.attempt) == (1234, 0, 1)
    assert (first.origin.topic, first.origin.partition, first.origin.offset) == (name, 2, 0)
    assert first.origin.topic_id
    assert (tombstone.key, tombstone.value, tombstone.timestamp_ms) == (b"gone", None, 0)
    assert (empty.key, empty.value) == (None, b"")


def test_committed_records_are_not_read_again(topic: TopicFactory, producer: Any, member: MemberFactory) -> None:
    name = topic()
    fill(producer, name, 10)
    first = member(name)
    assert values(take_all(first, 10)) == list(range(10))
    first.commit(first.positions())
    first.close()
    fill(producer, name, 5, first=10)
    assert values(take_all(member(name), 5)) == [10, 11, 12, 13, 14]


def test_uncommitted_records_come_again_after_rewind_and_in_order(
    topic: TopicFactory, producer: Any, member: MemberFactory
) -> None:
    name = topic(partitions=2)
    fill(producer, name, 40, partitions=2)
    session = member(name)
    taken = take_all(session, 10)
    session.commit(session.positions())
    take_all(session, 10)
    session.rewind()
    rest = take_all(session, 30)
    for partition in (0, 1):
        offsets = [m.origin.offset for m in (*taken, *rest) if m.origin.partition == partition]
        assert offsets == list(range(20))


def test_the_position_is_committed_behind_transaction_markers(
    topic: TopicFactory, kafka_broker: LocalBroker, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    with KafkaProducer(bootstrap_servers=kafka_broker.bootstrap, transactional_id=f"tx-{name}") as tx:
        tx.init_transactions()
        for aborted in (False, True, False, True):
            tx.begin_transaction()
            tx.send(name, b"bad" if aborted else b"1", partition=0).get(10)
            if aborted:
                tx.abort_transaction()
            else:
                tx.commit_transaction()
    session = member(name)
    ends = session.end_offsets()
    assert ends == {TopicPartition(name, 0): 8}
    assert values(take_all(session, 2)) == [1, 1]
    session.commit(session.positions())
    until(lambda: session.wait(100) or session.caught_up(ends))
    assert committed(admin, name).offset == 8


def test_an_open_transaction_is_waited_for_and_not_skipped(
    topic: TopicFactory, kafka_broker: LocalBroker, producer: Any, member: MemberFactory
) -> None:
    name = topic()
    with KafkaProducer(bootstrap_servers=kafka_broker.bootstrap, transactional_id=f"tx-{name}") as tx:
        tx.init_transactions()
        tx.begin_transaction()
        tx.send(name, b"0", partition=0).get(10)
        fill(producer, name, 2, first=1)
        session = member(name)
        assert session.end_offsets() == {TopicPartition(name, 0): 0}
        until(lambda: session.wait(100) or session.assigned)
        assert session.wait(300) == 0
        tx.commit_transaction()
        assert values(take_all(session, 3)) == [0, 1, 2]


def test_records_deleted_from_the_log_leave_no_lag(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 20)
    admin.delete_records({TopicPartition(name, 0): 12})
    session = member(name)
    ends = session.end_offsets()
    assert values(take_all(session, 8)) == list(range(12, 20))
    session.commit(session.positions())
    assert session.caught_up(ends)


def test_redriven_records_keep_their_origin_and_forged_headers_on_the_input_do_not_count(
    topic: TopicFactory, producer: Any, member: MemberFactory, kafka_broker: LocalBroker
) -> None:
    name = topic()
    kafka_broker.create_topics({f"{name}.redrive": 1})
    fill(producer, name, 1)
    session = member(name)
    (first,) = take_all(session, 1)
    ours = [(key, value or b"") for key, value in decision_headers(first, STAMP)]
    forged = [(key, value.replace(b"@0", b"@77").replace(b":0:cafe", b":77:cafe")) for key, value in ours]
    producer.send(f"{name}.redrive", b"1", key=b"k", headers=[*ours, ("__connect.errors.topic", b"x")]).get(10)
    producer.send(name, b"2", headers=forged).get(10)
    again, plain = sorted(take_all(session, 2), key=lambda message: message.value or b"")
    assert (again.origin, again.attempt, again.headers) == (first.origin, 2, ())
    assert (plain.origin.offset, plain.attempt) == (1, 1)
    session.commit(session.positions())
    assert session.caught_up(session.end_offsets())


def test_a_header_key_that_is_no_utf8_stops_nothing(topic: TopicFactory, producer: Any, member: MemberFactory) -> None:
    name = topic()
    producer.send(name, b"0").get(10)
    producer.send(name, b"1", headers=[(RawHeaderKey(b"\xff\xfe"), b"x")]).get(10)
    fill(producer, name, 3, first=2)
    messages = take_all(member(name), 5)
    assert values(messages) == [0, 1, 2, 3, 4]
    assert messages[1].headers[0][0].encode("utf-8") == b"\xff\xfe"


def test_large_records_come_whole(topic: TopicFactory, producer: Any, member: MemberFactory) -> None:
    name = topic(configs={"max.message.bytes": "20000000"})
    producer.send(name, b"x" * 5_000_000).get(10)
    producer.send(name, b"1").get(10)
    assert [len(message.value or b"") for message in take_all(member(name), 2)] == [5_000_000, 1]


def test_the_engines_deaths_at_an_offset_are_remembered_over_a_restart(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 10)
    first = member(name)
    take_all(first, 4)
    first.commit(first.positions())
    take_all(first, 2)
    assert (first.count_engine_death(), first.count_engine_death()) == (1, 2)
    assert CommitNote.read(committed(admin, name).metadata) == CommitNote(
        take_all(first, 1)[0].origin.topic_id, engine_deaths=2
    )
    first.close()
    second = member(name)
    assert values(take_all(second, 3)) == [4, 5, 6]
    assert second.engine_deaths() == 2
    second.commit(second.positions())
    assert second.engine_deaths() == 0


def test_nothing_is_handed_out_twice_when_little_fits_in_the_buffer(
    topic: TopicFactory, producer: Any, member: MemberFactory
) -> None:
    name = topic(partitions=2)
    fill(producer, name, 100, partitions=2)
    session = member(name, max_buffered_records=7)
    messages: list[Message] = []
    while len(messages) < 100:
        got = session.poll(3, 5_000)
        assert 0 < len(got) <= 3 or not session.assigned
        messages += got
    assert sorted(values(messages)) == list(range(100))


@pytest.mark.usefixtures("apache_kafka")
def test_large_records_are_held_ready_only_up_to_a_size(
    topic: TopicFactory, producer: Any, member: MemberFactory
) -> None:
    name = topic(configs={"max.message.bytes": "20000000"})
    for _ in range(20):
        producer.send(name, b"x" * 1_000_000).get(10)
    session = member(name, max_buffered_bytes=3_000_000)
    held: list[int] = []
    while sum(held) < 20:
        until(lambda: session.wait(200))
        held.append(len(session.take(100)))
        session.commit(session.positions())
    assert max(held) <= 5


def test_finding_the_coordinator_again_does_not_make_a_stalled_process_a_member(
    topic: TopicFactory, member: MemberFactory
) -> None:
    session = member(topic(), session_timeout_ms=30_000)
    until(lambda: session.wait(200) or session.assigned)
    session.check_member()
    heartbeat = session._reader._consumer._coordinator.heartbeat
    session._reader._member_since -= 60
    heartbeat.last_receive -= 60
    heartbeat.reset_timeouts()
    with pytest.raises(BrokerError, match="no heartbeat"):
        session.check_member()
