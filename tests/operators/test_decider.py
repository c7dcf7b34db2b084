"""The drain: order, bounds, what a decision says, and that one bad record stays one."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.outcome import Dead, Decided, Outcome
from slotstream.operators.testing import HeldEngine, InstantEngine
from slotstream.schemas.record import Record
from tests.examples import NOUL, example_plan, example_record, example_schema
from tests.operators.decider_examples import (
    SHORT_S,
    all_of,
    codes,
    dead,
    decider,
    meanwhile,
    records,
    scripted,
    tombstone,
)

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


def test_reads_of_several_records_start_together_and_of_fewer_when_they_are_waited_for() -> None:
    engine = HeldEngine()
    made = decider(engine, together=3, read_timeout_s=SHORT_S, monotonic=meanwhile(lambda: engine.finish(9)))
    first, second, third, fourth = records("a", "b", "c", "d")
    assert list(made.add(first)) == list(made.add(dead(9))) == list(made.add(second)) == []
    assert engine.held == []
    assert list(made.add(third)) == []
    assert len(engine.held) == 3
    assert list(made.add(fourth)) == []
    engine.finish(3)
    assert codes(made.drain()) == ["0 decided", "9 decode_error", "1 decided", "2 decided", "3 decided"]


def test_what_waits_for_others_counts_towards_the_bound() -> None:
    engine = HeldEngine()
    made = decider(engine, together=9, max_in_flight=2, read_timeout_s=SHORT_S, monotonic=meanwhile(engine.finish))
    first, second, third = records("a", "b", "c")
    assert list(made.add(first)) == list(made.add(second)) == []
    assert codes(made.add(third)) == ["0 decided"]


@given(together=st.integers(1, 7), kinds=st.lists(st.sampled_from(["x", "too long " * 99, None]), max_size=15))
def test_together_or_one_by_one_the_outcomes_are_the_same(together: int, kinds: list[str | None]) -> None:
    plan = example_plan(max_model_len=480)  # leaves about a hundred
    asked = records(*kinds)
    one_by_one, batched = (
        all_of(decider(InstantEngine(), plan, together=n, clock=lambda: 1.0), asked) for n in (1, together)
    )
    assert codes(batched) == [
        f"{n} {'decided' if kind == 'x' else 'state_too_long' if kind else 'state_empty'}"
        for n, kind in enumerate(kinds)
    ]
    assert list(map(repr, batched)) == list(map(repr, one_by_one))


def test_reads_that_have_not_started_are_forgotten_with_their_bundle() -> None:
    engine = HeldEngine()
    made = decider(engine, together=2)
    first, second = records("a", "b")
    assert list(made.add(first)) == []
    made.abandon()
    assert list(made.add(second)) == []
    assert engine.held == []


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
