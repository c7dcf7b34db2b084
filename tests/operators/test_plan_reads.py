"""The reads of one record: their noise, and their length."""

from typing import Any

import pytest
from hypothesis import given

from slotstream.operators.engines.protocol import ReadRequest
from slotstream.operators.plan import ReadPlan
from slotstream.schemas.errors import EngineNotCapable, StateTooLong
from tests.examples import NOUL, choice_of, example_plan, example_schema
from tests.operators.plan_examples import PLAN, STATES, TOKENIZER, only, yes_no

# Noise


def noise(request: ReadRequest) -> tuple[int, ...]:
    return tuple(request.canvas_ids[position] for position in request.slots)


def test_noise_stands_in_the_slots_and_nowhere_else() -> None:
    request, (canvas,) = only(PLAN), PLAN.canvases
    changed = [place for place, (a, b) in enumerate(zip(canvas.ids, request.canvas_ids, strict=True)) if a != b]
    assert set(changed) <= set(canvas.positions)
    assert changed
    assert all(0 <= token_id < TOKENIZER.vocab_size for token_id in noise(request))


@given(STATES)
def test_a_replay_reads_the_same_canvas(state: str) -> None:
    assert PLAN.reads(state) == example_plan().reads(state)


def test_draws_differ_in_nothing_but_their_noise() -> None:
    requests = example_plan(example_schema(draws=16)).reads("a text").requests
    assert len(requests) == 16
    assert len({noise(request) for request in requests}) == 16
    assert {(request.prompt_ids, request.slots, request.mark_ids) for request in requests} == {
        (requests[0].prompt_ids, requests[0].slots, requests[0].mark_ids)
    }
    assert requests[0] == only(PLAN)  # more draws add reads, they do not change the first


def test_the_noise_depends_on_prompt_and_draw_alone() -> None:
    settings: list[dict[str, Any]] = [
        {"mass_floor": 0.5},
        {"state": {"template": "{text}"}},
        {"truncate": "tail"},
        {"version": "9"},
    ]
    for setting in settings:
        assert only(example_plan(example_schema(**setting))) == only(PLAN)
    assert noise(only(PLAN, "a text")) != noise(only(PLAN, "another text"))


def test_noise_is_spread_over_the_whole_vocabulary() -> None:
    seen = [token_id for number in range(600) for token_id in noise(only(PLAN, str(number)))]
    size = TOKENIZER.vocab_size
    tenths = [
        sum(size * tenth // 10 <= token_id < size * (tenth + 1) // 10 for token_id in seen) for tenth in range(10)
    ]
    assert all(120 < count < 240 for count in tenths)  # 180 expected, standard deviation 13


def test_draws_of_one_canvas_stand_side_by_side() -> None:
    plan = example_plan(example_schema(yes_no(6), draws=2), canvas_length=16)
    assert len(plan.canvases) == 2
    slots = [request.slots for request in plan.reads("x").requests]
    assert slots == [canvas.positions for canvas in plan.canvases for _ in range(2)]


# Length


def budgeted(budget: int, **settings: Any) -> ReadPlan:
    """A plan that leaves `budget` tokens for the state."""
    return example_plan(example_schema(**settings), max_model_len=8192 - PLAN.state_budget + budget)


def state_ids(plan: ReadPlan, state: str) -> list[int]:
    prompt = plan.prompts[0]
    return list(only(plan, state).prompt_ids[len(prompt.prefix_ids) : -len(prompt.suffix_ids)])


def test_prompt_state_and_canvas_fill_the_engine_s_length_exactly() -> None:
    request = only(budgeted(5), "abcde")
    assert len(request.prompt_ids) + len(request.canvas_ids) == 8192 - PLAN.state_budget + 5


@pytest.mark.parametrize("budget", [1, 2, 5, 6])
@pytest.mark.parametrize(
    ("truncate", "kept"),
    [
        ("tail", lambda ids, n: ids[:n]),
        ("head", lambda ids, n: ids[len(ids) - n :]),
        ("middle", lambda ids, n: ids[: n - n // 2] + ids[len(ids) - n // 2 :]),
    ],
)
def test_a_long_state_is_cut_to_the_budget_exactly_and_says_so(budget: int, truncate: str, kept: Any) -> None:
    plan, state = budgeted(budget, truncate=truncate), "abcdefghij"
    ids = TOKENIZER.encode(state)
    assert plan.reads(state).truncated
    assert state_ids(plan, state) == kept(ids, budget)
    assert len(state_ids(plan, state)) == budget


@pytest.mark.parametrize("truncate", ["no", "head", "tail", "middle"])
def test_a_state_that_fits_is_never_cut(truncate: str) -> None:
    plan = budgeted(5, truncate=truncate)
    assert not plan.reads("abcde").truncated
    assert state_ids(plan, "abcde") == TOKENIZER.encode("abcde")


def test_a_state_that_is_too_long_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        StateTooLong, match=r"has 6 tokens and the prompt leaves 5; .*truncate: head, tail or middle"
    ) as caught:
        budgeted(5).reads("secret")
    assert "secret" not in str(caught.value)


def test_every_prompt_of_a_plan_has_room_for_the_state() -> None:
    questions = {"short": NOUL, "long": {**choice_of(255), "alone": True}}
    plan = example_plan(example_schema(questions, truncate="tail"), max_model_len=4096)
    for request in plan.reads("x" * 9000).requests:
        assert len(request.prompt_ids) + len(request.canvas_ids) <= 4096


def test_questions_that_leave_no_room_stop_the_start_with_both_numbers() -> None:
    taken = 8192 - PLAN.state_budget
    with pytest.raises(
        EngineNotCapable, match=rf"'example' takes {taken} tokens before any record text .* serves {taken};"
    ):
        example_plan(max_model_len=taken)
