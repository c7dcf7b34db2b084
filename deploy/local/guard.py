"""Runs one command for as long as its parent process lives; standard library only, so that it starts in 20 ms.

    python guard.py PARENT_PID SCRATCH_DIR COMMAND...

Why a process in between: a parent that dies of SIGKILL, of the default SIGTERM or of `os._exit` runs no `finally` and
no `atexit`, and a broker left behind holds memory and ports until somebody finds it. PR_SET_PDEATHSIG on the broker
alone is not enough: it fires when the *thread* that started the child ends (a broker restarted from a test's fault
thread would die with that thread), and it needs a `preexec_fn`, which may deadlock in a parent that has threads (vLLM,
Beam). So this single-threaded process watches the parent; when the parent is gone it kills the command with everything
that the command has started (an engine has children), and removes its data.

SIGTERM is passed on to the command, SIGUSR1 kills it; either way the guard ends only after the command has, so that
whoever waits for the guard finds the command's ports free. The guard leads a session of its own: Ctrl-C in the terminal
reaches the parent alone, which then stops things in order.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys

__all__ = ["main"]

POLL_S = 0.2
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Runs the command; returns its exit code, or 1 after the parent's death."""
    parent, scratch, command = int(arguments[0]), arguments[1], arguments[2:]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_guard)  # noqa: PLW1509
    signal.signal(signal.SIGTERM, lambda _number, _frame: child.terminate())
    signal.signal(signal.SIGUSR1, lambda _number, _frame: child.kill())
    while True:
        try:
            return child.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                break
    child.kill()
    child.wait()
    shutil.rmtree(scratch, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # the group is this guard's own, as for everybody who starts it in a session
        os.killpg(0, signal.SIGKILL)  # the command's children, and this guard
    return 1


def _die_with_guard() -> None:
    """If the guard itself is killed, its command goes too (safe here: the guard has one thread)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
