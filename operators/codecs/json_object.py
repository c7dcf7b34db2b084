"""JSON objects in and out; the input's text is kept, so that numbers, key order and spacing survive."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from slotstream.schemas.errors import DecodeError, EncodeError
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Decision
from slotstream.schemas.record import Message, Record

__all__ = ["MAX_DEPTH", "JsonCodec", "decision_json"]

MAX_DEPTH = 100
"""Deepest nesting of a wanted field."""


class JsonCodec:
    """Reads a JSON object; writes its own text with `,"field":value...` before the last brace."""

    def __init__(self, fields: DecisionFields, paths: Sequence[str]) -> None:
        self._fields = fields
        self._wanted = tuple(dict.fromkeys(path.partition(".")[0] for path in paths))

    def decode(self, message: Message) -> Record:
        """The wanted top-level fields, each with all that is inside it.

        Raises:
            DecodeError: `framing_unknown`, `json_invalid`, `json_invalid_utf8`, `json_too_deep`, `json_not_an_object`,
                `json_duplicate_key` (of two equal keys readers take either), `json_field_clash` (a key is, but for
                case, the name of a decision field), `json_lone_surrogate` (a wanted text is no Unicode).
        """
        assert message.value is not None
        if message.value[:1] == b"\0":
            raise DecodeError(
                "the value starts with a zero byte, as JSON behind a schema registry's id does; that framing is not "
                "supported yet",
                code="framing_unknown",
            )
        value = _parse(message.value)
        if clashes := self._fields.clashes(value):
            raise DecodeError(
                f"the object has a key {clashes[0]!r}, which a decision field is named: set output.field_prefix",
                code="json_field_clash",
            )
        fields = {name: value[name] for name in self._wanted if name in value}
        for field in fields.values():
            _check_depth(field, MAX_DEPTH)
        if b"\\u" in message.value:
            _refuse_lone_surrogates(fields)
        return Record(message, fields)

    def encode(self, record: Record, decision: Decision) -> bytes:
        """Raises EncodeError when a value of the decision is no JSON."""
        value = record.message.value
        assert value is not None
        end = value.rindex(b"}")  # decode() has proved that only whitespace stands behind it
        comma = b"" if value[:end].rstrip().endswith(b"{") else b","
        return value[:end] + comma + decision_json(self._fields, decision) + value[end:]


def decision_json(fields: DecisionFields, decision: Decision) -> bytes:
    """The members `"field":value,...` of a decision, without braces.

    Raises:
        EncodeError: a number is not finite.
    """
    members = dict(zip(fields.names, fields.values(decision), strict=True))
    for name, value in members.items():
        if value.__class__ is float and not math.isfinite(value):
            raise EncodeError(f"decision {decision.id}: {name} is {value}, which JSON has no number for")
    try:
        return to_json(members)[1:-1]  # a sixth of json.dumps's time, most of which is spent on floats
    except ValueError as error:
        raise EncodeError(f"decision {decision.id}: {error}") from None


class _Twice(dict[str, Any]):
    """An object that had a key twice."""


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    return made if len(made) == len(members) else _Twice(made)


def _parse(value: bytes) -> Mapping[str, Any]:
    try:
        parsed = _PARSER.decode(value.decode())
    except UnicodeDecodeError as error:
        raise DecodeError(f"value is no UTF-8 at byte {error.start}", code="json_invalid_utf8") from None
    except json.JSONDecodeError as error:
        raise DecodeError(f"value is no JSON: {error.msg} at character {error.pos}", code="json_invalid") from None
    except RecursionError:
        raise DecodeError("value is nested too deeply", code="json_too_deep") from None
    if not isinstance(parsed, dict):
        kind = {list: "an array", str: "a text", type(None): "null", bool: "a boolean"}.get(type(parsed), "a number")
        raise DecodeError(f"value is {kind}, and a record is a JSON object", code="json_not_an_object")
    if isinstance(parsed, _Twice):
        raise DecodeError("the object has a key twice", code="json_duplicate_key")
    return parsed


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= 4000 else text  # Python refuses longer ones, JSON does not


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _no_constant(text: str) -> None:
    raise json.JSONDecodeError(f"{text} is no JSON", "", 0)


_PARSER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_no_constant
)


def _check_depth(value: Any, room: int) -> None:
    """What is read here is written again deeper in the stack: a bound keeps that from failing."""
    if isinstance(value, dict | list):
        if not room:
            raise DecodeError(f"a wanted field is nested deeper than {MAX_DEPTH}", code="json_too_deep")
        for child in value.values() if isinstance(value, dict) else value:
            _check_depth(child, room - 1)


def _refuse_lone_surrogates(fields: Mapping[str, Any]) -> None:
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DecodeError(
            "a wanted text holds half of a surrogate pair and is no Unicode", code="json_lone_surrogate"
        ) from None
