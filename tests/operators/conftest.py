"""Fixtures of the operators' suites."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slotstream.operators.engines import host
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import Engine
from slotstream.operators.plan import ReadPlan
from slotstream.operators.testing import InstantEngine
from slotstream.operators.tokens import PlanTokenizer
from tests.examples import LoadEngines, example_plan
from tests.tiny_tokenizer import tiny_tokenizer, write_tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PlanTokenizer:
    """The tiny tokenizer: every mark is one token, nothing is missing."""
    return PlanTokenizer(tiny_tokenizer())


@pytest.fixture(scope="session")
def plan() -> ReadPlan:
    """One question of each type about the field `text`, one canvas."""
    return example_plan()


@pytest.fixture
def instant_config(tmp_path: Path) -> Iterator[EngineConfig]:
    """An instant engine whose checkpoint folder holds a tokenizer and nothing else; discarded after the test.

    Its bound is so small that no record waits for others before its reads start.
    """
    folder = write_tiny_tokenizer(tmp_path / "checkpoint")
    config = EngineConfig(kind="instant", model=str(folder), read_timeout_s=0.5, max_in_flight=7)
    yield config
    host.discard(config)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> LoadEngines:
    """`engines(make)` makes the process load what `make()` returns, and returns the list of what it has loaded."""

    def load(make: Callable[[], Engine] = InstantEngine) -> list[Engine]:
        loaded: list[Engine] = []

        def open_engine(_: EngineConfig) -> Engine:
            loaded.append(make())
            return loaded[-1]

        monkeypatch.setattr(host, "open_engine", open_engine)
        return loaded

    return load
