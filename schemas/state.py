"""The state: the text of one record that the questions are about, made from the record's fields."""

import json
import string
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from slotstream.schemas.errors import DecodeError

__all__ = ["StateTemplate"]


class StateTemplate(BaseModel):
    """How a record becomes text. Written as one field name, a list of names, or a map with one of:

    fields: one name gives its text alone; several give one `name: value` line each, empty values left out.
    template: text with `{field}` or `{outer.inner}`; `{{` and `}}` stand for braces.

    Values that are not text are written as JSON; null is empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: tuple[str, ...] = Field((), description="Field names (dotted paths reach into sub-records).")
    template: str | None = Field(None, description="Text with {field} in it.")

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"fields": [value]}
        if isinstance(value, list | tuple):
            return {"fields": value}
        if isinstance(value, Mapping) and ("fields" in value) == ("template" in value):
            raise ValueError(f"state has either fields or template, got {list(value)}")
        return value

    @field_validator("fields")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not part for path in value for part in path.split(".")):
            raise ValueError(f"state names a field by a dotted path, got {list(value)}")
        if len(set(value)) != len(value):
            raise ValueError("state names a field twice")
        return value

    @model_validator(mode="after")
    def _asks_for_a_field(self) -> "StateTemplate":
        if not self.paths:
            raise ValueError("state names no field of the record, so that every record would look the same")
        return self

    @cached_property
    def _parts(self) -> tuple[tuple[str, str | None], ...]:
        """(literal, path) pairs of the template. Not str.format: a record's field must not reach attributes."""
        if self.template is None:
            return ()
        parts = []
        for literal, path, spec, conversion in string.Formatter().parse(self.template):
            if path is not None and (spec or conversion or not all(path.split(".")) or "[" in path):
                raise ValueError(f"state template: {{{path}}} must be a plain field name or dotted path")
            parts.append((literal, path))
        return tuple(parts)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every field that the state needs, each once, in order."""
        return self.fields or tuple(dict.fromkeys(path for _, path in self._parts if path is not None))

    def render(self, fields: Mapping[str, Any]) -> str:
        """The state of one record.

        Raises:
            DecodeError: `state_field_missing` or `state_empty`.
        """
        values = {path: _text(_reach(fields, path)) for path in self.paths}
        if not any(value.strip() for value in values.values()):
            raise DecodeError(f"the fields of the state ({', '.join(self.paths)}) are all empty", code="state_empty")
        if self.template is not None:
            return "".join(literal + ("" if path is None else values[path]) for literal, path in self._parts)
        if len(values) == 1:
            return next(iter(values.values()))
        return "\n".join(f"{path}: {value}" for path, value in values.items() if value)


def _reach(fields: Mapping[str, Any], path: str) -> Any:
    value: Any = fields
    for part in path.split("."):
        if value is None:
            return None  # an optional sub-record that is not there
        if not isinstance(value, Mapping) or part not in value:
            raise DecodeError(
                f"the state needs field {path!r} and the record has no {part!r} there", code="state_field_missing"
            )
        value = value[part]
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
