"""Fakes that ship: engines for unit tests, load tests and benchmarks. Their answers mean nothing."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache

from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.stats import EngineStats
from slotstream.schemas.errors import EngineError

__all__ = ["INSTANT_INFO", "HeldEngine", "InstantEngine", "hashed_read", "instant_info"]

INSTANT_INFO = EngineInfo(
    name="instant",
    version="1",
    path="answers from a hash",
    model="none",
    max_model_len=8192,
    canvas_length=256,
    vocab_size=262_144,
)

_TOP = math.log(0.9)


def instant_info(config: EngineConfig) -> EngineInfo:
    """What an instant engine of this configuration claims: the limits that are set, or those that others default to."""
    return replace(INSTANT_INFO, max_model_len=config.max_model_len or 4096, canvas_length=config.canvas_length or 64)


def hashed_read(request: ReadRequest) -> ReadResult:
    """A sound-looking read that depends on the prompt alone, not on the batch: one option gets most of 0.99."""
    seed = hash((request.prompt_ids, request.slots))  # of whole numbers: the same in every process
    return ReadResult(
        tuple(_row(len(marks), (seed >> number % 16) % len(marks)) for number, marks in enumerate(request.mark_ids))
    )


@lru_cache(maxsize=4096)
def _row(options: int, top: int) -> tuple[float, ...]:
    row = [math.log(0.09 / (options - 1))] * options
    row[top] = _TOP
    return tuple(row)


class InstantEngine:
    """An engine whose futures are ready when `submit` returns.

    Args:
        info: what it claims to be.
        read: the answer to a request; raise to fail the read.
    """

    def __init__(self, info: EngineInfo | None = None, read: Callable[[ReadRequest], ReadResult] = hashed_read) -> None:
        self._info = info or INSTANT_INFO
        self._read = read
        self._closed = False
        self._since = time.monotonic()
        self.finished = 0

    @property
    def info(self) -> EngineInfo:
        return self._info

    def submit(self, requests: Sequence[ReadRequest]) -> list["Future[ReadResult]"]:
        if self._closed:
            raise EngineError("the engine is closed")
        return [self._answer(request) for request in requests]

    def _answer(self, request: ReadRequest) -> "Future[ReadResult]":
        future: Future[ReadResult] = Future()
        self._settle(request, future)
        return future

    def _settle(self, request: ReadRequest, future: "Future[ReadResult]") -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = self._read(request)
        except EngineError as error:
            future.set_exception(error)
        else:
            self.finished += 1
            future.set_result(result)

    def stats(self) -> EngineStats:
        """Only what is counted anyway: the rate is over its whole life, and nothing has a step or a queue."""
        seconds = time.monotonic() - self._since
        return EngineStats(self.finished, seconds, in_flight=0, reads_per_s=self.finished / seconds if seconds else 0.0)

    def close(self) -> None:
        self._closed = True


class HeldEngine(InstantEngine):
    """An engine whose reads finish when the test says so: `finish(n)` answers the n oldest.

    held: the reads in flight, oldest first; a cancelled one stays until its turn comes.
    """

    def __init__(self, info: EngineInfo | None = None, read: Callable[[ReadRequest], ReadResult] = hashed_read) -> None:
        super().__init__(info, read)
        self.held: list[tuple[ReadRequest, Future[ReadResult]]] = []

    def stats(self) -> EngineStats:
        return replace(super().stats(), in_flight=len(self.held))

    def _answer(self, request: ReadRequest) -> "Future[ReadResult]":
        future: Future[ReadResult] = Future()
        self.held.append((request, future))
        return future

    def finish(self, count: int = 1) -> None:
        self.finish_only(*range(min(count, len(self.held))))

    def finish_only(self, *places: int) -> None:
        """Answer the reads at these places among those that are held, in this order."""
        chosen = [self.held[place] for place in places]
        for place in sorted(places, reverse=True):
            del self.held[place]  # in place: another thread may be submitting
        for request, future in chosen:
            self._settle(request, future)

    def fail(self, error: EngineError) -> None:
        """The engine dies: every read in flight fails."""
        while self.held:
            _, future = self.held.pop(0)
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def close(self) -> None:
        super().close()
        self.fail(EngineError("the engine is closed"))
