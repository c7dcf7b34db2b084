"""The drain: whose fault is a slow read, a failed one, and one that is no number?"""

import math
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from slotstream.operators.decider import probe_reads
from slotstream.operators.outcome import Dead
from slotstream.operators.testing import HeldEngine, InstantEngine
from slotstream.schemas.errors import EngineError
from tests.examples import example_plan, example_record
from tests.operators.decider_examples import (
    PLAN,
    SHORT_S,
    TWO_CANVASES,
    all_of,
    codes,
    decider,
    meanwhile,
    records,
    scripted,
)

# Time


def test_a_slow_read_is_its_record_s_fault_when_the_engine_finished_others_meanwhile() -> None:
    engine = HeldEngine()
    made = decider(engine, read_timeout_s=SHORT_S, monotonic=meanwhile(lambda: engine.finish_only(1, 2)))
    outcomes = all_of(made, records("slow", "b", "c"))
    assert codes(outcomes) == ["0 read_timeout", "1 decided", "2 decided"]
    assert isinstance(outcomes[0], Dead)
    assert (
        str(outcomes[0].error)
        == "its read did not finish within 0.02 s although the engine finished 2 others meanwhile"
    )
    assert engine.held[0][1].cancelled()  # its read was aborted


def test_a_slow_read_is_the_engine_s_fault_when_it_finished_none() -> None:
    engine = HeldEngine()
    made = decider(engine, read_timeout_s=SHORT_S)
    with pytest.raises(EngineError, match=r"finished no read within 0.02 s \(engine.read_timeout_s\)"):
        all_of(made, records("a", "b"))


def test_reads_that_were_finished_before_the_record_was_the_oldest_prove_nothing() -> None:
    engine = HeldEngine()
    made = decider(engine, read_timeout_s=SHORT_S)
    for record in records("slow", "b", "c"):
        assert list(made.add(record)) == []
    engine.finish_only(1, 2)
    with pytest.raises(EngineError, match="finished no read"):
        list(made.drain())


@pytest.mark.parametrize("before", [True, False])
def test_a_record_s_own_reads_are_no_others(before: bool) -> None:
    engine = HeldEngine()
    made = decider(engine, TWO_CANVASES, read_timeout_s=SHORT_S, monotonic=meanwhile(engine.finish))
    (record,) = records("slow")
    assert list(made.add(record)) == []
    if before:
        engine.finish()
        made._monotonic = meanwhile()
    with pytest.raises(EngineError, match="finished no read"):
        list(made.drain())


@pytest.mark.parametrize("before", [True, False])
def test_one_other_read_is_enough_to_blame_a_record_of_which_a_part_is_read(before: bool) -> None:
    engine = HeldEngine()
    made = decider(engine, TWO_CANVASES, read_timeout_s=SHORT_S)
    for record in records("slow", "b"):
        assert list(made.add(record)) == []
    if before:
        engine.finish()  # the first of the record's own two reads
        made._monotonic = meanwhile(lambda: engine.finish_only(1))
    else:
        made._monotonic = meanwhile(lambda: engine.finish_only(0, 2))
    assert codes([next(made.drain())]) == ["0 read_timeout"]


def test_a_long_queue_before_a_slow_engine_is_nobody_s_fault() -> None:
    """Each record gets its whole time once it is the oldest: ten of them take five times as long as one may."""
    engine = HeldEngine()
    waited = 0

    def work() -> float:
        nonlocal waited
        waited += 1
        if waited % 2:
            engine.finish()
        return waited * 0.5 * SHORT_S

    outcomes = all_of(decider(engine, read_timeout_s=SHORT_S, monotonic=work), records(*"abcdefghij"))
    assert codes(outcomes) == [f"{number} decided" for number in range(10)]


def test_a_process_that_was_stopped_and_woken_blames_nobody_and_waits_again() -> None:
    engine = HeldEngine()
    woken = meanwhile(lambda: engine.finish_only(1), 1000.0, engine.finish)
    outcomes = all_of(decider(engine, read_timeout_s=SHORT_S, monotonic=woken), records("a", "b"))
    assert codes(outcomes) == ["0 decided", "1 decided"]


# The engine


def test_a_failed_read_is_the_engine_s_and_blames_no_record() -> None:
    engine = HeldEngine()
    made = decider(engine)
    for record in records("a", "b", "c"):
        assert list(made.add(record)) == []
    engine.finish()
    engine.fail(EngineError("it died"))
    drained = made.drain()
    assert codes([next(drained)]) == ["0 decided"]
    with pytest.raises(EngineError, match="it died"):
        next(drained)


def test_a_failed_read_is_known_at_once_though_another_of_the_record_hangs() -> None:
    engine = HeldEngine()

    def fail_second() -> None:
        engine.held[1][1].set_exception(EngineError("it died"))

    made = decider(engine, TWO_CANVASES, read_timeout_s=600.0, monotonic=meanwhile(fail_second))
    with pytest.raises(EngineError, match="it died"):
        all_of(made, records("a"))


def test_a_closed_engine_takes_no_record() -> None:
    engine = InstantEngine()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        list(decider(engine).add(example_record("a")))


def test_abandoned_reads_are_cancelled_and_nothing_of_them_comes_out() -> None:
    engine = HeldEngine()
    made = decider(engine, max_in_flight=2)
    futures = []
    for record in records("a", "b"):
        assert list(made.add(record)) == []
        futures.append(engine.held[-1][1])
    made.abandon()
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(0)
    assert list(made.drain()) == []
    assert list(made.add(example_record("c", 2))) == []  # and the bound is free again
    engine.finish(3)
    assert codes(made.drain()) == ["2 decided"]


# NaN


def test_a_read_that_is_nan_once_is_read_again() -> None:
    engine = InstantEngine(read=scripted({"odd": [math.nan]}))
    first, second = all_of(decider(engine, clock=lambda: 0.0), records("odd", "b"))
    assert [first] == all_of(decider(InstantEngine(), clock=lambda: 0.0), records("odd"))
    assert codes([second]) == ["1 decided"]
    assert engine.finished == 3


def test_it_is_read_again_with_nothing_else_in_flight() -> None:
    in_flight: list[int] = []

    class Watched(HeldEngine):
        def submit(self, requests: Any) -> Any:
            in_flight.append(sum(not future.done() for _, future in self.held))
            futures = super().submit(requests)
            if len(in_flight) > 3:
                self.finish(len(self.held))
            return futures

    engine = Watched(read=scripted({"odd": [math.nan]}))
    made = decider(engine)
    for record in records("odd", "b", "c"):
        assert list(made.add(record)) == []
    threading.Timer(0.01, lambda: engine.finish(2)).start()
    engine.finish()
    assert codes(made.drain()) == ["0 decided", "1 decided", "2 decided"]
    assert in_flight == [0, 1, 2, 0]


def test_a_read_that_is_nan_twice_is_its_record_s_fault_while_the_probe_is_sound() -> None:
    engine = InstantEngine(read=scripted({"odd": [math.nan, math.nan]}))
    assert codes(all_of(decider(engine), records("a", "odd", "b"))) == ["0 decided", "1 read_not_finite", "2 decided"]


def test_a_read_that_is_nan_twice_is_the_engine_s_fault_when_the_probe_is_nan_too() -> None:
    engine = InstantEngine(read=scripted({"odd": [math.nan] * 2, "probe": [math.nan]}))
    with pytest.raises(EngineError, match="reads NaN for its probe"):
        all_of(decider(engine), records("odd"))


def test_a_neighbour_that_hangs_does_not_hide_a_read_that_is_nan() -> None:
    engine = HeldEngine(read=scripted({"odd": [math.nan, math.nan]}))
    made = decider(engine, read_timeout_s=SHORT_S)
    for record in records("odd", "hangs"):
        assert list(made.add(record)) == []
    engine.finish()
    # The second read of the record, then the probe's, then a third one's while the neighbour is waited for.
    made._monotonic = meanwhile(
        lambda: engine.finish_only(1), 0.0, lambda: engine.finish_only(1), 0.0, lambda: setattr(engine, "finished", 9)
    )
    assert codes(made.drain()) == ["0 read_not_finite", "1 read_timeout"]


def test_plus_infinity_is_no_answer_either() -> None:
    engine = InstantEngine(read=scripted({"odd": [math.inf, math.inf]}))
    assert codes(all_of(decider(engine), records("odd"))) == ["0 read_not_finite"]


def test_minus_infinity_everywhere_is_mass_too_low() -> None:
    engine = InstantEngine(read=scripted({"odd": [-math.inf]}))
    assert codes(all_of(decider(engine), records("odd"))) == ["0 mass_too_low"]


def test_the_probe_reads_every_canvas_of_the_plan() -> None:
    assert len(probe_reads(TWO_CANVASES)) == 2
    assert probe_reads(PLAN) == probe_reads(example_plan())
