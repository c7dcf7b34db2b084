"""The process of one engine, seen from the bench that started it."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Child"]

_LOG_TAIL = 3_000  # characters of the log that a failure shows


class Child:
    """Loads when started; measures, and writes its figures into `into`, once it is told that it is its turn."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], into: Path) -> None:
        self._command, self._environment = command, environment
        self._into, self._log = into, into.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._into.unlink(missing_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=dict(self._environment)
            )

    def loaded(self, limit_s: float) -> None:
        """Wait until its engine is there, or will never be: loading would disturb what others measure."""
        assert self._process is not None
        until = time.monotonic() + limit_s
        while not self._into.is_file() and self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.2)

    def finish(self, limit_s: float) -> dict[str, Any]:
        """Let it measure and wait for its end. Whatever it wrote is returned, with `error` when it did not end well."""
        if self._process is None:
            self.start()
        assert self._process is not None
        error = None
        started = time.monotonic()
        try:
            self._process.communicate(b"go\n", timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()
            error = f"not done after {time.monotonic() - started:.0f} s"
        if error is None and self._process.returncode != 0:
            error = f"exit code {self._process.returncode}"
        found: dict[str, Any] = json.loads(self._into.read_text(encoding="utf-8")) if self._into.is_file() else {}
        if error is None:
            return found
        log = self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        return {"ended": error, "log": log, "error": found.get("error", error)} | found
