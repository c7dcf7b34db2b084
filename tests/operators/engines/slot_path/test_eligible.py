"""What counts as a slot read, and how a request and its answer are put in the slot path's terms."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from slotstream.operators.engines.protocol import ReadRequest
from slotstream.operators.engines.slot_path.eligible import slot_read
from slotstream.operators.engines.slot_path.names import MARKS_ARG, SLOTS_ARG
from slotstream.operators.engines.slot_path.request import check_eligible, slot_arguments, slot_result
from slotstream.schemas.errors import EngineError, EngineNotCapable

REQUEST = ReadRequest((1, 2, 3), (4, 5, 6, 7), (1, 3), ((10, 11, 12), (13,)))


def params(request: ReadRequest = REQUEST, **changes: Any) -> SimpleNamespace:
    """As vLLM's SamplingParams would hold them; a change of an extra argument has its name, None removes it."""
    arguments = slot_arguments(request)
    extra = {**arguments.pop("extra_args"), **{k: v for k, v in changes.items() if k.startswith(("diff", "slot"))}}
    plain = {k: v for k, v in changes.items() if k not in extra}
    defaults = {"logprob_token_ids": None, "prompt_logprobs": None}
    kept = {k: v for k, v in extra.items() if v is not None}
    return SimpleNamespace(**{**defaults, **arguments, "extra_args": kept, **plain})


def test_a_request_is_a_slot_read() -> None:
    read = slot_read(params())
    assert read is not None
    assert (tuple(read.canvas), tuple(read.slots), read.widest) == ((4, 5, 6, 7), (1, 3), 3)
    check_eligible(params())


@pytest.mark.parametrize(
    "change",
    [
        {SLOTS_ARG: None},
        {SLOTS_ARG: []},
        {SLOTS_ARG: [3, 1]},
        {SLOTS_ARG: [1, 1]},
        {SLOTS_ARG: [-1, 3]},
        {SLOTS_ARG: [1, 4]},
        {SLOTS_ARG: [1]},
        {MARKS_ARG: None},
        {MARKS_ARG: [[10, 11, 12]]},
        {MARKS_ARG: [[10, 11, 12], []]},
        {"diffusion_seed_canvas": None},
        {"diffusion_canvas_length": 8},
        {"diffusion_max_steps": 2},
        {"diffusion_max_steps": None},
        {"diffusion_read_only": False},
        {"diffusion_constrained": True},
        {"diffusion_pinned": [0]},
        {"max_tokens": 4},
        {"logprobs": None},
        {"logprobs": 5},
        {"logprob_token_ids": [1]},
        {"prompt_logprobs": 1},
    ],
)
def test_anything_else_is_none_and_is_refused_before_it_is_sent(change: dict[str, Any]) -> None:
    assert slot_read(params(**change)) is None
    with pytest.raises(EngineNotCapable, match=r"engine\.slot_path: off"):
        check_eligible(params(**change))


@pytest.mark.parametrize("nothing", [None, SimpleNamespace(extra_args=None), SimpleNamespace(extra_args={})])
def test_a_request_without_extra_arguments_is_none(nothing: Any) -> None:
    assert slot_read(nothing) is None


@dataclass
class Flat:
    """vLLM's FlatLogprobs of two positions: the most likely token, then three columns, the second set padded."""

    start_indices: list[int] = field(default_factory=lambda: [0, 4])
    end_indices: list[int] = field(default_factory=lambda: [4, 8])
    token_ids: list[int] = field(default_factory=lambda: [9, 10, 11, 12, 8, 13, 0, 0])
    logprobs: list[float] = field(default_factory=lambda: [-0.1, -1.0, -2.0, -3.0, -0.2, -4.0, -99.0, -99.0])


def test_the_answer_is_the_columns_after_the_first_without_the_padding() -> None:
    assert slot_result(REQUEST, Flat()).log_probs == ((-1.0, -2.0, -3.0), (-4.0,))


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        (Flat(start_indices=[0], end_indices=[4]), "1 positions of the 2 slots"),
        (Flat(token_ids=[9, 10, 11, 99, 8, 13, 0, 0]), "other marks than were asked at canvas position 1"),
        (Flat(token_ids=[9, 10, 11, 12, 8]), "other marks than were asked at canvas position 3"),
    ],
)
def test_an_answer_to_another_question_is_an_engine_error(flat: Flat, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        slot_result(REQUEST, flat)


def test_as_many_columns_are_asked_as_the_widest_slot_has_marks() -> None:
    wide = replace(REQUEST, mark_ids=((1,), tuple(range(255))))
    assert slot_arguments(wide)["logprobs"] == 255
    assert slot_arguments(wide)["max_tokens"] == 2
