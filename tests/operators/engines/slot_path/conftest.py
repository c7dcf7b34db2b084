"""vLLM's own answers to every read case, computed once, in a process that knows nothing of the slot path."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.operators.engines.slot_path.read_cases import CANVAS_LENGTH, MAX_MODEL_LEN
from tests.operators.engines.tiny_checkpoint import write_tiny_checkpoint

__all__ = ["EngineRun"]

SCRIPT = Path(__file__).with_name("engine_process.py")

EngineRun = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def wide_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vllm.version", reason="vLLM is not installed")
    folder = tmp_path_factory.mktemp("slot_path") / "wide"
    return write_tiny_checkpoint(folder, canvas_length=CANVAS_LENGTH, max_positions=MAX_MODEL_LEN)


@pytest.fixture(scope="session")
def run_engine(wide_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> EngineRun:
    """Runs one engine process: slot_path setting, situations, overrides of vLLM's arguments -> its JSON."""

    def run(setting: str, situations: str, **overrides: Any) -> dict[str, Any]:
        out = tmp_path_factory.mktemp("answers") / "answers.json"
        told = (setting, str(wide_checkpoint), str(out), situations, json.dumps(overrides))
        # Triton looks once, when torch imports it, whether it is to interpret.
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SCRIPT), *told]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    return run


@pytest.fixture(scope="session")
def stock_answers(run_engine: EngineRun) -> dict[str, Any]:
    answers: dict[str, Any] = run_engine("off", "stock")["answers"]["stock"]
    return answers
