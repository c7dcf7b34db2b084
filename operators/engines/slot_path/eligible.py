"""What a slot read is: the one place where operator, scheduler and worker decide it. Pure: no vLLM import.

A request that names slots but is no slot read would run as an ordinary request, without a word, and its answer would
hold other positions than the asker believes. So the operator refuses such a request before it submits it (`request`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from slotstream.operators.engines.slot_path.names import MARKS_ARG, SLOTS_ARG

__all__ = ["SlotRead", "slot_read"]


@dataclass(frozen=True, slots=True)
class SlotRead:
    """One canvas, the positions to read in it, and for each the token ids whose log-probabilities are sent back."""

    canvas: Sequence[int]
    slots: Sequence[int]
    marks: Sequence[Sequence[int]]

    @property
    def widest(self) -> int:
        """Marks of the slot that has most."""
        return max(map(len, self.marks))


def slot_read(params: Any) -> SlotRead | None:
    """The slot read that vLLM's SamplingParams describe; None for every other request.

    It must be a seeded canvas that is denoised once and read only, unconstrained and without pins; the answer has as
    many positions as there are slots, and as many columns as the widest set of marks (`logprobs` is that number: it is
    how many columns vLLM's front end keeps, and nothing is ranked here).
    """
    extra = getattr(params, "extra_args", None)
    if not extra or not extra.get(SLOTS_ARG):
        return None
    read = SlotRead(extra.get("diffusion_seed_canvas") or (), extra[SLOTS_ARG], extra.get(MARKS_ARG) or ())
    width, slots = len(read.canvas), read.slots
    one_step = (
        extra.get("diffusion_max_steps") == 1
        and bool(extra.get("diffusion_read_only"))
        and not extra.get("diffusion_constrained")
        and not extra.get("diffusion_pinned")
        and extra.get("diffusion_canvas_length") == width
    )
    inside = slots[0] >= 0 and slots[-1] < width and all(a < b for a, b in pairwise(slots))
    if not one_step or not inside or len(read.marks) != len(slots) or not all(read.marks):
        return None
    answer = (
        params.max_tokens == len(slots)
        and params.logprobs == read.widest
        and not params.logprob_token_ids
        and params.prompt_logprobs is None
    )
    return read if answer else None
