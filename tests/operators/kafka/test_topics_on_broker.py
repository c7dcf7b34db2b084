"""Topics on a real broker: what the check sees, and topics that are made."""

from typing import Any

import pytest

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.topics import check_topics, create_topics
from slotstream.schemas.errors import BrokerError
from tests.conftest import TopicFactory

pytestmark = pytest.mark.broker


def test_sound_topics_pass_and_missing_ones_are_named(kafka: KafkaConfig, topic: TopicFactory, producer: Any) -> None:
    source = SourceConfig(topic=topic("in", partitions=2), group="g")
    producer.send(source.topic, b"x").get(10)
    sink = SinkConfig(decided=topic("decided", partitions=2), review=topic("review", partitions=2), dead=topic("dead"))
    assert [finding.level for finding in check_topics(kafka, source, sink)] == ["ok"] * 4
    missing = sink.model_copy(update={"review": "not-there"})
    (error,) = [finding for finding in check_topics(kafka, source, missing) if finding.level == "error"]
    assert (error.subject, error.advice) == (
        "topic not-there",
        "create it: kafka-topics.sh --create --topic not-there --partitions 2",
    )


@pytest.mark.usefixtures("apache_kafka")
def test_the_brokers_own_settings_are_judged(kafka: KafkaConfig, topic: TopicFactory, producer: Any) -> None:
    source = SourceConfig(topic=topic("in"), group="g")
    producer.send(source.topic, b"x", timestamp_ms=1_000).get(10)
    short = {"retention.ms": "3600000", "max.message.bytes": "1000"}
    sink = SinkConfig(decided=topic("decided", configs=short), review=topic("review"), dead=topic("dead", partitions=2))
    warnings = [finding for finding in check_topics(kafka, source, sink) if finding.level == "warning"]
    assert sum("deleted right after writing" in finding.message for finding in warnings) == 3
    assert [f.subject for f in warnings if "larger records go to dead" in f.message] == [f"topic {sink.decided}"]


def test_only_missing_topics_are_created(kafka: KafkaConfig, topic: TopicFactory) -> None:
    there = topic("there", partitions=2)
    assert create_topics(kafka, {there: 2, f"{there}-new": 3}) == [f"{there}-new"]
    assert create_topics(kafka, {f"{there}-new": 3}) == []


def test_a_cluster_that_does_not_answer_is_a_broker_error() -> None:
    nobody = KafkaConfig(bootstrap_servers="127.0.0.1:1", connect_timeout_ms=1_000)
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"):
        check_topics(nobody, SourceConfig(topic="t", group="g"), SinkConfig(decided="a", review="b", dead="c"))
