"""The output schema of an input schema: its own fields, then the decision fields."""

import json
from dataclasses import dataclass
from typing import Any

from slotstream.schemas.avro.node import NAMED, WriterSchema
from slotstream.schemas.errors import ConfigError
from slotstream.schemas.fields import DecisionFields

__all__ = ["NAMESPACE", "Derived", "derive"]

NAMESPACE = "io.slotstream.v1"
_ENVELOPE = f"{NAMESPACE}.Envelope"
_OPTION = f"{NAMESPACE}.OptionProbability"
_OPTION_SCHEMA = {
    "type": "record",
    "name": "OptionProbability",
    "namespace": NAMESPACE,
    "doc": "One option of a question and its probability",
    "fields": [{"name": "option", "type": "string"}, {"name": "probability", "type": "double"}],
}
_AVRO_TYPES: dict[str, Any] = {
    "string": "string",
    "boolean": "boolean",
    "double": "double",
    "int": "int",
    "timestamp": {"type": "long", "logicalType": "timestamp-millis"},
}


@dataclass(frozen=True, slots=True)
class Derived:
    """An output schema. envelope: the input is the field `value`, so a reader of the input schema cannot read it."""

    text: str
    envelope: bool


def derive(writer: WriterSchema, fields: DecisionFields) -> Derived:
    """The input schema with the decision fields behind its own; nothing else about it changes.

    A record that contains itself would get the fields at every depth, and what is no record has no fields: both become
    `value` in an envelope record. The bytes are the same either way: the input's, then the decision fields'.

    Raises:
        ConfigError: a field or alias of the input has the name of a decision field (names that differ in case only are
            one column to many readers), or the input defines a type of ours differently.
    """
    ours = _avro_fields(fields, option_defined=_defines_option(writer))
    if writer.root.kind == "record" and not writer.recursive:
        own = [name for name, _ in writer.root.fields]
        fields.refuse_clash(f"input schema {writer.title}", (*own, *writer.root.aliases))
        raw = {**writer.raw, "fields": [*writer.raw["fields"], *ours]}
        return Derived(json.dumps(raw, ensure_ascii=False), envelope=False)
    fields.refuse_clash("the envelope of a schema that is no flat record", ("value",))
    if _ENVELOPE in writer.names:
        raise ConfigError(f"input schema {writer.title} holds an {_ENVELOPE} and would need another one around it")
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": NAMESPACE,
        "doc": "A value that cannot take fields itself, and the decision about it",
        "fields": [{"name": "value", "type": _anchored(writer.raw)}, *ours],
    }
    return Derived(json.dumps(envelope, ensure_ascii=False), envelope=True)


def _defines_option(writer: WriterSchema) -> bool:
    """Whether the input (our own output, fed back in) defines OptionProbability already."""
    known = writer.names.get(_OPTION)
    ours = [("option", "string"), ("probability", "double")]
    if known is not None and [(name, child.kind) for name, child in known.fields] != ours:
        raise ConfigError(f"input schema {writer.title} defines {_OPTION} in another way than slotstream does")
    return known is not None


def _anchored(raw: Any) -> Any:
    """`raw` such that types without a namespace do not fall into the envelope's."""
    if isinstance(raw, list):
        return [_anchored(branch) for branch in raw]
    if isinstance(raw, dict):
        if raw["type"] in NAMED:
            return raw if "namespace" in raw or "." in raw["name"] else {**raw, "namespace": ""}
        return {key: _anchored(value) if key in ("items", "values") else value for key, value in raw.items()}
    return raw


def _avro_fields(fields: DecisionFields, *, option_defined: bool) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for field in fields.fields:
        if field.kind == "probabilities":
            type_: Any = {"type": "array", "items": _OPTION if option_defined else _OPTION_SCHEMA}
            option_defined = True
            made.append({"name": field.name, "type": type_, "default": [], "doc": field.doc})
        else:
            type_ = ["null", _AVRO_TYPES[field.kind]]  # null first: a default belongs to the first branch
            made.append({"name": field.name, "type": type_, "default": None, "doc": field.doc})
    return made
