"""Ctrl-C, SIGTERM and a closed terminal: the first one unwinds everything, a second must not cut the clean-up short."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["Stop", "Stopped"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal came. Not an Exception: nobody on the way may take it for a failure."""


class Stop:
    """Takes over the signals when it is made, for the rest of the process.

    number: of the signal that came, 0 before.
    """

    def __init__(self) -> None:
        self.number = 0
        self._deferred = False
        for each in SIGNALS:
            signal.signal(each, self._on_signal)

    def check(self) -> None:
        """Raises Stopped if a signal has come: somebody's code on the way may have swallowed what it raised."""
        if self.number:
            raise Stopped(self.number)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A signal is raised at the end of the block. For short work with Kafka's client: it runs its loop on the
        caller's thread while it connects, keeps every exception to itself there, and then waits for its time-out.
        """
        self.check()
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
            self.check()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        self.number = number
        with suppress(OSError):  # a closed terminal
            os.write(2, b"\nStopping what was started ...\n")  # not print(): it may be what was interrupted
        if not self._deferred:
            raise Stopped(number)
