"""`slotstream check`: one line a finding, an error for everything that would stop a run, and nothing is written."""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from slotstream.operators.finding import Finding
from slotstream.operators.warm import warm
from slotstream.pipelines.check import findings, line_of
from slotstream.pipelines.check_avro import lacks
from slotstream.pipelines.config import load_config
from slotstream.schemas.avro import parse_writer_schema
from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import COMMAND, QUESTIONS, Stream
from tests.tiny_tokenizer import tiny_tokenizer, write_tiny_tokenizer


def checked(it: Stream, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(COMMAND), "check", "--config", str(it.config_file), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def errors(it: Stream) -> list[str]:
    return [line_of(finding) for finding in findings(it.config_file) if finding.level == "error"]


def test_a_line_names_level_subject_message_and_advice() -> None:
    assert line_of(Finding("warning", "topic t", "is\nodd", "mend it")) == "warn   topic t: is odd; mend it"
    assert line_of(Finding("ok", "topic t", "input")) == "ok     topic t: input"


@pytest.mark.broker
def test_a_sound_configuration_has_no_error_and_exit_code_0(stream: StreamFactory) -> None:
    code, told = checked(stream(), "--engine")
    assert code == 0, told
    lines = told.splitlines()
    assert all(line.split()[0] in ("ok", "warn") for line in lines)
    for subject in (
        "configuration:",
        "decision schema:",
        "model card:",
        "marks:",
        "prompt:",
        "values:",
        "topic ",
        "engine:",
    ):
        assert any(subject in line for line in lines), f"{subject} is missing in\n{told}"
    assert "two probe reads differ by 0 in probability" in told


@pytest.mark.broker
def test_missing_topics_are_errors_with_the_command_that_makes_them_and_exit_code_1(stream: StreamFactory) -> None:
    it = stream()
    it.config_file.write_text(it.config_file.read_text().replace(it.names["review"], "no-such-topic"))
    code, told = checked(it)
    assert code == 1
    assert "error  topic no-such-topic: the output topic of review does not exist; create it: kafka-topics.sh" in told


def test_a_wrong_configuration_is_the_only_finding(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("input: {}")
    (finding,) = findings(tmp_path / "bad.yaml")
    assert (finding.level, finding.subject) == ("error", "configuration")


@pytest.mark.broker
def test_each_fault_is_an_error_and_the_rest_is_still_checked(stream: StreamFactory) -> None:
    it = stream()
    folder = it.folder

    questions = json.loads(json.dumps(QUESTIONS))
    questions["questions"]["kind"]["criteria"] = [f"option {n}" for n in range(60)]
    (folder / "questions.yaml").write_text(yaml.safe_dump(questions))
    write_tiny_tokenizer(folder / "model", tiny_tokenizer(pairs=0))
    assert any("marks: question 'kind' needs 60 marks" in line for line in errors(it))

    (folder / "questions.yaml").write_text("questions: {}")
    (error,) = errors(it)
    assert "decision schema" in error

    (folder / "questions.yaml").write_text(yaml.safe_dump(QUESTIONS))
    (folder / "model" / "tokenizer.json").unlink()
    (error,) = errors(it)
    assert "its tokenizer cannot be loaded" in error

    settings = yaml.safe_load(it.config_file.read_text()) | {"engine": {}}  # vLLM, with the checkpoint that ships
    it.config_file.write_text(yaml.safe_dump(settings))
    (error,) = errors(it)
    assert "was trained on decision schema 'tickets'" in error


@pytest.fixture
def unreachable(tmp_path: Path) -> Path:
    """A configuration whose broker is not there."""
    write_tiny_tokenizer(tmp_path / "model")
    (tmp_path / "questions.yaml").write_text(yaml.safe_dump(QUESTIONS))
    settings = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topic": "in", "group": "g", "format": "json"},
        "decision_schema": "questions.yaml",
        "engine": {"kind": "instant", "model": "model"},
        "output": {"decided": "decided", "review": "review", "dead": "dead"},
    }
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path / "my.yaml"


def test_a_broker_that_is_not_there_is_told_once_and_in_seconds(unreachable: Path) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [str(COMMAND), "check", "--config", str(unreachable)], capture_output=True, text=True, timeout=60, check=False
    )
    assert time.monotonic() - started < 20, "kafka.connect_timeout_ms is 30 s, and a busy machine takes some to import"
    assert (done.returncode, done.stderr) == (1, "")
    (error,) = [line for line in done.stdout.splitlines() if line.startswith("error")]
    assert error.startswith("error  broker 127.0.0.1:1: refused: nothing listens there; start the broker, or correct ")


def test_the_room_for_text_is_that_of_a_run(unreachable: Path) -> None:
    def room() -> int:
        (line,) = [line_of(finding) for finding in findings(unreachable) if finding.subject == "prompt"]
        taken, left = map(int, re.findall(r"(\d+) tokens of prompt and canvas leave (\d+)", line)[0])
        config = load_config(unreachable)
        assert left == warm(config.load_schema(), config.engine).plan.state_budget
        return taken + left

    assert room() == 4096
    unreachable.write_text(unreachable.read_text().replace("kind: instant", "kind: instant\n  max_model_len: 300"))
    assert room() == 300


def test_a_number_format_that_cannot_be_served_is_an_error_before_anything_is_loaded(unreachable: Path) -> None:
    """On the CPU build of vLLM, with the checkpoint that ships."""
    engine = "kind: vllm\n  quantization: fp8_per_channel"
    unreachable.write_text(unreachable.read_text().replace("kind: instant\n  model: model", engine))
    (error,) = [finding for finding in findings(unreachable) if finding.subject == "model" and finding.level == "error"]
    assert error.message.startswith("engine.quantization is fp8_per_channel, which needs a GPU")


@pytest.mark.parametrize(
    ("setting", "level", "told"),
    [
        ("max_num_batched_tokens: 64", "error", "engine.max_num_batched_tokens is 64 and the engine needs 1024"),
        ("{slot_path: off, max_num_seqs: 200}", "warning", "max_num_seqs is 200 and vLLM's own code reads at most 127"),
        ("slot_path: off", None, ""),  # a bare off, which YAML reads as false
    ],
)
def test_settings_that_the_engine_refuses_or_lowers_are_told_without_loading_it(
    unreachable: Path, setting: str, level: str | None, told: str
) -> None:
    settings = yaml.safe_load(unreachable.read_text()) | {"engine": yaml.safe_load(setting)}
    schema = Path(__file__).parents[2] / "deploy" / "demo" / "tickets.yaml"
    unreachable.write_text(yaml.safe_dump(settings | {"decision_schema": str(schema)}))
    found = [
        (f.level, f.message) for f in findings(unreachable) if f.level != "ok" and not f.subject.startswith("broker")
    ]
    assert [(each, message.startswith(told)) for each, message in found] == ([(level, True)] if level else [])


SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Ticket",
    "fields": [{"name": "text", "type": "string"}, {"name": "id", "type": "long"}],
}


def put(url: str, subject: str, schema: dict[str, Any]) -> None:
    httpx.post(f"{url}/subjects/{subject}/versions", json={"schema": json.dumps(schema)}).raise_for_status()


@pytest.mark.broker
@pytest.mark.registry
def test_avro_schemas_are_checked_without_registering_anything(stream: StreamFactory, schema_registry: str) -> None:
    it = stream(settings={"input.format": "avro", "registry.urls": [schema_registry]})
    levels = {finding.subject: finding for finding in findings(it.config_file)}
    assert levels[f"subject {it.names['in']}-value"].level == "warning"

    put(schema_registry, f"{it.names['in']}-value", SCHEMA)
    assert errors(it) == []
    told = [line_of(finding) for finding in findings(it.config_file)]
    assert any(f"subject {it.names['decided']}-value: takes Ticket with" in line for line in told)
    assert httpx.get(f"{schema_registry}/subjects/{it.names['decided']}-value/versions").status_code == 404

    put(schema_registry, f"{it.names['review']}-value", {**SCHEMA, "fields": [{"name": "other", "type": "bytes"}]})
    (error,) = errors(it)
    assert f"subject {it.names['review']}-value: the registry would refuse the output schema" in error

    put(schema_registry, f"{it.names['in']}-value", {**SCHEMA, "fields": [{"name": "id", "type": "long"}]})
    assert any("has no field 'text', which the decision schema's state needs" in line for line in errors(it))


@pytest.mark.broker
def test_a_registry_that_does_not_answer_is_an_error(stream: StreamFactory) -> None:
    it = stream(settings={"input.format": "avro", "registry.urls": ["http://127.0.0.1:1"]})
    (error,) = errors(it)
    assert error.startswith("error  schema registry: ")


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ("text", False),
        ("who.name", False),
        ("who.age", True),
        ("tags.anything", False),
        ("text.more", True),
        ("x", True),
    ],
)
def test_a_field_is_looked_for_through_records_unions_and_maps(path: str, missing: bool) -> None:
    inner = {"type": "record", "name": "Who", "fields": [{"name": "name", "type": "string"}]}
    fields = [
        {"name": "text", "type": ["null", "string"]},
        {"name": "who", "type": ["null", inner]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ]
    writer = parse_writer_schema(json.dumps({"type": "record", "name": "T", "fields": fields}))
    assert lacks(writer.root, path.split(".")) == missing
