"""From a read request to vLLM and back: arguments, groups of marks, merging, refusals."""

import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.engines.protocol import EngineInfo, ReadRequest
from slotstream.operators.engines.slot_read import (
    MAX_MARKS,
    check_request,
    mark_groups,
    read_result,
    sampling_arguments,
)
from slotstream.schemas.errors import EngineError, EngineNotCapable, SlotstreamError, StateTooLong

INFO = EngineInfo(
    name="vllm", version="0.32.0", path="stock", model="m", max_model_len=32, canvas_length=16, vocab_size=1000
)
REQUEST = ReadRequest(prompt_ids=(1, 2, 3), canvas_ids=(9, 8, 7, 6), slots=(0, 2), mark_ids=((10, 11), (11, 12, 13)))


@dataclass
class Flat:
    """vLLM's FlatLogprobs, filled as vLLM fills it: the sampled token first, then the asked ids."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, sampled: tuple[int, float], values: dict[int, float]) -> "Flat":
        self.start_indices.append(len(self.token_ids))
        for token, value in (sampled, *values.items()):
            self.token_ids.append(token)
            self.logprobs.append(value)
        self.end_indices.append(len(self.token_ids))
        return self


def answer(request: ReadRequest, marks: tuple[int, ...], value: float | None = None) -> Flat:
    flat = Flat()
    for position in range(request.slots[-1] + 1):
        flat.add((999, -0.1), {m: -(position * 1000.0 + m) if value is None else value for m in marks})
    return flat


def test_a_read_is_one_unconstrained_step_over_its_own_canvas() -> None:
    assert sampling_arguments(REQUEST, (10, 11, 12, 13)) == {
        "max_tokens": 3,
        "temperature": 1.0,
        "ignore_eos": True,
        "logprob_token_ids": [10, 11, 12, 13],
        "detokenize": False,
        "flat_logprobs": True,
        "extra_args": {
            "diffusion_seed_canvas": [9, 8, 7, 6],
            "diffusion_canvas_length": 4,
            "diffusion_max_steps": 1,
            "diffusion_read_only": True,
        },
    }


def test_marks_that_slots_share_are_asked_once() -> None:
    assert mark_groups(REQUEST) == ((10, 11, 12, 13),)


def test_an_answer_becomes_one_row_a_slot_in_option_order() -> None:
    result = read_result(REQUEST, [answer(REQUEST, (10, 11, 12, 13))])
    assert result.log_probs == ((-10.0, -11.0), (-2011.0, -2012.0, -2013.0))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=4))
def test_any_number_of_marks_is_split_and_merged_without_a_difference(sizes: list[int]) -> None:
    marks = tuple(tuple(range(7 * i, 7 * i + size)) for i, size in enumerate(sizes))
    request = replace(REQUEST, canvas_ids=(0,) * 4, slots=tuple(range(len(sizes))), mark_ids=marks)
    groups = mark_groups(request)
    assert all(0 < len(group) <= MAX_MARKS for group in groups)
    assert sum(map(len, groups)) == len({m for ms in marks for m in ms})
    result = read_result(request, [answer(request, group) for group in groups])
    assert result.log_probs == tuple(tuple(-(slot * 1000.0 + m) for m in ms) for slot, ms in enumerate(marks))


def test_a_mark_that_is_also_the_sampled_token_keeps_its_value() -> None:
    flat = Flat().add((10, -0.5), {10: -0.5, 11: -2.0})
    request = replace(REQUEST, slots=(0,), mark_ids=((11, 10),))
    assert read_result(request, [flat]).log_probs == ((-2.0, -0.5),)


def test_nan_is_passed_on() -> None:
    result = read_result(REQUEST, [answer(REQUEST, (10, 11, 12, 13), math.nan)])
    assert all(math.isnan(value) for row in result.log_probs for value in row)


def test_a_missing_mark_is_the_engines_fault() -> None:
    with pytest.raises(EngineError, match="lacks 1 of 3 marks at canvas position 2"):
        read_result(REQUEST, [answer(REQUEST, (10, 11, 12))])


def test_a_missing_position_is_the_engines_fault() -> None:
    with pytest.raises(EngineError, match="1 canvas positions and slot 2"):
        read_result(REQUEST, [Flat().add((1, -1.0), {10: -1.0, 11: -1.0, 12: -1.0, 13: -1.0})])


def test_a_request_that_just_fits_is_admitted() -> None:
    check_request(replace(REQUEST, prompt_ids=(1,) * 28), INFO)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"prompt_ids": (1,) * 29}, StateTooLong, "29 tokens and its canvas 4; the engine takes 32"),
        ({"canvas_ids": (1,) * 17}, EngineNotCapable, "engine.canvas_length"),
        ({"canvas_ids": ()}, EngineNotCapable, "canvas of 0"),
        ({"prompt_ids": ()}, EngineNotCapable, "at least one token"),
        ({"slots": (2, 0)}, EngineNotCapable, "ascending"),
        ({"slots": (0, 0)}, EngineNotCapable, "ascending"),
        ({"slots": (0, 4)}, EngineNotCapable, "ascending"),
        ({"slots": (-1, 2)}, EngineNotCapable, "ascending"),
        ({"slots": ()}, EngineNotCapable, "ascending"),
        ({"mark_ids": ((10, 11),)}, EngineNotCapable, "marks for each"),
        ({"mark_ids": ((10, 11), ())}, EngineNotCapable, "marks for each"),
        ({"mark_ids": ((10, 11), (1000,))}, EngineNotCapable, "another tokenizer"),
        ({"canvas_ids": (9, 8, 7, 1000)}, EngineNotCapable, "another tokenizer"),
        ({"prompt_ids": (1, -2)}, EngineNotCapable, "another tokenizer"),
    ],
)
def test_a_request_that_would_be_read_wrongly_is_refused(
    change: dict[str, tuple[int, ...]], error: type[SlotstreamError], text: str
) -> None:
    with pytest.raises(error, match=text):
        check_request(replace(REQUEST, **change), INFO)  # type: ignore[arg-type]
