"""The probe: one read asked again proves that an engine reads canvases, repeatably, before a record meets it."""

import math
from collections.abc import Sequence
from concurrent.futures import Future

from slotstream.operators.engines.protocol import Engine, EngineInfo, ReadRequest, ReadResult
from slotstream.schemas.errors import EngineError, EngineNotCapable

__all__ = ["PROBE_READS", "check_probe", "default_probe", "probe"]

PROBE_READS = 3

_LARGEST_CHANGE = 1e-3
# Of a probability between two reads of one request. An engine that ignored the seeded canvas would draw its noise anew.


def default_probe(info: EngineInfo) -> ReadRequest:
    """A read that suits any model: it says nothing about answers, only that a canvas is read."""
    marks = tuple(range(min(8, info.vocab_size)))
    width = min(16, info.canvas_length)
    spread = info.vocab_size * 5 // 8 or 1
    return ReadRequest(
        prompt_ids=tuple((7 * i + 3) % info.vocab_size for i in range(min(32, info.max_model_len - width))),
        canvas_ids=tuple((spread * (i + 1)) % info.vocab_size for i in range(width)),
        slots=(0, width - 1) if width > 1 else (0,),
        mark_ids=(marks, marks) if width > 1 else (marks,),
    )


def probe(engine: Engine, request: ReadRequest | None = None, *, timeout_s: float = 300.0) -> ReadResult:
    """Read `request` three times, one after the other, and check the last two, which both meet a warm prefix cache.

    Args:
        request: a plan's own read, which also warms its prefix; unset: `default_probe`.

    Raises:
        EngineNotCapable: the reads do not repeat, or the request does not fit the engine.
        EngineError: a read failed, took too long, or holds a value that is no log-probability.
    """
    asked = request or default_probe(engine.info)
    return check_probe([_wait(engine.submit([asked])[0], timeout_s) for _ in range(PROBE_READS)], engine.info)


def check_probe(results: Sequence[ReadResult], info: EngineInfo) -> ReadResult:
    """Check the last two reads of one request; returns the last. Raises as `probe` does."""
    first, second = ([value for slot in result.log_probs for value in slot] for result in results[-2:])
    for value in (*first, *second):
        if not value <= 1e-3:  # also true of NaN; rounding may lift a log-probability just above 0
            raise EngineError(f"the probe of model {info.model!r} reads {value}, which is no log-probability")
    change = max(abs(math.exp(a) - math.exp(b)) for a, b in zip(first, second, strict=True))
    if change > _LARGEST_CHANGE:
        raise EngineNotCapable(
            f"{info.name} {info.version} read one request twice and a probability changed by {change:.2g} (at most "
            f"{_LARGEST_CHANGE:g}): it does not take a seeded canvas. Install the vLLM version that slotstream names"
        )
    return results[-1]


def _wait(future: "Future[ReadResult]", timeout_s: float) -> ReadResult:
    try:
        return future.result(timeout_s)
    except TimeoutError as error:
        future.cancel()
        raise EngineError(f"the probe read did not finish within {timeout_s:g} s") from error
