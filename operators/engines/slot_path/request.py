"""One read in the slot path's terms: a request becomes sampling arguments, the answer a ReadResult. No vLLM import."""

from typing import Any

from slotstream.operators.engines.protocol import ReadRequest, ReadResult
from slotstream.operators.engines.slot_path.eligible import slot_read
from slotstream.operators.engines.slot_path.names import MARKS_ARG, SLOTS_ARG
from slotstream.operators.engines.slot_read import FlatLogProbs, seeded_canvas
from slotstream.schemas.errors import EngineError, EngineNotCapable

__all__ = ["check_eligible", "slot_arguments", "slot_result"]


def slot_arguments(request: ReadRequest) -> dict[str, Any]:
    """Arguments of vLLM's SamplingParams for one read (all but `output_kind`); every mark of every slot in one go."""
    return {
        "max_tokens": len(request.slots),
        "temperature": 1.0,
        "ignore_eos": True,
        "logprobs": max(map(len, request.mark_ids)),
        "detokenize": False,
        "flat_logprobs": True,
        "extra_args": {
            **seeded_canvas(request),
            SLOTS_ARG: list(request.slots),
            MARKS_ARG: [list(marks) for marks in request.mark_ids],
        },
    }


def check_eligible(params: Any) -> None:
    """Refuse parameters that the worker would quietly run as something else.

    Raises:
        EngineNotCapable: they are no slot read.
    """
    if slot_read(params) is None:
        raise EngineNotCapable(
            "a read's arguments are no slot read for the engine, which would answer other positions than asked. This "
            "is a fault of slotstream: report it; until it is mended, set engine.slot_path: off"
        )


def slot_result(request: ReadRequest, answer: FlatLogProbs) -> ReadResult:
    """The answer's columns: first the most likely token, then the slot's marks in option order; NaN is passed on.

    Raises:
        EngineError: the answer holds other positions or other marks than were asked.
    """
    if len(answer.start_indices) != len(request.slots):
        raise EngineError(
            f"the engine answered {len(answer.start_indices)} positions of the {len(request.slots)} slots asked"
        )
    rows = []
    for slot, marks, start in zip(request.slots, request.mark_ids, answer.start_indices, strict=True):
        first, end = start + 1, start + 1 + len(marks)
        if tuple(answer.token_ids[first:end]) != marks:
            raise EngineError(f"the engine's answer holds other marks than were asked at canvas position {slot}")
        rows.append(tuple(answer.logprobs[first:end]))
    return ReadResult(tuple(rows))
