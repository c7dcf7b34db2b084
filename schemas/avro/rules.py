"""Java Avro's rules on names, aliases, defaults and decimals (1.12.1, compared case by case)."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from slotstream.schemas.avro.node import Node
from slotstream.schemas.errors import DecodeError

__all__ = ["check_aliases", "check_name", "decimal_scale", "default_fits", "full_name", "invalid", "shorten"]


def invalid(where: str, rule: str) -> NoReturn:
    """Raise DecodeError `avro_schema_invalid`."""
    raise DecodeError(f"writer schema: {where} {rule}", code="avro_schema_invalid")


def shorten(value: Any) -> str:
    """A value of a schema for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def full_name(name: str, namespace: str) -> str:
    """The full name that `name` has inside `namespace`; a dotted name is full already, `.A` has no namespace."""
    if "." in name:
        return name.removeprefix(".")
    return f"{namespace}.{name}" if namespace else name


def check_name(name: str, where: str) -> None:
    """Letters of any script (Java's Character.isLetter over UTF-16 units, so none outside the BMP), digits and _."""
    if (
        not name
        or name[0].isdecimal()
        or not all(ch == "_" or (ord(ch) < 0x10000 and (ch.isalpha() or ch.isdecimal())) for ch in name)
    ):
        invalid(where, f"has a name that Java refuses (letters, digits and _, no digit first), got {name!r}")


def check_aliases(raw: Mapping[str, Any], where: str) -> list[str]:
    """The aliases of a type or a field."""
    aliases = raw.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        invalid(where, f"has aliases that are no list of names, got {shorten(aliases)}")
    return aliases


def decimal_scale(raw: Mapping[str, Any], fixed_size: int | None = None) -> int | None:
    """The scale of a valid decimal; an invalid one is no decimal, as the specification says."""
    precision, scale = raw.get("precision"), raw.get("scale", 0)
    if raw.get("logicalType") != "decimal" or type(precision) is not int or type(scale) is not int:
        return None
    if not 0 <= scale <= precision or precision == 0:
        return None
    fits = fixed_size is None or precision <= (8 * fixed_size - 1) * math.log10(2)
    return scale if fits else None


def default_fits(node: Node, value: Any, optional: Callable[[Node], set[str]]) -> bool:
    """Whether a field of type `node` may have `value` as its default: of a union, any branch's.

    optional: a record's fields that have defaults themselves.
    """
    if node.kind in _FITS:
        return _FITS[node.kind](value)
    if node.kind == "array":
        return isinstance(value, list) and all(default_fits(node.children[0], item, optional) for item in value)
    if node.kind == "map":
        return isinstance(value, dict) and all(default_fits(node.children[0], v, optional) for v in value.values())
    if node.kind == "union":
        return any(default_fits(branch, value, optional) for branch in node.children)
    return isinstance(value, dict) and all(
        default_fits(child, value[name], optional) if name in value else name in optional(node)
        for name, child in node.fields
    )


def _integer(bits: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and -(1 << bits) <= value < 1 << bits


def _number(value: Any) -> bool:
    return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")


def _text(value: Any) -> bool:
    return isinstance(value, str)  # an enum's need not be a symbol, a fixed's need not have its size


_FITS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": _integer(31),
    "long": _integer(63),
    "float": _number,
    "double": _number,
    "string": _text,
    "bytes": _text,
    "enum": _text,
    "fixed": _text,
}
