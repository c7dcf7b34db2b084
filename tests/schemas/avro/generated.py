"""Hypothesis strategies: an Avro schema with a value of it, the value in the form that fastavro writes."""

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

__all__ = ["Generated", "generated_records", "unhurried"]


def unhurried(examples: int) -> settings:
    """So many examples, and no verdict on how fast a busy machine draws them."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Generated:
    """schema: JSON value.  written: for fastavro's writer, unions as (branch, value).  plain: as a reader gives it."""

    schema: Any
    written: Any
    plain: Any


_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=200),
    "string": st.text(max_size=100),
}


@st.composite
def _type(draw: st.DrawFn, depth: int, names: list[str], *, in_union: bool = False) -> Any:  # noqa: PLR0911
    """A schema; `names` grows with every named type."""
    kinds = [*_PRIMITIVES, "enum", "fixed"]
    if depth:
        kinds += ["record", "array", "map"] + ([] if in_union else ["union"])
    kind = draw(st.sampled_from(kinds))
    if kind in _PRIMITIVES:
        return kind
    if kind == "array":
        return {"type": "array", "items": draw(_type(depth - 1, names))}
    if kind == "map":
        return {"type": "map", "values": draw(_type(depth - 1, names))}
    if kind == "union":
        branches = draw(st.lists(_type(depth - 1, names, in_union=True), min_size=1, max_size=4))
        return list({_branch_name(branch): branch for branch in branches}.values())
    names.append(f"T{len(names)}")
    named = {"type": kind, "name": names[-1]}
    if kind == "enum":
        return {**named, "symbols": [f"S{i}" for i in range(draw(st.integers(1, 70)))]}
    if kind == "fixed":
        return {**named, "size": draw(st.integers(0, 20))}
    fields = [{"name": f"f{i}", "type": draw(_type(depth - 1, names))} for i in range(draw(st.integers(0, 3)))]
    return {**named, "fields": [{"name": "id", "type": "int"}, *fields]}  # never of no byte at all: that is read as {}


def _branch_name(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    name: str = schema.get("name", schema["type"])
    return name


@st.composite
def _value(draw: st.DrawFn, schema: Any) -> tuple[Any, Any]:  # noqa: PLR0911
    """(written, plain)"""
    if isinstance(schema, list):
        branch = draw(st.sampled_from(schema))
        written, plain = draw(_value(branch))
        return (_branch_name(branch), written), plain
    if isinstance(schema, str):
        value = draw(_PRIMITIVES[schema])
        return value, value
    match schema["type"]:
        case "enum":
            value = draw(st.sampled_from(schema["symbols"]))
            return value, value
        case "fixed":
            value = draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
            return value, value
        case "array":
            items = draw(st.lists(_value(schema["items"]), max_size=5))
            return [written for written, _ in items], [plain for _, plain in items]
        case "map":
            entries = draw(st.dictionaries(st.text(max_size=10), _value(schema["values"]), max_size=4))
            return {k: v[0] for k, v in entries.items()}, {k: v[1] for k, v in entries.items()}
    fields = {field["name"]: draw(_value(field["type"])) for field in schema["fields"]}
    return {k: v[0] for k, v in fields.items()}, {k: v[1] for k, v in fields.items()}


@st.composite
def generated_records(draw: st.DrawFn) -> Generated:
    """A record of up to six fields, nested up to three deep."""
    names: list[str] = []
    count = draw(st.integers(0, 6))
    fields = [{"name": f"f{i}", "type": draw(_type(3, names))} for i in range(count)]
    schema = {"type": "record", "name": "Top", "fields": fields}
    written, plain = draw(_value(schema))
    return Generated(schema, written, plain)
