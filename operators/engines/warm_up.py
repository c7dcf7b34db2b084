"""Reads of every shape that will occur, before the first record: on a GPU each new shape compiles kernels.

Triton compiles a kernel anew when a size that it takes as a constant changes (how many requests, rows or marks, rounded
up), and when one that it takes as a number becomes 1 or stops being a multiple of 16. One such pause is 0.2 to 3 s, and
every read in flight waits for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from slotstream.operators.engines.protocol import EngineInfo, ReadRequest
from slotstream.operators.engines.read_loop import Reader
from slotstream.schemas.errors import EngineError

__all__ = ["LONGEST_S", "Batch", "batch_reads", "warm_up", "warm_up_batches"]

_LOG = logging.getLogger(__name__)

LONGEST_S = 180.0
"""The warm-up ends after so long, whatever is left: a compiling cache that is cold takes 30 to 60 s on an H200."""

_TELL_EVERY_S = 5.0
_PREFIX = 192  # tokens of prompt that all reads of a warm-up share, as records of one decision schema do
_WIDTHS = (16, 32, 48, 64, 128, 256)  # plans use multiples of 16
_TYPICAL, _SHORT, _LONG = 128, 13, 515  # tokens of a record: a multiple of 16, and two that are none
_ANSWERS = ((1, 2), (3, 4), (8, 5), (1, 77), (16, 3), (1, 255), (24, 2), (2, 10), (5, 4), (1, 128), (12, 7))
# Slots, and marks of each. Eleven, so that a round of in-flight numbers does not always meet the same.
_STEPS_WORTH = 2  # steps of full budget that one batch may take: more of the same teaches nothing


@dataclass(frozen=True, slots=True)
class Batch:
    """Reads that are in flight together. record, canvas: tokens.  slots: of a canvas.  marks: of a slot."""

    reads: int
    record: int
    canvas: int
    slots: int
    marks: int


def warm_up_batches(info: EngineInfo, *, in_flight: int, budget: int) -> tuple[Batch, ...]:
    """The shapes that will occur: most common first, so that what a time limit cuts off is what matters least.

    Args:
        in_flight: most reads that share a step.
        budget: tokens of one step.
    """
    widths = [width for width in _WIDTHS if width < info.canvas_length] + [info.canvas_length]
    counts = [2**power for power in range(in_flight.bit_length()) if 2**power < in_flight] + [in_flight]
    room = info.max_model_len - _PREFIX
    shapes: dict[tuple[int, int, int], None] = {}
    for record in (_TYPICAL, _SHORT, _LONG):
        for width in widths:
            for count in counts:
                length = min(record, room - width)
                fits = max(1, _STEPS_WORTH * budget // (max(1, length) + width))
                if length > 0:
                    shapes[min(count, fits), length, width] = None
    batches = []
    for number, (count, length, width) in enumerate(shapes):
        slots, marks = _ANSWERS[number % len(_ANSWERS)]
        batches.append(Batch(count, length, width, min(slots, width), min(marks, info.vocab_size)))
    return tuple(batches)


def batch_reads(batch: Batch, info: EngineInfo) -> list[ReadRequest]:
    """The reads of a batch: one prefix, and records that no other batch has, so that none comes out of the cache."""
    ids = range(info.vocab_size)
    prefix = Random("prefix").choices(ids, k=_PREFIX)  # noqa: S311 (equal in every process)
    draw = Random(repr(batch))  # noqa: S311
    every = batch.canvas // batch.slots
    return [
        ReadRequest(
            prompt_ids=(*prefix, *draw.choices(ids, k=batch.record)),
            canvas_ids=tuple(draw.choices(ids, k=batch.canvas)),
            slots=tuple(range(every - 1, every * batch.slots, every)),
            mark_ids=(tuple(range(batch.marks)),) * batch.slots,
        )
        for _ in range(batch.reads)
    ]


async def warm_up(
    reader: Reader,
    info: EngineInfo,
    batches: tuple[Batch, ...],
    *,
    limit_s: float = LONGEST_S,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Read the batches one after the other, then some of each together, and say how far it is.

    Returns:
        How many rounds were read within `limit_s`; the mixture is one more than there are batches.

    Raises:
        EngineError: a read failed; the message names the batch.
    """
    if not batches:
        return 0
    rounds = len(batches) + 1
    started = told = clock()
    slowest = 0.0
    for number, (what, requests) in enumerate(_rounds(batches, info)):
        began = clock()
        if began - started > limit_s:
            _LOG.warning(
                "warm-up: stopped after %.0f s with %d of %d batch shapes; the first reads of others may take seconds",
                began - started,
                number,
                rounds,
            )
            return number
        if began - told >= _TELL_EVERY_S:
            _LOG.info("warm-up: %d of %d batch shapes, %.0f s", number, rounds, began - started)
            told = began
        try:
            await asyncio.gather(*map(reader.read, requests))
        except EngineError as error:
            raise EngineError(f"the warm-up's batch {number + 1} of {rounds} ({what}) failed: {error}") from error
        slowest = max(slowest, clock() - began)
    _LOG.info("warm-up: %d batch shapes in %.1f s, the slowest took %.1f s", rounds, clock() - started, slowest)
    return rounds


def _rounds(batches: tuple[Batch, ...], info: EngineInfo) -> Iterator[tuple[str, list[ReadRequest]]]:
    for batch in batches:
        yield str(batch), batch_reads(batch, info)
    yield "all shapes together", [read for batch in batches for read in batch_reads(replace(batch, reads=2), info)]
