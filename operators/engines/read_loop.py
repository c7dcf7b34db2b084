"""Reads on an event loop of their own: one thread, coalesced hand-over, futures that can be waited for anywhere."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.stats import EngineStats, ReadMeter
from slotstream.schemas.errors import EngineError, SlotstreamError

__all__ = ["ReadLoop", "Reader"]

_LOG = logging.getLogger(__name__)
_NOT_STARTED = "it is not started"
_ABORT_S = 10.0  # how long a closing loop waits for the reads that it gave up


class Reader(Protocol):
    """What runs reads on the loop. Opened, used and closed on the loop's thread only."""

    async def read(self, request: ReadRequest) -> ReadResult:
        """One read. Cancelling it aborts the work. Raises EngineError for what is the engine's fault."""
        ...

    def failure(self) -> str | None:
        """Why no further read can succeed, or None while the engine lives."""
        ...

    def close(self) -> None:
        """Stop and free everything."""
        ...


class ReadLoop:
    """An `Engine` that runs a `Reader` on a thread with an event loop.

    `submit` appends to a queue and wakes the loop at most once for all that waits there: one `run_coroutine_threadsafe`
    a read would cost 184 microseconds, this costs 49.

    Args:
        open_reader: makes the reader, on the loop's thread; it may take minutes.
        info: what the engine says of itself.
        meter: counts the reads; what the reader knows besides, it puts there itself.
    """

    def __init__(
        self, open_reader: Callable[[], Awaitable[Reader]], info: EngineInfo, meter: ReadMeter | None = None
    ) -> None:
        self._open_reader = open_reader
        self._info = info
        self._meter = meter or ReadMeter()
        self._lock = threading.Lock()
        self._inbox: deque[tuple[ReadRequest | None, Future[ReadResult]]] = (
            deque()
        )  # no request: abort the future's read
        self._woken = False
        self._refusal: str | None = _NOT_STARTED
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._reader: Reader | None = None
        self._reading: dict[Future[ReadResult], asyncio.Task[ReadResult]] = {}
        self._opened: Future[None] = Future()
        # A daemon, because Python joins other threads before atexit hooks, and such a hook is what closes the engine.
        self._thread = threading.Thread(target=self._run, name=f"slotstream-{info.name}", daemon=True)
        self.finished = 0

    @property
    def info(self) -> EngineInfo:
        return self._info

    def stats(self) -> EngineStats:
        """What it does, over the last seconds; the opening does not count."""
        return self._meter.stats()

    def start(self, timeout_s: float) -> None:
        """Open the reader and wait until it is there.

        Raises:
            EngineError: it did not start in time, or failed in a way that no other class of the tree names.
            SlotstreamError: as `open_reader` raised it.
        """
        self._thread.start()
        try:
            self._opened.result(timeout_s)
        except SlotstreamError:
            raise
        except Exception as error:
            if not self._opened.done():
                self._refuse("it did not start in time")
                raise EngineError(
                    f"the engine did not start within {timeout_s:g} s (engine.start_timeout_s)"
                ) from error
            raise EngineError(f"the engine did not start: {type(error).__name__}: {error}") from error

    def submit(self, requests: Sequence[ReadRequest]) -> list["Future[ReadResult]"]:
        """Queue reads and return at once. Raises EngineError when the engine is closed or dead."""
        futures: list[Future[ReadResult]] = []
        with self._lock:
            if self._refusal is not None:
                raise EngineError(f"the engine takes no reads: {self._refusal}")
            for request in requests:
                future: Future[ReadResult] = Future()
                future.add_done_callback(self._abort_if_cancelled)
                self._inbox.append((request, future))
                futures.append(future)
            self._wake()
        return futures

    def close(self, timeout_s: float = 60.0) -> None:
        """Fail what is in flight, close the reader, end the thread. Idempotent; callable from any thread."""
        self._refuse("it is closed")
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _refuse(self, reason: str) -> None:
        """Take no more reads and stop; the first reason stays."""
        with self._lock:
            if self._refusal is None or self._refusal == _NOT_STARTED:
                self._refusal = reason
            if self._loop is not None and self._stop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stop.set)

    def _wake(self) -> None:
        if not self._woken and self._loop is not None:
            self._woken = True
            self._loop.call_soon_threadsafe(self._take)

    def _abort_if_cancelled(self, future: "Future[ReadResult]") -> None:
        if not future.cancelled():
            return
        with self._lock:
            if self._refusal is None:
                self._inbox.append((None, future))
                self._wake()

    # From here on everything runs on the loop's thread.

    def _take(self) -> None:
        assert self._reader is not None
        assert self._loop is not None
        with self._lock:
            self._woken = False
            taken = list(self._inbox)
            self._inbox.clear()
        for request, future in taken:
            if request is None:
                if reading := self._reading.get(future):
                    reading.cancel()
            elif future.cancelled():
                future.set_running_or_notify_cancel()  # who waits for it with others hears of it only now
            else:
                task = asyncio.ensure_future(self._reader.read(request), loop=self._loop)
                self._reading[future] = task
                self._meter.started()
                tokens = len(request.prompt_ids) + len(request.canvas_ids)
                task.add_done_callback(partial(self._settle, future, tokens))

    def _settle(self, future: "Future[ReadResult]", tokens: int, task: "asyncio.Task[ReadResult]") -> None:
        del self._reading[future]
        error = EngineError(f"the read was given up: {self._refusal}") if task.cancelled() else task.exception()
        if error is None:
            self.finished += 1
        self._meter.ended(tokens if error is None else None)
        if not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(task.result())
            return
        if not isinstance(error, SlotstreamError):
            cause, error = error, EngineError(f"the engine failed in a read: {type(error).__name__}: {error}")
            error.__cause__ = cause
        future.set_exception(error)
        if self._reader is not None and (reason := self._reader.failure()):
            self._refuse(f"it died: {reason}")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            # The thread's end, also by vLLM's sys.exit: everyone who waits must hear of it.
            if self._opened.done():
                _LOG.exception("the engine's loop ended")
            else:
                self._opened.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            self._refuse(f"its loop ended with {type(error).__name__}")
        self._give_up_waiting()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._reader = await self._open_reader()
        self._meter.reset()
        try:
            with self._lock:
                if self._refusal == _NOT_STARTED:
                    self._refusal = None
                    self._loop = asyncio.get_running_loop()
                else:
                    self._stop.set()
            self._opened.set_result(None)
            await self._stop.wait()
            self._give_up_waiting()
            for task in self._reading.values():
                task.cancel()
            if self._reading:
                await asyncio.wait(list(self._reading.values()), timeout=_ABORT_S)
        finally:
            self._reader.close()
            self._reader = None

    def _give_up_waiting(self) -> None:
        with self._lock:
            waiting = [future for request, future in self._inbox if request is not None]
            self._inbox.clear()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(EngineError(f"the read was given up: {self._refusal}"))
