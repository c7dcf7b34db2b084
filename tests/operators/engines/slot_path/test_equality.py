"""The slot path gives vLLM's own answers, whatever shares the batch: real engines on the CPU, float32."""

from typing import Any

import pytest

from tests.operators.engines.slot_path.conftest import EngineRun
from tests.operators.engines.slot_path.read_cases import other_requests, reads

pytestmark = [pytest.mark.engine, pytest.mark.slow]

BOUND = 1e-4  # nats; measured: 1e-6


def largest_gap(answers: list[Any], stock: list[Any]) -> float:
    """In log-probability, over the reads that were answered; the most likely mark must be the same one."""
    gaps: list[float] = []
    for one, other in zip(answers, stock, strict=True):
        for row, expected in zip(one or (), other if one else (), strict=True):
            assert row.index(max(row)) == expected.index(max(expected))
            gaps += [abs(a - b) for a, b in zip(row, expected, strict=True)]
    return max(gaps)


def other_gap(answers: list[Any], stock: list[Any]) -> float:
    """The same of what is no slot read. Minus infinity stands for a column that vLLM pads."""
    gaps = [0.0]
    for one, other in zip(answers, stock, strict=True):
        assert one["tokens"] == other["tokens"]
        for row, expected in zip(one["positions"], other["positions"], strict=True):
            assert row.keys() >= expected.keys()
            gaps += [abs(row[token] - value) for token, value in expected.items() if value > float("-inf")]
    return max(gaps)


@pytest.fixture(scope="module", params=[("auto", False), ("auto", True), ("two_steps", False)])
def plain(request: pytest.FixtureRequest, run_engine: EngineRun) -> dict[str, Any]:
    setting, asynchronous = request.param
    found = run_engine(setting, "together,again,mixed,aborted", asynchronous=asynchronous)
    assert (found["facts"]["fused"] > 0) == (setting == "auto")
    return found


@pytest.fixture(scope="module", params=[("auto", 400, False), ("two_steps", 100, True)])
def cut(request: pytest.FixtureRequest, run_engine: EngineRun) -> dict[str, Any]:
    """A step has room for a few canvases of 64, or for one and a half, and for a part of the longer prompts."""
    setting, budget, asynchronous = request.param
    settings = {"enable_chunked_prefill": True, "max_num_batched_tokens": budget, "asynchronous": asynchronous}
    found = run_engine(setting, "together,mixed,aborted", **settings)
    assert found["facts"]["split_prompts"] > 20
    assert found["facts"]["fused" if setting == "auto" else "deferred"] > 20
    return found


@pytest.fixture(scope="module")
def tight(run_engine: EngineRun) -> dict[str, Any]:
    """The cache holds fewer tokens than the requests of a batch need."""
    found = run_engine(
        "two_steps", "together,mixed", block_size=32, num_gpu_blocks_override=160, enable_prefix_caching=False
    )
    assert found["facts"]["preempted"] > 0
    return found


def test_the_cases_are_what_they_should_be() -> None:
    cases = reads()
    assert {len(case.slots) for case in cases} >= {1, 2, 5, 8}
    assert {len(case.canvas_ids) for case in cases} >= {16, 32, 64}
    assert {len(marks) for case in cases for marks in case.mark_ids} >= {1, 2, 17, 128, 200, 255}
    assert [other.settled for other in other_requests()] == [False, True, True]


@pytest.mark.parametrize("situation", ["together", "again", "mixed", "aborted"])
def test_widths_slots_and_marks_of_all_kinds_in_one_batch(
    plain: dict[str, Any], stock_answers: dict[str, Any], situation: str
) -> None:
    """`again` meets a warm prefix cache; `mixed` shares its batches with text, constrained and ranked reads."""
    found = plain["answers"][situation]["reads"]
    assert largest_gap(found, stock_answers["reads"]) < BOUND
    assert bool(found.count(None)) == (situation == "aborted")
    assert plain["facts"]["prefix_hits"] >= 8


@pytest.mark.parametrize("situation", ["together", "mixed", "aborted"])
def test_a_token_budget_that_would_cut_canvases_and_splits_prompts(
    cut: dict[str, Any], stock_answers: dict[str, Any], situation: str
) -> None:
    assert largest_gap(cut["answers"][situation]["reads"], stock_answers["reads"]) < BOUND


@pytest.mark.parametrize("situation", ["together", "mixed"])
def test_a_cache_so_small_that_reads_are_preempted(
    tight: dict[str, Any], stock_answers: dict[str, Any], situation: str
) -> None:
    assert largest_gap(tight["answers"][situation]["reads"], stock_answers["reads"]) < BOUND


def test_what_is_no_slot_read_is_answered_as_by_vllm(plain: dict[str, Any], stock_answers: dict[str, Any]) -> None:
    assert other_gap(plain["answers"]["mixed"]["others"], stock_answers["others"]) < BOUND


def test_and_so_it_is_where_steps_are_small(cut: dict[str, Any], stock_answers: dict[str, Any]) -> None:
    assert other_gap(cut["answers"]["mixed"]["others"], stock_answers["others"]) < BOUND
