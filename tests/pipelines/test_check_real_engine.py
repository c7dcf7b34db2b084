"""`slotstream check --engine` with the engine for work: a probe that is read, and a checkpoint that cannot be."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from slotstream.operators.engines.config import PACKAGED_CHECKPOINT
from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import COMMAND

pytestmark = [pytest.mark.broker, pytest.mark.engine, pytest.mark.slow]

QUESTIONS = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "demo" / "tickets.yaml").read_text(encoding="utf-8"))


def checked(config: Path) -> "subprocess.CompletedProcess[str]":
    arguments = [str(COMMAND), "check", "--config", str(config), "--engine"]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=400, check=False)


def test_the_engine_is_started_and_its_probe_read(stream: StreamFactory) -> None:
    done = checked(stream(questions=QUESTIONS, settings={"engine.kind": "vllm", "engine.model": None}).config_file)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"ok"}
    assert "model card: its card knows this decision schema; asked in style compact" in done.stdout
    assert lines[-1].startswith("ok     engine: vllm 0.32.0, ")
    assert "reads tickets; two probe reads differ by " in lines[-1]
    assert "Traceback" not in done.stderr


def test_a_checkpoint_whose_weights_are_cut_short_is_an_error_of_the_engine_alone(
    stream: StreamFactory, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(PACKAGED_CHECKPOINT, tmp_path / "half"))
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000_000])
    done = checked(
        stream(questions=QUESTIONS, settings={"engine.kind": "vllm", "engine.model": str(model)}).config_file
    )
    assert done.returncode == 1, done.stdout + done.stderr
    *others, last = done.stdout.splitlines()
    assert {line.split()[0] for line in others} == {"ok"}
    assert last.startswith("error  engine: ")
    assert "Traceback" not in done.stdout
