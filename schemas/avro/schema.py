"""A writer schema as Java Avro 1.12 reads it: parsed once, names resolved, defaults checked.

fastavro's own parser is laxer on names and defaults and stricter on decimals than Java, and a schema that Java refuses
cannot be registered, so the rules here are Java's (`Schema.Parser` of Avro 1.12.1, compared case by case). Logical
types change how a value is shown, never its bytes: they are ignored here and kept in the text.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from slotstream.schemas.avro.node import MAX_DEPTH, NAMED, PRIMITIVES, Node, WriterSchema
from slotstream.schemas.avro.references import inline
from slotstream.schemas.avro.rules import (
    check_aliases,
    check_name,
    decimal_scale,
    default_fits,
    full_name,
    invalid,
    shorten,
)

__all__ = ["parse_writer_schema"]

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def parse_writer_schema(text: str, references: Iterable[str] = ()) -> WriterSchema:
    """Parse and check a writer schema.

    Args:
        references: the schemas that it refers to by name; they become part of `raw`.

    Raises:
        DecodeError: `avro_schema_invalid`, naming the place and Java's rule.
    """
    try:
        raw = _json(text)
        if library := [_json(reference) for reference in references]:
            raw = inline(raw, library)
        parser = _Parser()
        root = parser.parse(raw)
    except RecursionError:
        invalid("the schema", f"is nested deeper than {MAX_DEPTH}")
    return WriterSchema(raw=raw, root=root, names=parser.names)


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        invalid("the schema", f"is no JSON ({error})")


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


class _Parser:
    """One pass over the JSON; references and defaults wait for the end, since Java 1.12 allows forward references."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self._references: list[tuple[Node, str, str]] = []
        self._defaults: list[tuple[str, Node, Any]] = []
        self._with_default: dict[int, set[str]] = {}

    def parse(self, raw: Any) -> Node:
        node = self.type(raw, "", "the schema", 0)
        self._resolve()
        self._check_defaults()
        root = self._settle(node)
        _measure(root, set())
        return root

    def type(self, raw: Any, namespace: str, where: str, depth: int) -> Node:
        if depth > MAX_DEPTH:
            invalid(where, f"is nested deeper than {MAX_DEPTH}")
        if isinstance(raw, str):
            return self._by_name(raw, namespace, where)
        if isinstance(raw, list):
            return Node("union", children=[self.type(branch, namespace, where, depth + 1) for branch in raw])
        kind = raw.get("type") if isinstance(raw, dict) else None
        if not isinstance(kind, str):
            invalid(where, f"is a type's name, a list, or a map with a type's name in 'type', got {shorten(raw)}")
        if kind in NAMED:
            return self._named(raw, kind, namespace, where, depth)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in raw:
                invalid(where, f"is a {kind} and has no {key!r}")
            return Node(kind, children=[self.type(raw[key], namespace, where, depth + 1)])
        node = self._by_name(kind, namespace, where)
        if kind == "bytes":
            node.scale = decimal_scale(raw)
        return node

    def _by_name(self, name: str, namespace: str, where: str) -> Node:
        if name in PRIMITIVES:
            return Node(name)
        reference = Node("reference", name=name)
        self._references.append((reference, namespace, where))
        return reference

    def _named(self, raw: Mapping[str, Any], kind: str, namespace: str, where: str, depth: int) -> Node:
        name, space = raw.get("name"), raw.get("namespace", namespace)
        if not isinstance(name, str):
            invalid(where, f"is a {kind} without a name")
        full = full_name(name, space if isinstance(space, str) else namespace)
        for part in full.split("."):
            check_name(part, where)
        if full in PRIMITIVES:
            invalid(where, f"is named after a primitive type, got {full!r}")
        if full in self.names:
            invalid(where, f"defines {full!r} a second time")
        node = self.names[full] = Node("record" if kind == "error" else kind, name=full)
        for alias in check_aliases(raw, where):
            for part in full_name(alias, "").split("."):
                check_name(part, where)
        if kind == "enum":
            self._enum(node, raw, where)
        elif kind == "fixed":
            size = raw.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
                invalid(full, f"is a fixed and needs a size, got {shorten(size)}")
            node.width, node.scale = size, decimal_scale(raw, size)
        else:
            self._record(node, raw, full.rpartition(".")[0], depth)
        return node

    def _enum(self, node: Node, raw: Mapping[str, Any], where: str) -> None:
        symbols = raw.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            invalid(node.name, "is an enum and needs a list of symbols")
        for symbol in symbols:
            check_name(symbol, where)
        if len(set(symbols)) != len(symbols):
            invalid(node.name, "names a symbol twice")
        if "default" in raw and raw["default"] not in symbols:
            invalid(node.name, f"has a default that is none of its symbols, got {shorten(raw['default'])}")
        node.symbols = tuple(symbols)

    def _record(self, node: Node, raw: Mapping[str, Any], namespace: str, depth: int) -> None:
        entries = raw.get("fields")
        if not isinstance(entries, list):
            invalid(node.name, "is a record and needs a list of fields")
        aliases: list[str] = []
        seen: set[str] = set()
        with_default = self._with_default[id(node)] = set[str]()
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or "type" not in entry:
                invalid(node.name, "has a field without a name or a type")
            name, where = entry["name"], f"{node.name}.{entry['name']}"
            check_name(name, where)
            if name in seen:
                invalid(node.name, f"has field {name!r} twice")
            seen.add(name)
            order = entry.get("order", "ascending")
            if str(order).lower() not in ("ascending", "descending", "ignore"):
                invalid(where, f"has an order that is none of ascending, descending, ignore, got {shorten(order)}")
            aliases += check_aliases(entry, where)
            node.fields.append((name, self.type(entry["type"], namespace, where, depth + 1)))
            if "default" in entry:
                with_default.add(name)
                self._defaults.append((where, node.fields[-1][1], entry["default"]))
        node.aliases = tuple(aliases)

    def _resolve(self) -> None:
        """Put the named types in the place of their references, and check the unions, whose rule needs the names."""
        for reference, namespace, where in self._references:
            # Java falls back to the name without a namespace.
            node = self.names.get(full_name(reference.name, namespace)) or self.names.get(reference.name)
            if node is None:
                invalid(where, f"names the type {reference.name!r}, which is not defined")
            reference.children = [node]
        for node in self.names.values():
            node.fields[:] = [(name, self._settle(child)) for name, child in node.fields]

    def _settle(self, node: Node) -> Node:
        if node.kind == "reference":
            return node.children[0]
        if node.name:
            return node  # a named type: resolve() settles its fields itself
        node.children[:] = [self._settle(child) for child in node.children]
        if node.kind == "union":
            branches = [child.name or child.kind for child in node.children]
            if "union" in branches:
                invalid("a union", "stands directly inside a union")
            if len(set(branches)) != len(branches):
                twice, _ = Counter(branches).most_common(1)[0]
                invalid("a union", f"has the branch {twice!r} twice")
        return node

    def _check_defaults(self) -> None:
        for where, node, value in self._defaults:
            settled = self._settle(node)
            if not default_fits(settled, value, lambda record: self._with_default[id(record)]):
                invalid(where, f"has a default that is no {settled.name or settled.kind}, got {shorten(value)}")


def _measure(node: Node, seen: set[int]) -> int | None:
    """Set the width of every type that `node` reaches, each once."""
    if id(node) in seen:
        return node.width  # None while the type is being measured: it stands inside itself
    seen.add(id(node))
    widths = [_measure(child, seen) for child in node.inside()]
    if node.kind == "record" and None not in widths:
        node.width = sum(width for width in widths if width is not None)
    elif node.kind in _WIDTHS:
        node.width = _WIDTHS[node.kind]
    return node.width
