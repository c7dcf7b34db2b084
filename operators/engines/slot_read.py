"""One read in vLLM's terms: a request becomes sampling arguments, the answer's flat log-probabilities a ReadResult.

Pure: no vLLM import, so that the arithmetic is tested without an engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.schemas.errors import EngineError, EngineNotCapable, StateTooLong

__all__ = [
    "MAX_MARKS",
    "FlatLogProbs",
    "check_request",
    "mark_groups",
    "read_result",
    "sampling_arguments",
    "seeded_canvas",
]

MAX_MARKS = 128
# vLLM's MAX_LOGPROB_TOKEN_IDS: a request reports at most so many chosen tokens a position.


class FlatLogProbs(Protocol):
    """vLLM's FlatLogprobs: token ids and log-probabilities of all positions in one list, cut by start and end."""

    start_indices: list[int]
    end_indices: list[int]
    token_ids: list[int]
    logprobs: list[float]


def check_request(request: ReadRequest, info: EngineInfo) -> None:
    """Refuse what the engine would answer wrongly or not at all.

    Raises:
        StateTooLong: prompt and canvas exceed the engine's limit; vLLM would silently cut the canvas.
        EngineNotCapable: the canvas is wider than served, or a slot, token or mark lies outside canvas or vocabulary.
    """
    width, length = len(request.canvas_ids), len(request.prompt_ids)
    if length + width > info.max_model_len:
        raise StateTooLong(
            f"the prompt has {length} tokens and its canvas {width}; the engine takes {info.max_model_len} together "
            "(engine.max_model_len)"
        )
    if not 0 < width <= info.canvas_length:
        raise EngineNotCapable(
            f"a read has a canvas of {width} tokens and the engine serves 1 to {info.canvas_length} "
            "(engine.canvas_length)"
        )
    slots = request.slots
    if not slots or list(slots) != sorted(set(slots)) or slots[0] < 0 or slots[-1] >= width:
        raise EngineNotCapable(f"a read's slots must be ascending positions of a canvas of {width}; got {slots}")
    if len(request.mark_ids) != len(slots) or not all(request.mark_ids):
        raise EngineNotCapable(
            f"a read needs marks for each of its {len(slots)} slots; got {len(request.mark_ids)} sets"
        )
    if not length:
        raise EngineNotCapable("a read needs a prompt of at least one token")
    ids = (request.prompt_ids, request.canvas_ids, *request.mark_ids)
    if min(map(min, ids)) < 0 or max(map(max, ids)) >= info.vocab_size:
        raise EngineNotCapable(
            f"a read holds a token id outside of the model's vocabulary of {info.vocab_size}; the plan was compiled "
            "with another tokenizer"
        )


def mark_groups(request: ReadRequest) -> tuple[tuple[int, ...], ...]:
    """The distinct marks of all slots, at most `MAX_MARKS` a group: one engine request each.

    Every group is read off the same prompt and canvas, so their log-probabilities share one softmax denominator.
    """
    union = list(dict.fromkeys(mark for marks in request.mark_ids for mark in marks))
    return tuple(tuple(union[at : at + MAX_MARKS]) for at in range(0, len(union), MAX_MARKS))


def sampling_arguments(request: ReadRequest, marks: Sequence[int]) -> dict[str, Any]:
    """Arguments of vLLM's SamplingParams for one read (all but `output_kind`, which is an enumeration of vLLM's).

    Unconstrained and at temperature 1: vLLM refuses other temperatures for reads, and a constrained read is normalised
    over the marks, so that their mass is lost.
    """
    return {
        "max_tokens": request.slots[-1] + 1,  # positions after the last slot are not sent back
        "temperature": 1.0,
        "ignore_eos": True,  # an end-of-turn token drawn into a canvas must not end the answer before its slot
        "logprob_token_ids": list(marks),
        "detokenize": False,
        "flat_logprobs": True,
        "extra_args": seeded_canvas(request),
    }


def seeded_canvas(request: ReadRequest) -> dict[str, Any]:
    """vLLM's `extra_args` of a canvas that is seeded, denoised once and read only."""
    return {
        "diffusion_seed_canvas": list(request.canvas_ids),
        "diffusion_canvas_length": len(request.canvas_ids),
        "diffusion_max_steps": 1,
        "diffusion_read_only": True,
    }


def read_result(request: ReadRequest, answers: Sequence[FlatLogProbs]) -> ReadResult:
    """Merge the answers of a request's mark groups; NaN is passed on.

    Raises:
        EngineError: a slot or a mark is missing in what the engine sent back.
    """
    rows = []
    for slot, marks in zip(request.slots, request.mark_ids, strict=True):
        found: dict[int, float] = {}
        for answer in answers:
            found.update(_position(answer, slot))
        missing = sum(mark not in found for mark in marks)
        if missing:
            raise EngineError(f"the engine's answer lacks {missing} of {len(marks)} marks at canvas position {slot}")
        rows.append(tuple(found[mark] for mark in marks))
    return ReadResult(tuple(rows))


def _position(answer: FlatLogProbs, slot: int) -> Mapping[int, float]:
    if slot >= len(answer.start_indices):
        raise EngineError(
            f"the engine answered {len(answer.start_indices)} canvas positions and slot {slot} was asked; was the "
            "canvas cut?"
        )
    start, end = answer.start_indices[slot], answer.end_indices[slot]
    return dict(zip(answer.token_ids[start:end], answer.logprobs[start:end], strict=True))
