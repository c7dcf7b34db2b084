"""One warm engine a process: loading once, failing, discarding, closing."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from slotstream.operators.engines import host
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.probe import default_probe
from slotstream.operators.engines.protocol import Engine
from slotstream.operators.testing import InstantEngine
from slotstream.schemas.errors import EngineError

CONFIG = EngineConfig(kind="instant")


class Closing(InstantEngine):
    closed = 0

    def close(self) -> None:
        super().close()
        self.closed += 1


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(host, "_engines", {})
    yield
    host.close_all()


def test_a_configuration_is_loaded_once() -> None:
    loads: list[EngineConfig] = []

    def factory(config: EngineConfig) -> Engine:
        loads.append(config)
        return InstantEngine()

    first = host.engine_for(CONFIG, factory)
    assert host.engine_for(CONFIG.model_copy(update={"max_in_flight": 1}), factory) is first
    assert loads == [CONFIG]


def test_another_configuration_gets_another_engine() -> None:
    first = host.engine_for(CONFIG, lambda _: InstantEngine())
    assert host.engine_for(EngineConfig(kind="instant", model="other"), lambda _: InstantEngine()) is not first


def test_concurrent_first_calls_load_once() -> None:
    all_here, loads = threading.Barrier(8), []

    def factory(_: EngineConfig) -> Engine:
        loads.append(1)
        return InstantEngine()

    def call(_: int) -> Engine:
        all_here.wait()
        return host.engine_for(CONFIG, factory)

    with ThreadPoolExecutor(8) as pool:
        engines = list(pool.map(call, range(8)))
    assert len(loads) == 1
    assert all(engine is engines[0] for engine in engines)


def test_a_failed_load_is_raised_and_tried_again_by_the_next_call() -> None:
    def fails(_: EngineConfig) -> Engine:
        raise EngineError("no memory")

    with pytest.raises(EngineError, match="no memory"):
        host.engine_for(CONFIG, fails)
    assert host.engine_for(CONFIG, lambda _: InstantEngine()).info.name == "instant"


def test_who_waits_for_a_load_gets_its_failure() -> None:
    loading: Future[Engine] = Future()
    host._engines[CONFIG.config_hash] = loading
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(host.engine_for, CONFIG, lambda _: pytest.fail("loaded twice"))
        loading.set_exception(EngineError("no memory"))
        assert isinstance(waits.exception(10), EngineError)


def test_an_engine_that_is_being_loaded_is_not_discarded() -> None:
    loading: Future[Engine] = Future()
    host._engines[CONFIG.config_hash] = loading
    host.discard(CONFIG)
    assert host._engines[CONFIG.config_hash] is loading


def test_a_discarded_engine_is_closed_and_loaded_anew() -> None:
    dead = Closing()
    assert host.engine_for(CONFIG, lambda _: dead) is dead
    host.discard(CONFIG)
    assert dead.closed == 1
    assert host.engine_for(CONFIG, lambda _: InstantEngine()) is not dead


def test_an_engine_that_was_replaced_already_does_not_take_the_new_one_with_it() -> None:
    """Two threads see one engine die; the slower one must not close what the faster one has loaded."""
    dead, sound = Closing(), Closing()
    host.engine_for(CONFIG, lambda _: dead)
    host.discard(CONFIG, dead)
    assert host.engine_for(CONFIG, lambda _: sound) is sound
    host.discard(CONFIG, dead)
    assert (dead.closed, sound.closed) == (1, 0)
    assert host.engine_for(CONFIG) is sound


def test_discarding_what_was_never_loaded_does_nothing() -> None:
    host.discard(CONFIG)


def test_closing_all_closes_each_and_forgets() -> None:
    engine = Closing()
    host.engine_for(CONFIG, lambda _: engine)
    host.close_all()
    host.close_all()
    assert engine.closed == 1


def test_the_instant_engine_says_that_its_answers_mean_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert host.engine_for(CONFIG).info.name == "instant"
    assert "mean nothing" in caplog.text


def test_figures_are_those_of_the_engine_that_is_loaded_and_load_none() -> None:
    assert host.engine_stats(CONFIG) is None
    engine = host.engine_for(CONFIG)
    engine.submit([default_probe(engine.info)])
    stats = host.engine_stats(CONFIG)
    assert stats is not None
    assert stats.reads == 1
    host.discard(CONFIG)
    assert host.engine_stats(CONFIG) is None


def test_an_engine_that_is_still_loading_has_no_figures() -> None:
    seen: list[object] = []

    def factory(config: EngineConfig) -> Engine:
        seen.append(host.engine_stats(config))
        return InstantEngine()

    host.engine_for(CONFIG, factory)
    assert seen == [None]
