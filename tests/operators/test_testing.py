"""The fakes that ship keep the engine's contract."""

import math
from typing import Any

import pytest

from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.plan import ReadPlan
from slotstream.operators.reading import is_finite, labels_from_reads
from slotstream.operators.testing import HeldEngine, InstantEngine, hashed_read
from slotstream.schemas.errors import EngineError
from tests.examples import choice_of, example_plan, example_schema


def request_of(plan: ReadPlan, state: str) -> ReadRequest:
    return plan.reads(state).requests[0]


@pytest.mark.parametrize("engine", [InstantEngine(), HeldEngine()])
def test_a_fake_is_an_engine(engine: Engine) -> None:
    assert isinstance(engine, Engine)
    assert engine.info.name == "instant"


def test_a_hashed_read_is_sound_and_depends_on_the_prompt_alone(plan: ReadPlan) -> None:
    one, other = request_of(plan, "one"), request_of(plan, "other")
    assert hashed_read(one) == hashed_read(one) != hashed_read(other)
    assert is_finite([hashed_read(one)])
    for label in labels_from_reads(plan, [hashed_read(one)]):
        assert label.mass == 0.99
        assert label.probability == pytest.approx(0.9 / 0.99, abs=1e-6)


def test_hashed_reads_answer_everything_sometime() -> None:
    plan = example_plan(example_schema({"q": choice_of(3)}))
    seen = {labels_from_reads(plan, [hashed_read(request_of(plan, str(i)))])[0].value for i in range(50)}
    assert seen == {"option 0", "option 1", "option 2"}


def test_hashed_reads_fit_any_number_of_slots_and_options() -> None:
    plan = example_plan(
        example_schema({f"q{i}": choice_of(255) for i in range(40)}), style="compact", canvas_length=256
    )
    for request in plan.reads("x").requests:
        result = hashed_read(request)
        assert [len(slot) for slot in result.log_probs] == [len(marks) for marks in request.mark_ids]
        assert all(sum(map(math.exp, slot)) == pytest.approx(0.99) for slot in result.log_probs)


def test_an_instant_engine_has_answered_when_submit_returns(plan: ReadPlan) -> None:
    engine = InstantEngine()
    requests = [request_of(plan, state) for state in ("a", "b", "c")]
    futures = engine.submit(requests)
    assert [future.result(0) for future in futures] == [hashed_read(request) for request in requests]
    assert engine.finished == 3


def test_a_read_that_fails_is_not_finished(plan: ReadPlan) -> None:
    def fail(_: ReadRequest) -> ReadResult:
        raise EngineError("no")

    engine = InstantEngine(read=fail)
    (future,) = engine.submit([request_of(plan, "a")])
    assert isinstance(future.exception(0), EngineError)
    assert engine.finished == 0


@pytest.mark.parametrize("kind", [InstantEngine, HeldEngine])
def test_a_closed_engine_takes_no_reads(plan: ReadPlan, kind: Any) -> None:
    engine = kind()
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.submit([request_of(plan, "a")])


def test_a_held_engine_answers_in_the_order_that_the_test_says(plan: ReadPlan) -> None:
    engine = HeldEngine()
    futures = engine.submit([request_of(plan, state) for state in "abcd"])
    assert [future.done() for future in futures] == [False] * 4
    engine.finish_only(2)
    assert [future.done() for future in futures] == [False, False, True, False]
    engine.finish()
    assert [future.done() for future in futures] == [True, False, True, False]
    engine.finish(9)
    assert all(future.done() for future in futures)
    assert engine.finished == 4


def test_a_cancelled_read_is_not_finished(plan: ReadPlan) -> None:
    engine = HeldEngine()
    first, second = engine.submit([request_of(plan, state) for state in "ab"])
    assert first.cancel()
    engine.finish(2)
    assert engine.finished == 1
    assert second.result(0)


@pytest.mark.parametrize("end", ["fail", "close"])
def test_reads_in_flight_fail_when_the_engine_ends(plan: ReadPlan, end: str) -> None:
    engine = HeldEngine()
    first, second = engine.submit([request_of(plan, state) for state in "ab"])
    first.cancel()
    engine.close() if end == "close" else engine.fail(EngineError("it died"))
    assert isinstance(second.exception(0), EngineError)
    assert engine.held == []
