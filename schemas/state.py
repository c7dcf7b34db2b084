"""The state: the text of one record that the questions are about, made from the record's fields."""

import datetime
import json
import string
import uuid
from collections.abc import Mapping
from functools import cached_property
from numbers import Number
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from slotstream.schemas.errors import DecodeError
from slotstream.schemas.strict_yaml import written

__all__ = ["StateTemplate"]


class StateTemplate(BaseModel):
    """How a record becomes text. Written as one field name, a list of names, or a map with one of:

    fields: one name gives its text alone; several give one `name: value` line each, empty values left out.
    template: text with `{field}` or `{outer.inner}`; `{{` and `}}` stand for braces.

    and, where producers leave nulls out, with `absent: empty`.

    Text stands as it is, and so do bytes that are UTF-8; null is empty; decimals, dates and ids stand as Python writes
    them, everything else as JSON. Half of a surrogate pair (a cut emoji in JSON) becomes the replacement character.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: tuple[str, ...] = Field((), description="Field names (dotted paths reach into sub-records).")
    template: str | None = Field(None, description="Text with {field} in it.")
    absent: Literal["dead", "empty"] = Field(
        "dead",
        description="What becomes of a record that lacks a field altogether: dead, or read as if the field were null.",
        exclude_if=lambda absent: absent == "dead",  # schemas that do not choose keep their hash
    )

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"fields": [value]}
        if isinstance(value, list | tuple):
            return {"fields": value}
        if not isinstance(value, Mapping | StateTemplate):
            raise ValueError(
                f"state is a field's name, a list of names, or a map with fields or template, got {written(value)}"
            )
        if isinstance(value, Mapping) and ("fields" in value) == ("template" in value):
            keys = ", ".join(map(repr, value)) or "no key"
            raise ValueError(f"state is a map with either fields or template, got {keys}; write one of them")
        return value

    @field_validator("fields")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not part for path in value for part in path.split(".")):
            raise ValueError(f"state names a field by a dotted path, got {list(value)}")
        if twice := [path for number, path in enumerate(value) if path in value[:number]]:
            raise ValueError(f"state names a field twice, got {twice[0]!r}")
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
        try:
            parsed = list(string.Formatter().parse(self.template))
        except ValueError as error:
            raise ValueError(f"state template: {error}; write {{field}}, and {{{{ or }}}} for a brace itself") from None
        for literal, path, spec, conversion in parsed:
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
            DecodeError: `state_field_missing`, `state_not_text` or `state_empty`.
        """
        values = {path: _text(self._reach(fields, path), path) for path in self.paths}
        if not any(value.strip() for value in values.values()):
            raise DecodeError(f"the fields of the state ({', '.join(self.paths)}) are all empty", code="state_empty")
        if self.template is not None:
            text = "".join(literal + ("" if path is None else values[path]) for literal, path in self._parts)
        elif len(values) == 1:
            text = next(iter(values.values()))
        else:
            text = "\n".join(f"{path}: {value}" for path, value in values.items() if value)
        return _unicode(text)

    def _reach(self, fields: Mapping[str, Any], path: str) -> Any:
        value: Any = fields
        for part in path.split("."):
            if value is None:
                return None  # an optional sub-record that is not there
            if isinstance(value, Mapping) and (part in value or self.absent == "empty"):
                value = value.get(part)
                continue
            raise DecodeError(
                f"the state needs field {path!r} and the record has no {part!r} there", code="state_field_missing"
            )
        return value


def _text(value: Any, path: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, bool | int | float | list | tuple | Mapping):
            return json.dumps(value, ensure_ascii=False, default=_plain)
        return str(_plain(value))
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DecodeError(f"field {path!r} of the state has no text form: {reason}", code="state_not_text") from None


def _plain(value: Any) -> Any:
    """What JSON can write instead of `value`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode()
    if isinstance(value, Number | datetime.date | datetime.time | datetime.timedelta | uuid.UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no text, number, date, id, list or map")


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # tokenizers refuse half of a surrogate pair
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
