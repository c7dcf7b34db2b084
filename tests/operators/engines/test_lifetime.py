"""The engine process ends with the process that uses it; no other process is touched."""

import os
import signal
import subprocess
import sys

import pytest

from slotstream.operators.engines.lifetime import PARENT_VARIABLE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")

CHILD = """
import ctypes, sys
from slotstream.operators.engines.lifetime import end_with_parent
end_with_parent()
signal = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(signal))  # PR_GET_PDEATHSIG
print(signal.value)
"""


def death_signal(parent: str | None) -> int:
    named = {} if parent is None else {PARENT_VARIABLE: parent}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=named, capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


def test_a_child_of_the_named_process_is_killed_with_it() -> None:
    assert death_signal(str(os.getpid())) == signal.SIGKILL


@pytest.mark.parametrize("parent", [None, "1", "not a number"])
def test_any_other_process_is_left_alone(parent: str | None) -> None:
    assert death_signal(parent) == 0
