"""A real broker with sessions, writers and readers around it; everything that a test opens is closed behind it."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from deploy.local.broker import LocalBroker
from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.producers import Producers, close_producers
from slotstream.operators.kafka.session import ConsumerSession, close_sessions
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig


class MemberFactory(Protocol):
    """Makes a session of the topic, in the group named after it."""

    def __call__(self, topic: str, **settings: Any) -> ConsumerSession: ...


@pytest.fixture
def kafka(kafka_broker: LocalBroker) -> KafkaConfig:
    return KafkaConfig(bootstrap_servers=kafka_broker.bootstrap, request_timeout_ms=10_000)


@pytest.fixture
def admin(kafka_broker: LocalBroker) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def apache_kafka(kafka_broker: LocalBroker) -> None:
    """Skips what noida-db cannot do."""
    if kafka_broker.kind != "apache":
        pytest.skip("noida-db lacks topic ids, limits and some topic settings, and its groups do not rebalance soundly")


@pytest.fixture
def producer(kafka_broker: LocalBroker) -> Iterator[Any]:
    """A plain kafka-python producer that takes 20 MB records and refuses nothing itself."""
    producer = KafkaProducer(
        bootstrap_servers=kafka_broker.bootstrap, enable_idempotence=False, max_request_size=20 << 20
    )
    yield producer
    producer.close(timeout=5)


@pytest.fixture
def member(kafka: KafkaConfig) -> Iterator[MemberFactory]:
    sessions: list[ConsumerSession] = []

    def join(topic: str, **settings: Any) -> ConsumerSession:
        settings = {"session_timeout_ms": 6_000, "group": f"group-of-{topic}"} | settings
        sessions.append(ConsumerSession(kafka, SourceConfig(topic=topic, **settings)))
        return sessions[-1]

    yield join
    for session in sessions:
        session.close(timeout_ms=2_000)
    close_sessions()


@pytest.fixture
def producers(kafka: KafkaConfig) -> Iterator[Callable[[SinkConfig], Producers]]:
    made: list[Producers] = []

    def make(sink: SinkConfig) -> Producers:
        made.append(Producers(kafka, sink))
        return made[-1]

    yield make
    for one in made:
        one.close()
    close_producers()
