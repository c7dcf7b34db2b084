"""Streams of their own for the tests that need a real broker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.broker import LocalBroker
from tests.conftest import TopicFactory
from tests.pipelines.stream import Stream

StreamFactory = Callable[..., Stream]


@pytest.fixture
def sound_groups(kafka_broker: LocalBroker) -> None:
    """Skips where a consumer group does not survive its members."""
    if kafka_broker.kind != "apache":
        pytest.skip("noida-db keeps a killed member in its group for ever, and its groups do not rebalance soundly")


@pytest.fixture
def stream(tmp_path: Path, kafka_broker: LocalBroker, topic: TopicFactory) -> Iterator[StreamFactory]:
    """`stream(partitions=2, questions={...}, settings={...})` makes topics and configuration; processes end with it."""
    made: list[Stream] = []

    def make(**wishes: Any) -> Stream:
        folder = tmp_path / f"stream-{len(made)}"
        made.append(Stream(folder, kafka_broker.bootstrap, topic, **wishes))
        return made[-1]

    yield make
    for each in made:
        each.close()
