"""The shared fixtures do what every suite relies on."""

import json
import urllib.request

import pytest
from kafka import KafkaConsumer, KafkaProducer

from deploy.local.broker import LocalBroker
from tests.conftest import TopicFactory


@pytest.mark.broker
def test_a_record_comes_back_from_a_topic_of_the_tests_own(kafka_broker: LocalBroker, topic: TopicFactory) -> None:
    name = topic("in", partitions=1)
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
    producer.send(name, b"value", key=b"key").get(10)
    producer.close()
    consumer = KafkaConsumer(
        name, bootstrap_servers=kafka_broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    record = next(consumer)
    consumer.close()
    assert (record.key, record.value) == (b"key", b"value")


@pytest.mark.broker
def test_a_broker_left_down_by_one_test(kafka_broker: LocalBroker) -> None:
    kafka_broker.kill()
    assert not kafka_broker.running


@pytest.mark.broker
def test_is_up_again_in_the_next(kafka_broker: LocalBroker, topic: TopicFactory) -> None:
    assert kafka_broker.running
    assert topic().startswith("test-is-up-again")


@pytest.mark.registry
def test_the_registry_speaks_confluents_api(schema_registry: str) -> None:
    with urllib.request.urlopen(f"{schema_registry}/subjects") as response:
        assert isinstance(json.load(response), list)


def test_two_topics_of_one_name_differ(topic: TopicFactory) -> None:
    assert topic("in") != topic("in")
