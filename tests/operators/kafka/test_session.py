"""One member of a group on a real broker: where it starts, what it hands out, what it commits."""

from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata, TopicPartition

from deploy.local.broker import LocalBroker
from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.header_keys import RawHeaderKey
from slotstream.operators.kafka.headers import decision_headers
from slotstream.operators.kafka.session import ConsumerSession
from slotstream.operators.kafka.source import CommitNote, SourceConfig
from slotstream.schemas.errors import BrokerError, ConfigError
from slotstream.schemas.record import Message
from tests.conftest import TopicFactory
from tests.operators.kafka.conftest import MemberFactory
from tests.operators.kafka.traffic import STAMP, fill, take_all, until, values

pytestmark = pytest.mark.broker


@pytest.fixture
def admin(kafka_broker: LocalBroker) -> Any:
    with KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap) as admin:
        yield admin


def committed(admin: Any, topic: str, partition: int = 0) -> Any:
    return admin.list_group_offsets(f"group-of-{topic}")[f"group-of-{topic}"].get(TopicPartition(topic, partition))


def test_a_message_comes_as_it_was_sent(topic: TopicFactory, producer: Any, member: MemberFactory) -> None:
    name = topic(partitions=3)
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


def test_a_new_partition_is_found_and_read_from_its_beginning_even_with_start_latest(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic(partitions=1)
    fill(producer, name, 5)
    session = member(name, start="latest", metadata_max_age_ms=1_000)
    until(lambda: session.wait(200) or session.assigned)
    fill(producer, name, 2, first=5)
    assert values(take_all(session, 2)) == [5, 6]
    session.commit(session.positions())
    admin.create_partitions({name: 2})
    producer.partitions_for(name)
    with KafkaProducer(bootstrap_servers=producer.config["bootstrap_servers"]) as fresh:
        fresh.send(name, b"7", partition=1).get(10)
        fresh.send(name, b"8", partition=1).get(10)
    assert values(take_all(session, 2)) == [7, 8]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({"start": "earliest"}, [0, 1, 2, 3, 4, 5]),
        ({"start": "latest"}, [4, 5]),
        ({"start": "timestamp", "start_timestamp_ms": 1002}, [2, 3, 4, 5]),
        ({"start": "timestamp", "start_timestamp_ms": 99_999_999_999_999}, [4, 5]),
    ],
)
def test_a_group_without_commits_starts_where_it_is_told(
    topic: TopicFactory, producer: Any, member: MemberFactory, start: dict[str, Any], expected: list[int]
) -> None:
    name = topic()
    for n in range(4):
        producer.send(name, b"%d" % n, timestamp_ms=1000 + n).get(10)
    session = member(name, **start)
    session.wait(0)
    fill(producer, name, 2, first=4)
    assert values(take_all(session, len(expected))) == expected


def test_a_start_at_latest_survives_a_stop_before_the_first_record(
    topic: TopicFactory, producer: Any, member: MemberFactory
) -> None:
    name = topic(partitions=2)
    fill(producer, name, 4, partitions=2)
    first = member(name, start="latest")
    until(lambda: first.wait(200) or first.assigned)
    first.close()
    fill(producer, name, 4, partitions=2, first=4)
    assert sorted(values(take_all(member(name, start="latest"), 4))) == [4, 5, 6, 7]


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


def test_compacted_gaps_and_deleted_records_leave_no_lag(
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


def test_an_offset_that_left_the_log_stops_with_what_to_do(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 20)
    first = member(name)
    take_all(first, 5)
    first.commit(first.positions())
    first.close()
    admin.delete_records({TopicPartition(name, 0): 12})
    with pytest.raises(ConfigError, match=r"no longer in the log.*on_out_of_range"):
        take_all(stopped := member(name), 1)
    stopped.close()
    assert values(take_all(member(name, on_out_of_range="earliest"), 8)) == list(range(12, 20))


def test_an_offset_that_left_the_log_can_mean_go_on_at_the_end(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 20)
    first = member(name)
    take_all(first, 5)
    first.commit(first.positions())
    first.close()
    admin.delete_records({TopicPartition(name, 0): 12})
    session = member(name, on_out_of_range="latest")
    until(lambda: session.wait(200) or session.caught_up({TopicPartition(name, 0): 20}))
    fill(producer, name, 2, first=20)
    assert values(take_all(session, 2)) == [20, 21]


def test_a_commit_for_an_earlier_topic_of_that_name_stops_the_run(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 20)
    _commit_of_an_earlier_topic(admin, name, 5)
    with pytest.raises(ConfigError, match=r"deleted and made again.*on_topic_recreated"):
        take_all(member(name), 1)


def test_a_topic_made_again_can_be_read_from_its_beginning(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 20)
    _commit_of_an_earlier_topic(admin, name, 5)
    session = member(name, on_topic_recreated="earliest")
    assert values(take_all(session, 20)) == list(range(20))
    session.commit(session.positions())
    session.close()
    assert member(name).wait(2_000) == 0


def _commit_of_an_earlier_topic(admin: Any, name: str, offset: int) -> None:
    """Kafka 4 deletes the commits with the topic; older coordinators, and restored ones, keep them."""
    note = str(CommitNote("11111111-2222-3333-4444-555555555555"))
    admin.alter_group_offsets(f"group-of-{name}", {TopicPartition(name, 0): OffsetAndMetadata(offset, note, -1)})


@pytest.mark.usefixtures("apache_kafka")
def test_a_topic_made_again_under_a_running_member_is_noticed(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 10)
    session = member(name, metadata_max_age_ms=1_000)
    take_all(session, 5)
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics())
    until(lambda: _created(admin, name))
    with KafkaProducer(bootstrap_servers=producer.config["bootstrap_servers"]) as fresh:
        fill(fresh, name, 20)
    with pytest.raises(ConfigError, match="deleted and made again"):
        until(lambda: session.wait(200) > 100)
    with pytest.raises(ConfigError, match="deleted and made again"):
        session.commit(session.positions())


def _created(admin: Any, name: str) -> bool:
    try:
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    except TopicAlreadyExistsError:  # its deletion is still under way
        return False
    return True


def test_a_topic_that_does_not_exist_is_named(member: MemberFactory) -> None:
    with pytest.raises(ConfigError, match="no-such-topic does not exist"):
        member("no-such-topic").wait(0)


def test_a_broker_that_is_not_there_is_a_broker_error() -> None:
    nobody = KafkaConfig(bootstrap_servers="127.0.0.1:1", connect_timeout_ms=1_000)
    with pytest.raises(BrokerError, match=r"connecting to 127\.0\.0\.1:1"):
        ConsumerSession(nobody, SourceConfig(topic="t", group="g")).wait(0)


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


def test_commits_of_another_program_are_gone_on_from(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 6)
    admin.alter_group_offsets(f"group-of-{name}", {TopicPartition(name, 0): OffsetAndMetadata(4, "mine", -1)})
    assert values(take_all(member(name), 2)) == [4, 5]


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
