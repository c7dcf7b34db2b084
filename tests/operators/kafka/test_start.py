"""Where a member starts, and what it does when the topic or its commits are not what they were."""

from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata, TopicPartition

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.session import ConsumerSession
from slotstream.operators.kafka.source import CommitNote, SourceConfig
from slotstream.schemas.errors import BrokerError, ConfigError
from tests.conftest import TopicFactory
from tests.operators.kafka.conftest import MemberFactory
from tests.operators.kafka.traffic import fill, take_all, until, values

pytestmark = pytest.mark.broker


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


def test_a_rebalance_is_finished_by_polls_that_are_shorter_than_a_join(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic(partitions=1)
    session = member(name, metadata_max_age_ms=1_000)
    until(lambda: session.wait(200) or session.assigned)
    admin.create_partitions({name: 2})
    until(lambda: session.wait(0) or len(session.assigned) == 2, timeout_s=15)
    session.check_member()


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
    name = topic(configs={"retention.ms": "-1"})
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


def test_a_beginning_that_moves_before_the_first_record_came_stops_nothing(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 20)
    session = member(name)
    until(lambda: session.wait(200))
    admin.delete_records({TopicPartition(name, 0): 12})
    session._reader._consumer.seek(TopicPartition(name, 0), 0)  # as if the first fetch came only now
    until(lambda: session.wait(200) == 8)
    assert values(session.take(100)) == list(range(12, 20))


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


def test_commits_of_another_program_are_gone_on_from(
    topic: TopicFactory, producer: Any, member: MemberFactory, admin: Any
) -> None:
    name = topic()
    fill(producer, name, 6)
    admin.alter_group_offsets(f"group-of-{name}", {TopicPartition(name, 0): OffsetAndMetadata(4, "mine", -1)})
    assert values(take_all(member(name), 2)) == [4, 5]
