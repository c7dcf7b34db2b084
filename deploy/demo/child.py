"""A program that runs beside the demo, and that is surely ended with everything it has started."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from deploy.local.service import GUARD

__all__ = ["STOP_S", "running"]

STOP_S = 30.0
"""How long the program may take to end after SIGTERM."""


@contextmanager
def running(
    command: Sequence[str], *, name: str, on_line: Callable[[str], object]
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, for the length of a `with` block; `on_line` gets each line that it prints, on a thread.

    It has a session of its own, so that Ctrl-C reaches the demo alone; at the end of the block it gets SIGTERM if it
    still runs, then its whole process group is killed: an engine has children. The guard ends it if the demo is killed.
    Its temporary files go to a folder of its own, which is removed.
    """
    scratch = tempfile.mkdtemp(prefix=f"slotstream-{name}-")  # on disk: /dev/shm may hold no programs (noexec)
    # With byte code kept, the engine's own process imports vLLM in half the time: its parent has just compiled it.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    guarded = [sys.executable, "-S", "-E", str(GUARD), str(os.getpid()), scratch, *command]
    process = subprocess.Popen(
        guarded,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment | {"TMPDIR": scratch, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    pump = threading.Thread(target=_pump, args=(process.stdout, on_line), name=f"{name}-output", daemon=True)
    pump.start()
    try:
        yield process
    finally:
        _end(process)
        pump.join()  # whoever held the other end of the pipe is gone
        process.stdout.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _pump(output: IO[bytes], on_line: Callable[[str], object]) -> None:
    for line in output:
        on_line(line.decode(errors="replace").rstrip())


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with suppress(ProcessLookupError):  # nobody of the group is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
