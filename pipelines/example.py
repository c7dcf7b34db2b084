"""A configuration file with every key, its default, and what it is for, made from the configuration classes."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slotstream.pipelines.config import PipelineConfig, section_model

__all__ = ["example_yaml"]

_WIDTH = 110

_HEAD = """\
slotstream: every setting. What stands here is the default, but for names and addresses, which are yours to give. A key
that is left out has its default; an unknown key is refused. File names are relative to this file. Secrets come from
files, never from this one.

  slotstream check --config THIS_FILE     is everything there?
  slotstream run --config THIS_FILE       decide every record of the topic until stopped
"""

_YOURS: dict[str, Any] = {
    "kafka.bootstrap_servers": "localhost:9092",
    "input.topic": "tickets",
    "input.group": "tickets-slotstream",
    "registry.urls": ["http://localhost:8081"],
    "output_registry.urls": ["http://localhost:8082"],
    "schema_file.input_file": "tickets.avsc",
    "decision_schema": "tickets.yaml",
    "output.decided": "tickets.decided",
    "output.review": "tickets.review",
    "output.dead": "tickets.dead",
}
"""What has no default, or none that an example could use."""


def example_yaml() -> str:
    """The text of `deploy/slotstream.example.yaml`; a section that stands for another one is commented out."""
    lines = [f"# {line}".rstrip() for line in _HEAD.splitlines()]
    for name, field in PipelineConfig.model_fields.items():
        lines += ["", *_setting(name, field, "", "")]
    return "\n".join(lines) + "\n"


def _setting(path: str, field: FieldInfo, indent: str, mark: str) -> Iterator[str]:
    name = path.rpartition(".")[2]
    yield from textwrap.wrap(
        field.description or "", _WIDTH, initial_indent=f"{mark}{indent}# ", subsequent_indent=f"{mark}{indent}# "
    )
    section = section_model(field.annotation)
    if section is None:
        yield f"{mark}{indent}{name}: {_value(path, field)}"
        return
    if field.default is None and f"{path}.urls" != "registry.urls":
        yield f"{mark}{indent}{name}: null"
        yield from _section(path, section, indent, "# ")
        return
    yield from _section(path, section, indent, mark)


def _section(path: str, model: type[BaseModel], indent: str, mark: str) -> Iterator[str]:
    yield f"{mark}{indent}{path.rpartition('.')[2]}:"
    for name, field in model.model_fields.items():
        yield from _setting(f"{path}.{name}", field, indent + "  ", mark)


def _value(path: str, field: FieldInfo) -> str:
    value = _YOURS.get(path, field.get_default(call_default_factory=True, validated_data={}))
    if isinstance(value, Path):
        value = str(value)
    shown = json.dumps(value, ensure_ascii=False)  # a JSON value is a YAML value
    return str(value) if isinstance(value, str) and value.replace("-", "").replace(".", "").isalnum() else shown
