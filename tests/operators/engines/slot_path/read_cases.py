"""The reads that both paths answer, and the other requests that share their batches. The same in every process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from slotstream.operators.engines.protocol import ReadRequest
from tests.examples import NOUL, choice_of, example_plan, example_schema
from tests.operators.engines.conftest import RequestMaker
from tests.operators.engines.tiny_checkpoint import VOCAB_SIZE

__all__ = ["CANVAS_LENGTH", "MAX_MODEL_LEN", "OtherRequest", "other_requests", "reads"]

CANVAS_LENGTH = 64
MAX_MODEL_LEN = 4096


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """What is no slot read. settled: its answer is the same in every run, so that it can be compared."""

    prompt_ids: tuple[int, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    settled: bool = True


def reads() -> list[ReadRequest]:
    """Widths, slots and mark sets of every kind, shared prefixes, long prompts, and a plan's read of 255 options."""
    make = RequestMaker(7)
    marks = cycle((1, 2, 17, 128))
    found = [
        make(20 + 7 * number, width, slots, next(marks))
        for number, (width, slots) in enumerate((w, s) for w in (16, 32, 64) for s in (1, 2, 5, 8))
    ]
    found += [make(50, 16, 2, 200), make(60, 32, 1, 255)]
    prefix = make(100, 1, 1, 1).prompt_ids
    found += [make(length, 16, 2, 17, prefix=prefix) for length in (101, 110, 130, 140)]
    found += [make(length, 32, 3, 5) for length in (300, 350, 400)]
    found += [make(length, 16, 2, 5) for length in (129, 257)]  # one token after whole blocks, which a cache then holds
    return [*found, _plans_read()]


def other_requests() -> list[OtherRequest]:
    """Generated text, a read that is constrained to its marks, a read of the most likely tokens at every position."""
    make = RequestMaker(8)
    read = make(40, 32, 2, 9)
    seeded = {
        "diffusion_seed_canvas": list(read.canvas_ids),
        "diffusion_canvas_length": 32,
        "diffusion_max_steps": 1,
        "diffusion_read_only": True,
    }
    plain = {"temperature": 1.0, "detokenize": False}
    constrained = {
        "logprob_token_ids": list(read.mark_ids[0]),
        "max_tokens": 32,
        "extra_args": {**seeded, "diffusion_constrained": True},
    }
    ranked = {"logprobs": 5, "max_tokens": 32, "extra_args": seeded}
    return [
        OtherRequest(make(50, 1, 1, 1).prompt_ids, {**plain, "max_tokens": 70, "ignore_eos": True}, settled=False),
        OtherRequest(read.prompt_ids, {**plain, **constrained}),
        OtherRequest(make(33, 1, 1, 1).prompt_ids, {**plain, **ranked}),
    ]


def _plans_read() -> ReadRequest:
    """A plan's own read of 255 options and a yes/no question, its ids numbered anew to fit the tiny vocabulary."""
    plan = example_plan(example_schema({"long": choice_of(255), "short": NOUL}), canvas_length=CANVAS_LENGTH)
    (request,) = plan.reads("a text").requests
    ids = sorted({*request.prompt_ids, *request.canvas_ids, *(mark for marks in request.mark_ids for mark in marks)})
    assert len(ids) <= VOCAB_SIZE
    number = {token_id: at for at, token_id in enumerate(ids)}
    return ReadRequest(
        prompt_ids=tuple(number[i] for i in request.prompt_ids),
        canvas_ids=tuple(number[i] for i in request.canvas_ids),
        slots=request.slots,
        mark_ids=tuple(tuple(number[i] for i in marks) for marks in request.mark_ids),
    )
