"""A program beside the demo ends with everything that it has started, however the demo ends."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.demo import child
from deploy.demo.child import running

ROOT = Path(__file__).resolve().parents[2]
WAIT_MS = 20_000

# Starts a child of its own, says its process id and where temporary files go, and then does what `then` says.
PROGRAM = """
import signal, subprocess, sys, tempfile
{before}
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(sleeper.pid, tempfile.gettempdir(), flush=True)
{then}
"""
PARENT = """
import sys
sys.path[0] = {root!r}
from deploy.demo.child import running
with running([sys.executable, "-c", {program!r}], name="test", on_line=lambda line: print(line, flush=True)) as process:
    process.wait()
"""


def program(then: str = "", before: str = "") -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(before=before, then=then)]


def has_ended(pid: int) -> bool:
    """Whether the process ends within the time; it need not be ours."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        return bool(poll.poll(WAIT_MS))
    finally:
        os.close(watched)


def test_lines_and_exit_code_reach_the_caller() -> None:
    lines: list[str] = []
    command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"]
    with running(command, name="test", on_line=lines.append) as process:
        assert process.wait() == 3
    assert sorted(lines) == ["err", "out"]


def test_what_the_program_has_started_ends_with_it() -> None:
    lines: list[str] = []
    with running(program(), name="test", on_line=lines.append) as process:
        assert process.wait() == 0
    sleeper, folder = lines[0].split()
    assert has_ended(int(sleeper))
    assert not Path(folder).exists()


def first_line(lines: list[str]) -> tuple[int, Path]:
    """The sleeper's process id and the folder for temporary files, as soon as the program has said them."""
    while not lines:
        select.select([], [], [], 0.01)
    sleeper, folder = lines[0].split()
    return int(sleeper), Path(folder)


def test_a_failure_in_the_block_ends_the_program() -> None:
    seen: list[tuple[int, Path]] = []

    def fail() -> None:
        lines: list[str] = []
        with running(program(then="signal.pause()"), name="test", on_line=lines.append):
            seen.append(first_line(lines))
            assert seen[0][1].is_dir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    (sleeper, folder) = seen[0]
    assert has_ended(sleeper)
    assert not folder.exists()


def test_a_program_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STOP_S", 0.2)
    lines: list[str] = []
    deaf = program(before="signal.signal(signal.SIGTERM, signal.SIG_IGN)", then="signal.pause()")
    with running(deaf, name="test", on_line=lines.append):
        sleeper, _ = first_line(lines)
    assert has_ended(sleeper)


def test_everything_ends_when_the_demo_is_killed() -> None:
    script = PARENT.format(root=str(ROOT), program=program(then="signal.pause()")[-1])
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        sleeper, folder = parent.stdout.readline().split()
        parent.send_signal(signal.SIGKILL)
    assert has_ended(int(sleeper))
    assert not Path(folder).exists()
