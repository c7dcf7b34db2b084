"""What a worker has ready: one engine and one plan a process, proven before the first record."""

import json
import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slotstream.operators import warm as module
from slotstream.operators.card import CARD_FILE
from slotstream.operators.engines import host
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.plan import ReadPlan, plan_hash
from slotstream.operators.testing import HeldEngine, InstantEngine, hashed_read
from slotstream.operators.warm import REPEAT_BOUND, prove, warm
from slotstream.schemas.errors import EngineError, EngineNotCapable, MarkError
from tests.examples import NOUL, LoadEngines, choice_of, example_schema
from tests.tiny_tokenizer import tiny_tokenizer, write_tiny_tokenizer

SCHEMA = example_schema()


@pytest.fixture
def opened(engines: LoadEngines) -> list[Engine]:
    """Every engine that was loaded, in order."""
    return engines()


# One a process


def test_the_first_call_loads_and_later_ones_are_free(instant_config: EngineConfig, opened: list[Engine]) -> None:
    first = warm(SCHEMA, instant_config)
    reads = first.engine.finished
    assert reads > 0  # it was proven
    assert warm(SCHEMA, instant_config) is first
    assert warm(SCHEMA, instant_config.model_copy(update={"max_in_flight": 3})) is first
    assert (len(opened), first.engine.finished) == (1, reads)


def test_two_schemas_share_an_engine_and_have_plans_of_their_own(
    instant_config: EngineConfig, opened: list[Engine]
) -> None:
    one, other = warm(SCHEMA, instant_config), warm(example_schema({"refund": NOUL}), instant_config)
    assert one.engine is other.engine
    assert one.plan.hash != other.plan.hash
    assert len(opened) == 1


def test_two_models_are_two_engines(instant_config: EngineConfig, opened: list[Engine], tmp_path: Path) -> None:
    second = instant_config.model_copy(update={"model": str(write_tiny_tokenizer(tmp_path / "second"))})
    assert warm(SCHEMA, instant_config).engine is not warm(SCHEMA, second).engine
    host.discard(second)


def test_a_new_engine_is_proven_anew(instant_config: EngineConfig, opened: list[Engine]) -> None:
    before = warm(SCHEMA, instant_config)
    host.discard(instant_config)
    after = warm(SCHEMA, instant_config)
    assert after.engine is opened[1]
    assert after.engine is not before.engine
    assert after.engine.finished > 0


def test_threads_that_come_at_once_get_one_engine(instant_config: EngineConfig, opened: list[Engine]) -> None:
    together = threading.Barrier(4)

    def call(_: int) -> module.Warm:
        together.wait()
        return warm(SCHEMA, instant_config)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(call, range(4)))
    assert all(result is results[0] for result in results)
    assert len(opened) == 1


def test_the_plan_fits_the_engine(instant_config: EngineConfig) -> None:
    ready = warm(SCHEMA, instant_config)
    assert ready.plan.vocab_size == ready.engine.info.vocab_size
    assert ready.plan.style == "full"


def test_a_card_decides_the_style(instant_config: EngineConfig) -> None:
    known = [plan_hash(SCHEMA, "compact")]
    card = {"style": "compact", "plan_hashes": known, "schema_name": "x", "schema_version": "1"}
    (Path(instant_config.model_folder) / CARD_FILE).write_text(json.dumps(card))
    assert warm(SCHEMA, instant_config).plan.style == "compact"
    other = example_schema({"refund": NOUL})
    assert warm(other, instant_config).plan.style == "full"  # a fake has learnt nothing, and takes any schema
    with pytest.raises(EngineNotCapable, match="knows no other"):
        warm(other, EngineConfig(kind="transformers", model=instant_config.model))


def test_a_model_that_cannot_spell_the_marks_stops_the_start(instant_config: EngineConfig) -> None:
    write_tiny_tokenizer(Path(instant_config.model_folder), tiny_tokenizer(pairs=0))
    with pytest.raises(MarkError, match="'q' needs 77 marks"):
        warm(example_schema({"q": choice_of(77)}), instant_config)


def test_a_model_without_a_tokenizer_stops_the_start(tmp_path: Path) -> None:
    without = EngineConfig(kind="instant", model=str(tmp_path))
    with pytest.raises(EngineNotCapable, match="tokenizer cannot be loaded"):
        warm(SCHEMA, without)
    host.discard(without)


def test_what_is_ready_is_logged_without_any_text(
    instant_config: EngineConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        plan = warm(SCHEMA, instant_config).plan
    assert f"plan {plan.hash} ready: 3 question(s), 1 canvas(es), room for {plan.state_budget} tokens" in caplog.text
    assert "differ by 0.0e+00" in caplog.text


# The proof


def changing(change: Callable[[int, ReadResult], ReadResult]) -> InstantEngine:
    """An engine whose n-th read is changed."""
    count = 0

    def read(request: ReadRequest) -> ReadResult:
        nonlocal count
        count += 1
        return change(count, hashed_read(request))

    return InstantEngine(read=read)


def moved(result: ReadResult, by: float) -> ReadResult:
    """Another read, of which one probability differs by `by`."""
    (first, *rest), *slots = result.log_probs
    return ReadResult(((math.log(math.exp(first) + by) if math.isfinite(by) else by, *rest), *slots))


def test_an_engine_that_repeats_itself_is_proven(plan: ReadPlan) -> None:
    assert prove(plan, InstantEngine(), timeout_s=1) == 0.0


@pytest.mark.parametrize("gap", [1e-7, 0.9 * REPEAT_BOUND])
def test_the_last_bits_may_differ(plan: ReadPlan, gap: float) -> None:
    engine = changing(lambda count, result: moved(result, gap * (count - 1)))
    assert prove(plan, engine, timeout_s=1) == pytest.approx(gap, rel=1e-3)


def test_the_first_read_may_differ_because_no_prefix_is_cached_yet(plan: ReadPlan) -> None:
    assert (
        prove(plan, changing(lambda count, result: moved(result, 0.04) if count == 1 else result), timeout_s=1) == 0.0
    )


@pytest.mark.parametrize("gap", [1.1 * REPEAT_BOUND, 0.05])
def test_an_engine_whose_reads_differ_is_refused(plan: ReadPlan, gap: float) -> None:
    engine = changing(lambda count, result: moved(result, gap) if count == 2 else result)
    with pytest.raises(
        EngineNotCapable, match=r"two reads of one canvas differ by .*: a replay would not give the same"
    ):
        prove(plan, engine, timeout_s=1)


def test_an_option_without_any_probability_repeats_itself(plan: ReadPlan) -> None:
    assert prove(plan, changing(lambda _, result: moved(result, -math.inf)), timeout_s=1) == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_engine_that_reads_no_log_probability_is_refused(plan: ReadPlan, value: float, number: int) -> None:
    engine = changing(lambda count, result: moved(result, value) if count == number else result)
    with pytest.raises(EngineNotCapable, match="the probe read is not finite; the checkpoint's weights or dtype"):
        prove(plan, engine, timeout_s=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda _, result: ReadResult(result.log_probs[:-1]),
        lambda _, result: ReadResult((result.log_probs[0][:-1], *result.log_probs[1:])),
        lambda _, result: ReadResult(()),
    ],
    ids=["a slot is missing", "an option is missing", "nothing"],
)
def test_an_engine_that_reads_less_than_it_was_asked_is_refused(plan: ReadPlan, change: Any) -> None:
    with pytest.raises(EngineNotCapable, match=r"asked for \[2, 3, 3\] marks in the slots, it read \["):
        prove(plan, changing(change), timeout_s=1)


def test_a_probe_that_does_not_finish_is_the_engine_s_error(plan: ReadPlan) -> None:
    engine = HeldEngine()
    with pytest.raises(EngineError, match=r"the probe read did not finish within 0.02 s"):
        prove(plan, engine, timeout_s=0.02)
    assert engine.held[0][1].cancelled()


def test_a_probe_that_fails_is_the_engine_s_error(plan: ReadPlan) -> None:
    def fail(_: ReadRequest) -> ReadResult:
        raise EngineError("out of memory")

    with pytest.raises(EngineError, match="out of memory"):
        prove(plan, InstantEngine(read=fail), timeout_s=1)
