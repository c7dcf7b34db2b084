"""A vLLM plugin that lets an engine process end with the process that uses it.

vLLM's engine process outlives a parent that is killed (SIGKILL, out of memory): it keeps its memory, on a GPU nearly
all there is, and the restarted worker finds none. vLLM calls this function in every process of its own (entry point
group `vllm.general_plugins`, see setup.py); it acts only in a child of the process that slotstream named in the
environment.
"""

import ctypes
import os
import signal
import sys

__all__ = ["PARENT_VARIABLE", "end_with_parent"]

PARENT_VARIABLE = "SLOTSTREAM_ENGINE_PARENT"

_PR_SET_PDEATHSIG = 1  # prctl(2): the signal that this process gets when the thread that made it ends


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends. Does nothing in any other process; Linux only."""
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None or str(os.getppid()) != parent or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != parent:  # it ended in between
        os._exit(1)
