"""SIGTERM and Ctrl-C: finish what is in flight, commit, leave, exit 0; a second signal exits at once."""

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

__all__ = ["Shutdown", "StoppedAtStart"]

_log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CLOSING_S = 4.5
"""How long leaving the group and closing clients may take after the records in flight; then the process just ends."""


class StoppedAtStart(BaseException):
    """A signal came before the first record: there is nothing to finish. Not an error."""


class Shutdown:
    """Handles signals while a `with` block runs. Light to import, so that it can begin before anything heavy is.

    Until `started`, a signal raises StoppedAtStart in the main thread; from then on it sets the event given there.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._stop: threading.Event | None = None
        self._timeout_s = 0.0
        self._abort: Callable[[], None] = lambda: None
        self._timers: list[threading.Timer] = []
        self._before: dict[int, object] = {}

    def started(self, stop: threading.Event, *, timeout_s: float, abort: Callable[[], None]) -> None:
        """Records may come now.

        Args:
            stop: set by the first signal; the epoch loop looks at it.
            timeout_s: how long records in flight may take after it.
            abort: called when that time is over: makes what is in flight fail; the next run reads it again.
        """
        self._timeout_s, self._abort, self._stop = timeout_s, abort, stop

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in self._timers:
            timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signalled:
            os.write(2, b"second signal: exiting at once; records in flight will be read again\n")
            os._exit(1)
        self._signalled = True
        self._later(self._timeout_s + CLOSING_S, self._end)
        name = signal.Signals(number).name
        if self._stop is None:
            raise StoppedAtStart(name)
        self._stop.set()
        self._later(self._timeout_s, self._give_up)
        _log.info("%s: finishing what is in flight (at most %g s)", name, self._timeout_s)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _give_up(self) -> None:
        _log.warning("records in flight did not finish within run.shutdown_timeout_s (%g s)", self._timeout_s)
        self._abort()

    def _end(self) -> None:
        _log.error("closing takes too long: the process ends here; records in flight will be read again")
        os._exit(1)
