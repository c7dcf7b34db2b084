"""What the README shows works: its schema and configuration load, its commands parse, its code runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slotstream.operators.kafka.sink import SinkConfig
from slotstream.pipelines.cli import main
from slotstream.pipelines.config import load_config
from slotstream.schemas.decision import load_decision_schema
from slotstream.schemas.fields import DecisionFields

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced code blocks of one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def slotstream_commands() -> list[list[str]]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [line.split("|")[-1].split("#")[0] for line in lines if "slotstream " in line]
    return [shlex.split(command)[1:] for command in commands]


def test_the_decision_schema_of_the_readme_loads(tmp_path: Path) -> None:
    path = tmp_path / "triage.yaml"
    path.write_text(blocks("yaml")[0], encoding="utf-8")
    schema = load_decision_schema(path)
    assert [(question.id, question.type) for question in schema.questions] == [
        ("urgent", "noul"),
        ("topic", "choice"),
        ("severity", "score"),
    ]


def test_the_smallest_configuration_of_the_readme_loads(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(blocks("yaml")[1], encoding="utf-8")
    config = load_config(path)
    assert isinstance(config.output, SinkConfig)
    assert config.decision_schema == tmp_path / "triage.yaml"


@pytest.mark.parametrize("command", slotstream_commands(), ids=" ".join)
def test_a_command_of_the_readme_is_understood(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # none of the files it names is here: it is understood and then misses its first file
    assert main(command) != 0
    printed = capsys.readouterr()
    assert "usage:" not in printed.err
    assert re.search(r"(triage|my)\.yaml", printed.out + printed.err)


def test_every_output_field_of_the_readme_is_one_that_is_written() -> None:
    table = README.split("### What is on a record")[1].split("###")[0]
    named = {
        name for row in re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE) for name in re.findall(r"`(.*?)`", row)
    }
    written = set(DecisionFields([("q", "score")], probabilities=True).names)
    suffixes = {name.replace("<question>", "q") if "<" in name else name for name in named}
    full = {name if not name.startswith("_") else f"decision_schema{name}" for name in suffixes}
    assert full == written


def test_the_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"make ([a-z]+)", README))
    assert targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)] == []


@pytest.mark.engine
def test_the_beam_example_of_the_readme_runs_on_the_real_engine(tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(blocks("python")[0], encoding="utf-8")
    run = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout.split() == ["lost_or_stolen_card"]


def test_yaml_of_the_readme_is_plain_yaml() -> None:
    for block in blocks("yaml"):
        assert isinstance(yaml.safe_load(block), dict)
