"""The drain: order, bounds, and who is to blame."""

import math
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.decider import Decider, probe_reads
from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.outcome import Dead, Decided, Forwarded, Outcome
from slotstream.operators.plan import ReadPlan
from slotstream.operators.testing import HeldEngine, InstantEngine, hashed_read
from slotstream.schemas.errors import DecodeError, EngineError
from slotstream.schemas.record import Message, Origin, Record
from tests.examples import NOUL, example_plan, example_record, example_schema
from tests.tiny_tokenizer import tiny_tokenizer

PLAN = example_plan()
TINY = tiny_tokenizer()
SHORT_S = 0.02


def decider(engine: Engine, plan: ReadPlan = PLAN, *, max_in_flight: int = 100, **settings: Any) -> Decider:
    return Decider(plan, engine, max_in_flight=max_in_flight, **{"read_timeout_s": 5.0, **settings})


def meanwhile(*happenings: Callable[[], object] | float) -> Callable[[], float]:
    """A monotonic clock that is asked when a wait begins and when it ends: what happens then, or what it shows."""
    left = list(happenings)
    now = 0.0

    def clock() -> float:
        nonlocal now
        happening = left.pop(0) if left else now
        if callable(happening):
            happening()
        else:
            now = happening
        return now

    return clock


def records(*texts: Any) -> list[Record]:
    return [example_record(text, offset) for offset, text in enumerate(texts)]


def dead(offset: int) -> Dead:
    return Dead(example_record("", offset).message, DecodeError("bad bytes"))


def tombstone(offset: int) -> Forwarded:
    return Forwarded(Message(Origin("tickets", "topic-uuid", 0, offset), 0, 0, b"k", None))


def all_of(decider: Decider, items: Iterable[Record | Dead | Forwarded]) -> list[Outcome]:
    return [outcome for item in items for outcome in decider.add(item)] + list(decider.drain())


def codes(outcomes: Iterable[Outcome]) -> list[str]:
    """Of each outcome its offset and fate, such as "0 decided" and "1 mass_too_low"."""
    fates = {Decided: "decided", Forwarded: "forwarded"}
    return [f"{o.message.origin.offset} {o.error.code if isinstance(o, Dead) else fates[type(o)]}" for o in outcomes]


def scripted(script: dict[str, list[float]]) -> Callable[[ReadRequest], ReadResult]:
    """Reads of a prompt with such a word in it give this log-probability for every mark; one value a read, in turn."""
    left = {word: list(values) for word, values in script.items()}

    def read(request: ReadRequest) -> ReadResult:
        prompt = str(TINY.decode(list(request.prompt_ids)))
        for word, values in left.items():
            if word in prompt and values:
                value = values.pop(0)
                return ReadResult(tuple((value,) * len(marks) for marks in request.mark_ids))
        return hashed_read(request)

    return read


# Order and bounds

_KINDS = st.sampled_from(["record", "record", "record", "dead", "tombstone", "no text", "poison"])


@given(kinds=st.lists(_KINDS, max_size=12), bound=st.integers(1, 5), choose=st.randoms(use_true_random=False))
def test_outcomes_keep_the_order_of_their_records_whatever_finishes_first(
    kinds: list[str], bound: int, choose: random.Random
) -> None:
    engine = HeldEngine(read=scripted({"poison": [-50.0] * 99}))

    def finish_some() -> None:
        while engine.held and choose.random() < 0.4:
            engine.finish_only(choose.randrange(len(engine.held)))

    def while_it_waits() -> float:
        finish_some()
        engine.finish()  # at last the oldest, which is what it waits for
        return 0.0

    made = decider(engine, max_in_flight=bound, monotonic=while_it_waits)
    make: dict[str, Callable[[int], Any]] = {
        "record": lambda n: example_record(f"text {n}", n),
        "poison": lambda n: example_record("poison", n),
        "no text": lambda n: example_record(None, n),
        "dead": dead,
        "tombstone": tombstone,
    }
    fates = {
        "record": "decided",
        "poison": "mass_too_low",
        "no text": "state_empty",
        "dead": "decode_error",
        "tombstone": "forwarded",
    }
    outcomes: list[Outcome] = []
    for number, kind in enumerate(kinds):
        finish_some()
        outcomes += made.add(make[kind](number))
        assert len(engine.held) <= bound
    outcomes += made.drain()
    assert codes(outcomes) == [f"{number} {fates[kind]}" for number, kind in enumerate(kinds)]


def test_outcomes_leave_as_soon_as_the_oldest_is_ready() -> None:
    engine = HeldEngine()
    made = decider(engine)
    first, second, third, fourth = records("a", "b", "c", "d")
    assert list(made.add(first)) == []
    engine.finish()
    assert codes(made.add(second)) == ["0 decided"]
    assert list(made.add(third)) == []
    engine.finish_only(1)
    assert list(made.add(fourth)) == []  # the third is ready and waits for the second
    engine.finish_only(0)
    assert codes(made.add(tombstone(4))) == ["1 decided", "2 decided"]
    engine.finish()
    assert codes(made.drain()) == ["3 decided", "4 forwarded"]
    assert list(made.drain()) == []


def test_at_the_bound_a_new_record_waits_for_the_oldest() -> None:
    engine = HeldEngine()
    made = decider(engine, max_in_flight=2, read_timeout_s=SHORT_S, monotonic=meanwhile(engine.finish))
    first, second, third = records("a", "b", "c")
    assert list(made.add(first)) == list(made.add(second)) == []
    assert codes(made.add(third)) == ["0 decided"]
    assert len(engine.held) == 2


def test_the_bound_counts_reads_so_that_draws_count_each() -> None:
    engine = HeldEngine()
    made = decider(engine, example_plan(example_schema(draws=3)), max_in_flight=6)
    for record in records("a", "b"):
        assert list(made.add(record)) == []
    assert len(engine.held) == 6
    engine.finish(3)
    assert codes(made.add(example_record("c", 2))) == ["0 decided"]
    assert len(engine.held) == 6


def test_messages_that_need_no_read_count_too_so_that_the_queue_is_bounded() -> None:
    engine = HeldEngine()
    made = decider(engine, max_in_flight=3, read_timeout_s=SHORT_S, monotonic=meanwhile(engine.finish))
    (first,) = records("a")
    assert list(made.add(first)) == list(made.add(dead(1))) == list(made.add(tombstone(2))) == []
    assert codes(made.add(dead(3))) == ["0 decided", "1 decode_error", "2 forwarded", "3 decode_error"]


def test_reads_that_another_thread_finishes_in_any_order_come_out_in_order() -> None:
    engine = HeldEngine()
    made = decider(engine, max_in_flight=7)
    done = threading.Event()

    def finish() -> None:
        choose = random.Random(5)
        while not done.is_set():
            if engine.held:
                engine.finish_only(choose.randrange(len(engine.held)))

    thread = threading.Thread(target=finish)
    thread.start()
    try:
        outcomes = all_of(made, records(*(f"text {number}" for number in range(200))))
    finally:
        done.set()
        thread.join()
    assert codes(outcomes) == [f"{number} decided" for number in range(200)]


def test_a_record_s_labels_do_not_depend_on_its_neighbours() -> None:
    texts = [f"text {number}" for number in range(5)]
    together = all_of(decider(InstantEngine(), clock=lambda: 0.0), records(*texts))
    alone = [out for record in records(*texts) for out in all_of(decider(InstantEngine(), clock=lambda: 0.0), [record])]
    assert together == alone


# What a decision says


def test_a_decision_says_how_it_was_made() -> None:
    schema = example_schema(
        {"refund": {**NOUL, "thresholds": {"probability": 0.95}}}, version="7", draws=2, truncate="tail"
    )
    plan = example_plan(schema, max_model_len=8192 - example_plan(schema).state_budget + 50)
    record = example_record("x" * 1000, 42)
    (outcome,) = all_of(decider(InstantEngine(), plan, clock=lambda: 1_700_000_000.1239), [record])
    assert isinstance(outcome, Decided)
    assert outcome.record is record
    decision = outcome.decision
    assert decision.id == f"topic-uuid:0:42:{schema.hash}"
    assert (decision.schema_name, decision.schema_version, decision.schema_hash) == ("example", "7", schema.hash)
    assert (decision.model, decision.engine, decision.prompt_hash) == ("none", "instant 1", plan.prompt_hash)
    assert (decision.draws, decision.truncated, decision.decided_at_ms) == (2, True, 1_700_000_000_123)
    assert (decision.route, [str(reason) for reason in decision.reasons]) == (
        "review",
        ["refund: probability 0.909091 is below 0.95"],
    )
    assert [label.question for label in decision.labels] == ["refund"]


def test_a_certain_record_is_decided_without_reasons() -> None:
    (outcome,) = all_of(decider(InstantEngine()), records("short"))
    assert isinstance(outcome, Decided)
    assert (outcome.decision.route, outcome.decision.reasons, outcome.decision.truncated) == ("decided", (), False)


# One bad record


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "state_empty"),
        (" ", "state_empty"),
        ({"x"}, "state_not_text"),
        ("x" * 9000, "state_too_long"),
        ("poison", "mass_too_low"),
    ],
)
def test_a_bad_record_goes_to_dead_and_its_neighbours_go_on(text: Any, code: str) -> None:
    engine = InstantEngine(read=scripted({"poison": [-50.0]}))
    outcomes = all_of(decider(engine), records("before", text, "after"))
    assert codes(outcomes) == ["0 decided", f"1 {code}", "2 decided"]
    assert isinstance(outcomes[1], Dead)
    assert outcomes[1].message.origin.offset == 1


def test_a_record_without_the_field_goes_to_dead_without_a_read() -> None:
    engine = HeldEngine()
    record = Record(example_record("x", 3).message, {"other": "x"})
    assert codes(decider(engine).add(record)) == ["3 state_field_missing"]
    assert engine.held == []


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


TWO_CANVASES = example_plan(example_schema({"a": NOUL, "b": {**NOUL, "alone": True}}))


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
