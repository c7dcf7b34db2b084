"""What cannot be a checkpoint is told at once, by what it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from slotstream.operators.checkpoint import check_checkpoint
from slotstream.operators.engines.config import EngineConfig
from slotstream.schemas.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`empty`, `a-file`, `good` with a config.json, and `nest`, whose only folder has one."""
    for name in ("empty", "good", "nest/inside"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("good", "nest/inside"):
        (tmp_path / name / "config.json").write_text(json.dumps({}))
    (tmp_path / "a-file").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nope", "nope', and there is no such folder"),
        ("no/such/folder", "and there is no such folder"),
        ("a-file", "a-file', a file: name the checkpoint's folder"),
        ("empty", "empty', a folder without a config.json: name a DiffusionGemma checkpoint's folder"),
        ("nest", "a folder without a config.json; did you mean '.*nest/inside'?"),
    ],
)
@pytest.mark.parametrize("kind", ["vllm", "transformers"])
def test_what_is_no_checkpoint_is_named_with_what_it_is(folder: Path, name: str, told: str, kind: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^engine\.model \(decide: --model\) is '.*{told}"):
        check_checkpoint(EngineConfig(kind=kind, model=str(folder / name)))


@pytest.mark.parametrize("model", ["nope", "./nope", "../nope/x", "~/nope", "a/b/c", "/nope"])
def test_what_can_be_no_hub_id_must_be_a_folder(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="there is no such folder"):
        check_checkpoint(EngineConfig(model=model))


def test_a_checkpoint_the_packaged_one_and_a_hub_id_pass(folder: Path) -> None:
    check_checkpoint(EngineConfig(model=str(folder / "good")))
    check_checkpoint(EngineConfig())
    check_checkpoint(EngineConfig(model="google/some-model.1"))


def test_the_instant_engine_needs_no_model_in_its_folder(folder: Path) -> None:
    check_checkpoint(EngineConfig(kind="instant", model=str(folder / "empty")))
    with pytest.raises(ConfigError, match="no such folder"):
        check_checkpoint(EngineConfig(kind="instant", model=str(folder / "nope")))
