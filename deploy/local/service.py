"""A server process that is started, waited for until it answers, and surely stopped."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from deploy.local.maven import CACHE

__all__ = ["LOOPBACK", "Service", "StartError", "free_ports", "scratch_dir"]

LOOPBACK = "127.0.0.1"
GUARD = Path(__file__).with_name("guard.py")
LOGS = CACHE.parent / "logs"
KEPT_LOGS = 20  # of one name
POLL_S = 0.05
TMPFS = Path("/dev/shm")  # noqa: S108 (mkdtemp makes the name, and only its owner may enter)
TMPFS_NEEDED_BYTES = 2 << 30


class StartError(Exception):
    """A server of the local stack did not come up; the message holds the end of its log."""


class Service:
    """One server process under a guard (guard.py says why); a context manager that ends it whatever happens.

    name: for messages and the log file's name.
    command: program and arguments.
    ready: called until it returns True; it asks the server something real, and returns False while there is no answer.
    scratch: the server's data folder; removed at the end, by the guard if this process is killed.
    timeout_s: longest wait for `ready`.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, ready: Callable[[], bool], scratch: Path, timeout_s: float = 120.0
    ) -> None:
        self.name = name
        self.scratch = scratch
        LOGS.mkdir(parents=True, exist_ok=True)
        for old in sorted(LOGS.glob(f"{name}-*.log"), key=_age)[KEPT_LOGS:]:
            old.unlink(missing_ok=True)
        self.log = LOGS / f"{name}-{os.getpid()}-{scratch.name}.log"
        self._command = list(command)
        self._ready = ready
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Service":
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the process and returns when it answers. Raises StartError if it ends or stays silent."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Starts the process without waiting, so that several can come up at the same time."""
        if self.running:
            raise StartError(f"{self.name} is running already.")
        if not self.scratch.is_dir():
            raise StartError(f"{self.name} cannot start: its data were removed when its `with` block ended.")
        guarded = [sys.executable, "-S", "-E", str(GUARD), str(os.getpid()), str(self.scratch), *self._command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                guarded, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until_ready(self) -> None:
        """Returns when the server answers. Raises StartError if it ends or stays silent."""
        deadline = time.monotonic() + self._timeout_s
        while not self._ready():
            if not self.running:
                raise StartError(f"{self.name} ended before it answered.{self._log_tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} did not answer within {self._timeout_s:.0f} s.{self._log_tail()}")
            time.sleep(POLL_S)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Asks the server to end (SIGTERM), kills it after `timeout_s`; its data stay."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends the server at once (SIGKILL), as a power cut would; its data stay, its ports are free."""
        if self._process is not None:
            self._process.send_signal(signal.SIGUSR1)  # the guard kills the server and waits for its end
            self._process.wait()

    def log_text(self) -> str:
        """What the server has printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _end(self) -> None:
        self.kill()  # the data go next, so there is nothing to save
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _log_tail(self) -> str:
        tail = "\n".join(self.log_text().splitlines()[-20:])
        return f" Log: {self.log}; its end:\n{tail}"


def _age(file: Path) -> float:
    """For sorting, the youngest first; a file that somebody else has just removed counts as old."""
    try:
        return -file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nothing listens on now.

    They are picked below the range that outgoing connections use (32768 and up), so that a server that is killed and
    restarted finds its port free. Somebody else may still take one in between: who starts a server tries again.
    """
    ports: set[int] = set()
    for port in random.sample(range(20_000, 32_000), 1_000):
        if len(ports) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        ports.add(port)
    return sorted(ports)


def scratch_dir(name: str) -> Path:
    """A new empty folder, in memory where there is enough of it (a broker's fsyncs then cost nothing), else on disk."""
    in_memory = TMPFS.is_dir() and os.access(TMPFS, os.W_OK) and shutil.disk_usage(TMPFS).free > TMPFS_NEEDED_BYTES
    return Path(tempfile.mkdtemp(prefix=f"slotstream-{name}-", dir=TMPFS if in_memory else None))
