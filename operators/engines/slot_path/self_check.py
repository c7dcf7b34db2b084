"""The start-up proof of the slot path: one read of the served model by both codes, compared."""

import logging
import math

from slotstream.operators.engines.protocol import ReadResult
from slotstream.schemas.errors import EngineNotCapable

__all__ = ["CPU_BOUND", "GPU_BOUND", "check_gap", "largest_gap"]

_LOG = logging.getLogger(__name__)

CPU_BOUND = 1e-4
"""Nats, float32: the two codes add up the same numbers in another order."""

GPU_BOUND = 1.0
"""Nats: in bfloat16 the batch that a read shares moves vLLM's own values by tenths; a wrong row moves them by more."""


def largest_gap(one: ReadResult, other: ReadResult) -> float:
    """Largest difference of a log-probability, nats; NaN if there is one."""
    gaps = [
        abs(a - b)
        for row, other_row in zip(one.log_probs, other.log_probs, strict=True)
        for a, b in zip(row, other_row, strict=True)
    ]
    return math.nan if any(map(math.isnan, gaps)) else max(gaps)  # `max` may pass a NaN over


def check_gap(slot: ReadResult, stock: ReadResult, *, exact: bool) -> float:
    """Compare the two reads of one request; returns the gap and logs it.

    Args:
        exact: the model runs in float32, so that only rounding may differ.

    Raises:
        EngineNotCapable: they differ by more than rounding explains, or one of them is no number.
    """
    gap = largest_gap(slot, stock)
    bound = CPU_BOUND if exact else GPU_BOUND
    _LOG.info("slot path: a log-probability differs from vLLM's own by %.2g nats at most (bound %g)", gap, bound)
    if not gap <= bound:  # also true of NaN
        raise EngineNotCapable(
            f"the slot path and vLLM's own code read one canvas differently: {gap:.3g} nats, at most {bound:g}; set "
            "engine.slot_path: off, and report it with the model's name"
        )
    return gap
