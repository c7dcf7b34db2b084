"""What an engine does: counted as it happens, told over the last seconds. Costs about a microsecond a read."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["WINDOW_S", "EngineStats", "ReadMeter"]

WINDOW_S = 10
"""How far back rates and means look, whole seconds and the one in progress."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """An engine's figures at one moment. None: nothing of the kind happened lately, or this engine cannot tell.

    reads: finished since it was ready.  seconds: since then.  in_flight: reads that were asked and are not finished.
    slowest_step_ms: the longest of all steps since it was ready.

    Over the last `WINDOW_S`:
    reads_per_s: reads finished.
    tokens_per_read: prompt and canvas, mean; those that came out of the prefix cache count.
    queue_ms: how long a request waited inside the engine before its first step, mean.
    step_ms: from one step's result to the next while reads are in flight, mean.
    prefix_hit_rate: share of the prompts' tokens that the prefix cache held, 0 to 1.
    """

    reads: int
    seconds: float
    in_flight: int
    slowest_step_ms: float | None = None
    reads_per_s: float = 0.0
    tokens_per_read: float | None = None
    queue_ms: float | None = None
    step_ms: float | None = None
    prefix_hit_rate: float | None = None


@dataclass(slots=True)
class _Second:
    """What happened in one second, by its number since the start."""

    number: int
    reads: int = 0
    tokens: int = 0
    queued: int = 0
    queued_s: float = 0.0
    steps: int = 0
    steps_s: float = 0.0
    looked_up: int = 0
    found: int = 0


class ReadMeter:
    """Counts reads and steps; every method may be called from any thread.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._in_flight = 0
        self._step_began = clock()
        self.reset()

    def reset(self) -> None:
        """Forget what was counted: probes and warm-up are no work. Reads in flight stay."""
        with self._lock:
            self._since = self._clock()
            self._reads = 0
            self._slowest_s: float | None = None
            self._lately: deque[_Second] = deque(maxlen=WINDOW_S + 1)

    def started(self) -> None:
        """A read was handed to the engine."""
        with self._lock:
            if not self._in_flight:
                self._step_began = self._clock()  # it was idle: no step had begun
            self._in_flight += 1

    def ended(self, tokens: int | None) -> None:
        """A read is over.

        Args:
            tokens: of its prompt and canvas; None when it was aborted or failed.
        """
        with self._lock:
            self._in_flight -= 1
            if tokens is not None:
                second = self._second()
                self._reads += 1
                second.reads += 1
                second.tokens += tokens

    def stepped(self) -> None:
        """The engine gave a step's result."""
        with self._lock:
            now = self._clock()
            took, self._step_began = now - self._step_began, now
            if not self._in_flight:
                return  # the last steps of reads that were aborted
            self._slowest_s = max(took, self._slowest_s or 0.0)
            second = self._second()
            second.steps += 1
            second.steps_s += took

    def queued(self, seconds: float) -> None:
        """A request's wait between its arrival in the engine and its first step."""
        with self._lock:
            second = self._second()
            second.queued += 1
            second.queued_s += seconds

    def looked_up(self, tokens: int, found: int) -> None:
        """So many prompt tokens were looked up in the prefix cache, and so many were there."""
        with self._lock:
            second = self._second()
            second.looked_up += tokens
            second.found += found

    def stats(self) -> EngineStats:
        """The figures now."""
        with self._lock:
            seconds = self._clock() - self._since
            first = int(seconds) - WINDOW_S + 1
            lately = [second for second in self._lately if second.number >= first]
            reads = sum(second.reads for second in lately)
            return EngineStats(
                reads=self._reads,
                seconds=seconds,
                in_flight=self._in_flight,
                slowest_step_ms=None if self._slowest_s is None else self._slowest_s * 1000,
                reads_per_s=reads / window if (window := seconds - max(0, first)) > 0 else 0.0,
                tokens_per_read=_mean(sum(second.tokens for second in lately), reads),
                queue_ms=_mean(sum(s.queued_s for s in lately) * 1000, sum(s.queued for s in lately)),
                step_ms=_mean(sum(s.steps_s for s in lately) * 1000, sum(s.steps for s in lately)),
                prefix_hit_rate=_mean(sum(s.found for s in lately), sum(s.looked_up for s in lately)),
            )

    def _second(self) -> _Second:
        number = int(self._clock() - self._since)
        if not self._lately or self._lately[-1].number != number:
            self._lately.append(_Second(number))
        return self._lately[-1]


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
