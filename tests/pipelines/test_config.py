"""The configuration file: what is right loads, what is wrong is named with its key, rule, value and remedy."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from slotstream.pipelines.config import load_config
from slotstream.schemas.errors import ConfigError

LEAST: dict[str, Any] = {
    "kafka": {"bootstrap_servers": "localhost:9092"},
    "input": {"topic": "tickets", "group": "labels", "format": "json"},
    "decision_schema": "questions.yaml",
    "output": {"decided": "d", "review": "r", "dead": "x"},
}


def write(folder: Path, changes: dict[str, Any]) -> Path:
    """The least configuration, with dotted keys changed; None removes a key."""
    data = yaml.safe_load(yaml.safe_dump(LEAST))
    for path, value in changes.items():
        *sections, key = path.split(".")
        place = data
        for section in sections:
            place = place.setdefault(section, {})
        if value is None:
            place.pop(key, None)
        else:
            place[key] = value
    file = folder / "my.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


def test_the_least_configuration_loads_with_the_documented_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, {}))
    assert config.input.tombstones == "forward"
    assert config.limits.dead_letters.share == 0.5
    assert config.limits.dead_letters.window_records == 1_000
    assert config.limits.dead_letters.min_records == 100
    assert config.run.shutdown_timeout_s == 30
    assert config.run.epoch_max_ms == 2_000
    assert config.engine.kind == "vllm"


def test_file_names_are_relative_to_the_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    config = load_config(
        write(
            tmp_path,
            {
                "engine.model": "checkpoint",
                "input.format": "avro",
                "registry.urls": ["http://localhost:8081"],
                "registry.username": "me",
                "registry.password_file": "secrets/registry",
            },
        )
    )
    assert config.decision_schema == tmp_path / "questions.yaml"
    assert config.engine.model == str(tmp_path / "checkpoint")
    assert config.registry is not None
    assert config.registry.password_file == tmp_path / "secrets/registry"


def test_a_hub_id_stays_a_hub_id(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, {"engine.model": "google/some-model"})).engine.model == "google/some-model"


FAULTS = [
    ({"input.topic": None}, "input.topic: missing (The topic to read)"),
    ({"kafka": None}, "kafka: missing (How to reach the Kafka cluster)"),
    ({"input.topik": "x"}, "input.topik: unknown key; did you mean 'topic'?"),
    ({"outputs": {}}, "outputs: unknown key; did you mean 'output'?"),
    ({"engine.zzz": 1}, "engine.zzz: unknown key; known keys: kind, model,"),
    ({"run.epoch_max_ms": 2_001}, "run.epoch_max_ms: Input should be less than or equal to 2000, got 2001"),
    ({"run.epoch_max_ms": 5}, "run.epoch_max_ms: Input should be greater than or equal to 10, got 5"),
    ({"input.start": "newest"}, "input.start: Input should be 'earliest', 'latest' or 'timestamp', got 'newest'"),
    ({"input.start": "timestamp"}, "start: timestamp and start_timestamp_ms belong together"),
    ({"input.format": "avro"}, "Avro values (input.format: avro) need registry or schema_file: give one of them"),
    ({"input.format": "avro", "schema_file.input_file": "x.avsc"}, "need its input_id and output_id"),
    ({"output.dead": "d"}, "decided, review and dead must be three topics"),
    ({"output.decided": "tickets"}, "topic 'tickets' is read and written"),
    ({"output.dead": "tickets.redrive"}, "topic 'tickets.redrive' is read and written"),
    ({"limits.dead_letters.share": 0}, "limits.dead_letters.share: Input should be greater than 0, got 0"),
    ({"limits.dead_letters.share": "half"}, "limits.dead_letters.share: Input should be a valid number"),
    ({"engine.kind": "gpt"}, "engine.kind: Input should be 'vllm', 'transformers' or 'instant', got 'gpt'"),
    ({"kafka.bootstrap_servers": "http://x:9092"}, "is no host:port, got 'http://x:9092'"),
    ({"kafka.bootstrap_servers": "a:9092,b"}, "is no host:port, got 'b'"),
    ({"kafka.bootstrap_servers": "x:99999"}, "is no host:port, got 'x:99999'"),
    ({"kafka.security_protocol": "SASL_SSL"}, "needs sasl_mechanism, sasl_username and sasl_password_file"),
]


@pytest.mark.parametrize(("changes", "words"), FAULTS, ids=[str(changes) for changes, _ in FAULTS])
def test_a_fault_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, changes))
    assert words in str(caught.value)
    assert "my.yaml breaks 1 rule(s)" in str(caught.value)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"breaks 3 rule\(s\)"):
        load_config(write(tmp_path, {"input.topic": None, "run.epoch_max_ms": 0, "colour": "red"}))


@pytest.mark.parametrize(
    "changes",
    [
        {"kafka.sasl_password": "hunter2"},
        {"registry.urls": ["http://x"], "registry.token_file": ["hunter2"]},
        {"kafka.sasl_password_file": ["hunter2"]},
        {"registry.urls": ["http://me:hunter2@x"]},
    ],
)
def test_what_may_be_a_secret_is_not_repeated(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, changes))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kafka: [", "line"),
        ("a: 1\na: 2", "line 2: key 'a' stands twice in one map"),
        ("- a list", "a map of settings is needed, got list"),
        ("", "a map of settings is needed, got NoneType"),
    ],
)
def test_a_file_that_is_no_map_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "my.yaml")
    assert words in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml: cannot be read \(No such file or directory\)"):
        load_config(tmp_path / "nothing.yaml")


def test_a_configuration_cannot_be_changed(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, {}))
    with pytest.raises(ValueError, match="frozen"):
        setattr(config, "decision_schema", Path("other"))  # noqa: B010
