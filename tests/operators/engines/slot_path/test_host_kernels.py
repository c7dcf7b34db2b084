"""The host kernels do what vLLM's Triton kernels do, in the interpreter, which runs in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from slotstream.operators.engines.slot_path import gate

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("kernel_comparison.py")
ROUNDING = 1e-5


def test_every_kernel_gives_what_the_one_it_replaces_gives() -> None:
    pytest.importorskip("vllm.version", reason="vLLM is not installed")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=300, check=True)
    gaps = {name: float(gap) for name, gap in (line.split() for line in done.stdout.splitlines())}
    assert len(gaps) == 8
    assert max(gaps.values()) < ROUNDING, gaps
    assert {name for name, gap in gaps.items() if gap} <= {"_topk_log_softmax_kernel"}


def test_the_plugin_is_installed_under_the_name_that_the_gate_looks_for() -> None:
    assert gate.choose_path("auto", "0.32.0").kind == "slot"
