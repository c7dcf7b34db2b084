"""The epoch loop: commits what is written, retries what can be mended, names the record that kills the engine."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from slotstream.pipelines.epochs import RunConfig, told_by
from slotstream.schemas.errors import (
    BrokerError,
    ConfigError,
    DeadLetterLimitReached,
    DecodeError,
    EngineError,
    EngineNotCapable,
    OutputSchemaRefused,
    RegistryUnavailable,
    SlotstreamError,
)
from tests.pipelines.epoch_rig import IN_FLIGHT, Rig


def test_it_stops_at_the_end_seen_at_start_when_told_so() -> None:
    rig = Rig(25, RunConfig(epoch_max_records=10))
    rig.session.on_wait = lambda: setattr(rig.session, "records", rig.session.records + 1)
    rig.loop.run(until_caught_up=True)
    assert rig.session.committed >= 25
    assert rig.written == list(range(rig.session.committed))
    assert max(rig.epochs) <= 10


def test_it_stops_after_the_current_epoch_when_told_so() -> None:
    rig = Rig(25, RunConfig(epoch_max_records=10))
    rig.turns = _StopAfter(rig.stop, turns=2)
    rig.loop._each_turn = rig.turns.append
    rig.loop.run()
    assert rig.session.committed == 20


def test_nothing_is_committed_that_is_not_written() -> None:
    rig = Rig(10)
    rig.failures = [BrokerError("not written")]
    committed_at_waits = []
    rig.session.on_wait = lambda: committed_at_waits.append(rig.session.committed)
    rig.loop.run(until_caught_up=True)
    assert committed_at_waits == [0, 0]
    assert rig.written == list(range(10))


@pytest.mark.parametrize("error", [BrokerError("down"), RegistryUnavailable("down")])
def test_what_does_not_answer_is_waited_for_and_the_epoch_read_again(error: SlotstreamError) -> None:
    rig = Rig(10)
    rig.failures = [error, error]
    rig.session.waits = [BrokerError("down")]
    rig.session.commits = [BrokerError("not a member any more")]
    rig.loop.run(until_caught_up=True)
    assert rig.session.committed == 10
    assert rig.session.rewinds == 4
    assert rig.dead == []


def test_pauses_grow_to_the_longest_and_start_again_after_success(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(20, RunConfig(retry_max_wait_s=5, epoch_max_records=10))
    waits: list[float] = []
    monkeypatch.setattr(rig.stop, "wait", waits.append)
    down = RegistryUnavailable("down")
    rig.session.waits = [down, down, down, down]
    rig.loop.run(until_caught_up=True)
    assert waits == [1, 2, 4, 5]
    rig.session.records, rig.session.waits = 30, [down]
    rig.loop.run(until_caught_up=True)
    assert waits[4:] == [1]


@pytest.mark.parametrize(
    "error", [ConfigError("x"), OutputSchemaRefused("x"), EngineNotCapable("x"), DeadLetterLimitReached("x")]
)
def test_what_no_retry_mends_ends_the_loop(error: SlotstreamError) -> None:
    rig = Rig(10)
    rig.failures = [_as_beam_raises(error)]
    with pytest.raises(type(error)):
        rig.loop.run(until_caught_up=True)
    assert rig.session.committed == 0


def test_a_defect_is_raised_as_it_is() -> None:
    rig = Rig(10)
    rig.failures = [KeyError("a bug")]
    with pytest.raises(KeyError):
        rig.loop.run(until_caught_up=True)


def test_the_limit_ends_the_loop_after_the_commit() -> None:
    rig = Rig(10)

    def reached(_: Mapping[str, int]) -> None:
        raise DeadLetterLimitReached("limit")

    rig.loop._each_turn = reached
    with pytest.raises(DeadLetterLimitReached):
        rig.loop.run()
    assert rig.session.committed == 10


def test_a_dead_engine_is_started_again_and_nobody_is_blamed() -> None:
    rig = Rig(10)
    rig.failures = [_as_beam_raises(EngineError("out of memory"))]
    rig.loop.run(until_caught_up=True)
    assert rig.started == 1
    assert rig.written == list(range(10))
    assert rig.dead == []


def test_an_engine_that_does_not_start_at_once_is_tried_again() -> None:
    rig = Rig(10)
    rig.failures = [EngineError("gone")]
    rig.starts = [EngineError("still gone"), EngineError("still gone"), None]
    rig.loop.run(until_caught_up=True)
    assert rig.started == 3
    assert rig.written == list(range(10))


def test_an_engine_that_dies_too_often_ends_the_loop() -> None:
    rig = Rig(10, RunConfig(engine_restarts=2, retry_max_wait_s=1e-6))
    rig.failures = [EngineError("broken")] * 9
    with pytest.raises(EngineError, match="died 3 times without a record decided in between: broken"):
        rig.loop.run(until_caught_up=True)
    assert rig.session.committed == 0


def test_a_record_that_kills_the_engine_goes_to_dead_and_its_neighbours_are_decided() -> None:
    rig = Rig(100, RunConfig(epoch_max_records=50, retry_max_wait_s=1e-6), poison={37})
    rig.loop.run(until_caught_up=True)
    assert rig.written == list(range(100))
    assert rig.dead == [37]
    assert rig.epochs[-1] > IN_FLIGHT  # behind the culprit epochs are whole again


def test_deaths_that_an_earlier_process_counted_count() -> None:
    rig = Rig(10, poison={2})
    rig.session.deaths = 3
    rig.loop.run(until_caught_up=True)
    assert rig.dead == [2]
    assert rig.started == 1


def test_records_in_flight_that_fail_while_stopping_are_left_for_the_next_run() -> None:
    rig = Rig(10)

    def aborted(most: int) -> Mapping[str, int]:
        rig.session.take(most)
        rig.stop.set()
        raise EngineError("closed")

    rig.loop._run_epoch = aborted
    rig.loop.run()
    assert rig.session.committed == 0
    assert rig.started == 0


def test_lag_counts_what_waits_in_own_partitions() -> None:
    rig = Rig(30, RunConfig(epoch_max_records=10))
    rig.loop._each_turn = lambda _: rig.stop.set()
    rig.loop.run()
    assert rig.loop.lag() == 20
    rig.session.assigned = frozenset()
    assert rig.loop.lag() == 0


def _as_beam_raises(error: SlotstreamError) -> BaseException:
    """What Beam's runner raises for `error`: a copy with the step in its words, while handling the original."""
    try:
        try:
            raise error
        except SlotstreamError:
            copy = type(error)(f"{error} [while running 'Decide']")
            copy._tagged_with_step = True  # type: ignore[attr-defined]
            raise copy  # noqa: B904
    except SlotstreamError as raised:
        return raised


def test_the_error_is_told_without_beams_words() -> None:
    told = told_by(_as_beam_raises(EngineError("out of memory")))
    assert isinstance(told, EngineError)
    assert str(told) == "out of memory"


def _raise_while_handling(first: Exception, second: Exception) -> None:
    try:
        raise first
    except type(first):
        raise second  # noqa: B904


def test_an_error_is_found_behind_a_runtime_error() -> None:
    with pytest.raises(RuntimeError) as caught:
        _raise_while_handling(BrokerError("down"), RuntimeError("BrokerError: down [while running 'Write']"))
    assert isinstance(told_by(caught.value), BrokerError)


def test_a_record_error_on_the_way_is_not_the_reason() -> None:
    with pytest.raises(EngineError) as caught:
        _raise_while_handling(DecodeError("some record"), EngineError("the engine"))
    assert isinstance(told_by(caught.value), EngineError)
    assert told_by(KeyError("x")) is None


class _StopAfter(list[Any]):
    def __init__(self, stop: threading.Event, turns: int) -> None:
        super().__init__()
        self._stop, self._turns = stop, turns

    def append(self, item: Any) -> None:
        super().append(item)
        if len(self) >= self._turns:
            self._stop.set()
