"""The example configuration holds every key with its default, and says what each is for."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from slotstream.pipelines.config import PipelineConfig, load_config, section_model
from slotstream.pipelines.example import example_yaml

FILE = Path(__file__).resolve().parents[2] / "deploy" / "slotstream.example.yaml"


def keys_of(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and field of every key that is no section."""
    for name, field in model.model_fields.items():
        section = section_model(field.annotation)
        if section is None:
            yield f"{path}{name}", field
        else:
            yield from keys_of(section, f"{path}{name}.")


KEYS = dict(keys_of(PipelineConfig))


def whole() -> dict[str, Any]:
    """The file with its commented-out sections in place, by dotted path."""
    blocks = re.compile(r"^(?P<name>\w+): null\n(?P<body># (?P=name):\n(?:# .*\n)+)", re.MULTILINE)
    text = blocks.sub(lambda block: re.sub("^# ", "", block["body"], flags=re.MULTILINE), FILE.read_text())
    flat: dict[str, Any] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else key)
        else:
            flat[path] = value

    walk(yaml.safe_load(text), "")
    return flat


def test_the_file_is_what_the_classes_say_now() -> None:
    """If this fails: slotstream example > deploy/slotstream.example.yaml"""
    assert FILE.read_text() == example_yaml()


def test_it_loads() -> None:
    config = load_config(FILE)
    assert config.input.topic == "tickets"
    assert config.registry is not None


def test_it_holds_every_key() -> None:
    assert set(whole()) == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_has_its_default_and_a_comment(key: str) -> None:
    field = KEYS[key]
    if not field.is_required():
        default = field.get_default(call_default_factory=True)
        assert whole()[key] == (list(default) if isinstance(default, tuple) else default)
    assert field.description
    words = " ".join(FILE.read_text().replace("#", " ").split())
    assert " ".join(field.description.replace("#", " ").split()) in words
