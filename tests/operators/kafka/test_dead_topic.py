"""The dead topic is read whole, or one letter of it by its place, and a long read tells how far it is."""

import logging
from typing import Any

import pytest
from kafka.structs import TopicPartition

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.dead_topic import letter_at, letters_of, told_as_it_goes
from slotstream.schemas.errors import BrokerError, ConfigError
from tests.conftest import TopicFactory
from tests.operators.kafka.traffic import fill


@pytest.mark.broker
def test_all_letters_are_read_partition_after_partition(kafka: KafkaConfig, producer: Any, topic: TopicFactory) -> None:
    name = topic("dead", partitions=3)
    fill(producer, name, 30, partitions=3)
    assert [letter.place for letter in letters_of(kafka, name)] == [
        f"{name}[{partition}]@{offset}" for partition in range(3) for offset in range(10)
    ]
    assert list(letters_of(kafka, topic("empty"))) == []
    with pytest.raises(BrokerError, match="does not exist"):
        list(letters_of(kafka, "no-such-topic"))


@pytest.mark.broker
def test_one_letter_is_found_by_its_place(kafka: KafkaConfig, producer: Any, topic: TopicFactory) -> None:
    name = topic("dead", partitions=2)
    fill(producer, name, 20, partitions=2)
    found = letter_at(kafka, name, 1, 4)
    assert found is not None
    assert (found.value, found.place) == (b"9", f"{name}[1]@4")
    assert letter_at(kafka, name, 1, 10) is None
    with pytest.raises(ConfigError, match=r"has 2 partitions, counted from 0, and no 2"):
        letter_at(kafka, name, 2, 0)
    with pytest.raises(ConfigError, match=r"has 0 partitions"):
        letter_at(kafka, "no-such-topic", 0, 0)


@pytest.mark.broker
def test_a_place_whose_record_was_deleted_has_no_letter(
    kafka: KafkaConfig, producer: Any, admin: Any, topic: TopicFactory, apache_kafka: None
) -> None:
    name = topic("dead")
    fill(producer, name, 10)
    admin.delete_records({TopicPartition(name, 0): 5})
    assert letter_at(kafka, name, 0, 4) is None
    assert letter_at(kafka, name, 0, 5) is not None
    assert len(list(letters_of(kafka, name))) == 5


def test_a_long_read_tells_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    seconds = iter([0.0, 1.0, 6.0, 7.0, 12.0, *[13.0] * 9])
    with caplog.at_level(logging.INFO):
        assert list(told_as_it_goes(iter(range(5)), "records of dead read", lambda: next(seconds))) == [0, 1, 2, 3, 4]
    assert caplog.messages == ["2 records of dead read", "3 records of dead read"]
