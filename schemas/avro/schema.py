"""A writer schema as Java Avro 1.12 reads it: parsed once, names resolved, defaults checked.

fastavro's own parser is laxer on names and defaults and stricter on decimals than Java, and a schema that Java refuses
cannot be registered, so the rules here are Java's (`Schema.Parser` of Avro 1.12.1, compared case by case). Logical
types change how a value is shown, never its bytes: they are ignored here and kept in the text.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from slotstream.schemas.errors import DecodeError

__all__ = ["MAX_DEPTH", "PRIMITIVES", "Node", "WriterSchema", "full_name", "parse_writer_schema"]

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
MAX_DEPTH = 100
"""Deepest nesting of a schema and of a datum; Avro itself moves to this limit (AVRO-4302)."""


@dataclass(slots=True, eq=False)
class Node:
    """One type. `kind` is a primitive, record, enum, fixed, array, map or union; the rest is filled as the kind needs.

    children: a union's branches, or the one item type of an array or map.
    """

    kind: str
    name: str = ""
    fields: list[tuple[str, "Node"]] = field(default_factory=list)
    children: list["Node"] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    size: int = 0
    aliases: tuple[str, ...] = ()
    """Of a record: the aliases of its fields."""


@dataclass(frozen=True, slots=True, eq=False)
class WriterSchema:
    """A valid writer schema: its JSON value as written, its types, and its named types by full name."""

    raw: Any
    root: Node
    names: Mapping[str, Node]

    @property
    def title(self) -> str:
        """The root's full name, or its kind: for messages."""
        return self.root.name or self.root.kind

    @property
    def recursive(self) -> bool:
        """Whether the root stands inside itself, so that a field added to it would be added to each occurrence."""
        return any(node is self.root for child in _inside(self.root) for node in _walk(child))


def _inside(node: Node) -> Iterator[Node]:
    yield from node.children
    yield from (child for _, child in node.fields)


def _walk(root: Node) -> Iterator[Node]:
    """Every node that `root` reaches, itself included, each once."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.extend(_inside(node))


def parse_writer_schema(text: str) -> WriterSchema:
    """Parse and check a self-contained writer schema.

    Raises:
        DecodeError: `avro_schema_invalid`, naming the place and Java's rule.
    """
    try:
        raw = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise _invalid("the schema", f"is nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise _invalid("the schema", f"is no JSON ({error})") from None
    parser = _Parser()
    root = parser.type(raw, "", "the schema", 0)
    parser.resolve()
    parser.check_defaults()
    # A schema that is only a name in disguise ({"type": "A"}) has nothing to name: resolve() has refused it.
    return WriterSchema(raw=raw, root=parser.target(root), names=parser.names)


def full_name(name: str, namespace: str) -> str:
    """The full name that `name` has inside `namespace`; a dotted name is full already, `.A` has no namespace."""
    if "." in name:
        return name.removeprefix(".")
    return f"{namespace}.{name}" if namespace else name


def _invalid(where: str, rule: str) -> DecodeError:
    return DecodeError(f"writer schema: {where} {rule}", code="avro_schema_invalid")


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


class _Parser:
    """One pass over the JSON; references and defaults wait for the end, since Java 1.12 allows forward references."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self._references: list[tuple[Node, str, str]] = []
        self._defaults: list[tuple[str, Node, Any]] = []
        self._with_default: dict[int, set[str]] = {}

    def type(self, raw: Any, namespace: str, where: str, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise _invalid(where, f"is nested deeper than {MAX_DEPTH}")
        if isinstance(raw, str):
            return self._by_name(raw, namespace, where)
        if isinstance(raw, list):
            return Node("union", children=[self.type(branch, namespace, where, depth + 1) for branch in raw])
        kind = raw.get("type") if isinstance(raw, dict) else None
        if not isinstance(kind, str):
            raise _invalid(where, f"is a type's name, a list, or a map with a type's name in 'type', got {_short(raw)}")
        if kind in NAMED:
            return self._named(raw, kind, namespace, where, depth)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in raw:
                raise _invalid(where, f"is a {kind} and has no {key!r}")
            return Node(kind, children=[self.type(raw[key], namespace, where, depth + 1)])
        return self._by_name(kind, namespace, where)

    def _by_name(self, name: str, namespace: str, where: str) -> Node:
        if name in PRIMITIVES:
            return Node(name)
        reference = Node("reference", name=name)
        self._references.append((reference, namespace, where))
        return reference

    def _named(self, raw: Mapping[str, Any], kind: str, namespace: str, where: str, depth: int) -> Node:
        name, space = raw.get("name"), raw.get("namespace", namespace)
        if not isinstance(name, str):
            raise _invalid(where, f"is a {kind} without a name")
        full = full_name(name, space if isinstance(space, str) else namespace)
        for part in full.split("."):
            _check_name(part, where)
        if full in PRIMITIVES:
            raise _invalid(where, f"is named after a primitive type, got {full!r}")
        if full in self.names:
            raise _invalid(where, f"defines {full!r} a second time")
        node = self.names[full] = Node("record" if kind == "error" else kind, name=full)
        for alias in _aliases(raw, where):
            for part in full_name(alias, "").split("."):
                _check_name(part, where)
        if kind == "enum":
            self._enum(node, raw, where)
        elif kind == "fixed":
            size = raw.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
                raise _invalid(full, f"is a fixed and needs a size, got {_short(size)}")
            node.size = size
        else:
            self._record(node, raw, full.rpartition(".")[0], depth)
        return node

    def _enum(self, node: Node, raw: Mapping[str, Any], where: str) -> None:
        symbols = raw.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise _invalid(node.name, "is an enum and needs a list of symbols")
        for symbol in symbols:
            _check_name(symbol, where)
        if len(set(symbols)) != len(symbols):
            raise _invalid(node.name, "names a symbol twice")
        if "default" in raw and raw["default"] not in symbols:
            raise _invalid(node.name, f"has a default that is none of its symbols, got {_short(raw['default'])}")
        node.symbols = tuple(symbols)

    def _record(self, node: Node, raw: Mapping[str, Any], namespace: str, depth: int) -> None:
        entries = raw.get("fields")
        if not isinstance(entries, list):
            raise _invalid(node.name, "is a record and needs a list of fields")
        aliases: list[str] = []
        seen: set[str] = set()
        with_default = self._with_default[id(node)] = set[str]()
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or "type" not in entry:
                raise _invalid(node.name, "has a field without a name or a type")
            name, where = entry["name"], f"{node.name}.{entry['name']}"
            _check_name(name, where)
            if name in seen:
                raise _invalid(node.name, f"has field {name!r} twice")
            seen.add(name)
            order = entry.get("order", "ascending")
            if str(order).lower() not in ("ascending", "descending", "ignore"):
                raise _invalid(
                    where, f"has an order that is none of ascending, descending, ignore, got {_short(order)}"
                )
            aliases += _aliases(entry, where)
            node.fields.append((name, self.type(entry["type"], namespace, where, depth + 1)))
            if "default" in entry:
                with_default.add(name)
                self._defaults.append((where, node.fields[-1][1], entry["default"]))
        node.aliases = tuple(aliases)

    def resolve(self) -> None:
        """Put the named types in the place of their references, and check the unions, whose rule needs the names."""
        for reference, namespace, where in self._references:
            # Java falls back to the name without a namespace.
            node = self.names.get(full_name(reference.name, namespace)) or self.names.get(reference.name)
            if node is None:
                raise _invalid(where, f"names the type {reference.name!r}, which is not defined")
            reference.children = [node]
        for node in self.names.values():
            node.fields[:] = [(name, self._settle(child)) for name, child in node.fields]

    def target(self, node: Node) -> Node:
        return self._settle(node)

    def _settle(self, node: Node) -> Node:
        if node.kind == "reference":
            return node.children[0]
        if node.name:
            return node  # a named type: resolve() settles its fields itself
        node.children[:] = [self._settle(child) for child in node.children]
        if node.kind == "union":
            branches = [child.name or child.kind for child in node.children]
            if "union" in branches:
                raise _invalid("a union", "stands directly inside a union")
            if twice := [name for name in branches if branches.count(name) > 1]:
                raise _invalid("a union", f"has the branch {twice[0]!r} twice")
        return node

    def check_defaults(self) -> None:
        for where, node, value in self._defaults:
            settled = self._settle(node)
            if not self._fits(settled, value):
                raise _invalid(where, f"has a default that is no {settled.name or settled.kind}, got {_short(value)}")

    def _fits(self, node: Node, value: Any) -> bool:  # noqa: PLR0911 - one line a kind
        match node.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long":
                bits = 31 if node.kind == "int" else 63
                return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
            case "float" | "double":
                number = isinstance(value, int | float) and not isinstance(value, bool)
                return number or value in ("NaN", "Infinity", "-Infinity")
            case "string" | "bytes" | "enum" | "fixed":
                return isinstance(value, str)
            case "array":
                return isinstance(value, list) and all(self._fits(node.children[0], item) for item in value)
            case "map":
                return isinstance(value, dict) and all(self._fits(node.children[0], item) for item in value.values())
            case "union":
                return any(self._fits(branch, value) for branch in node.children)
        optional = self._with_default[id(node)]
        return isinstance(value, dict) and all(
            self._fits(child, value[name]) if name in value else name in optional for name, child in node.fields
        )


def _check_name(name: str, where: str) -> None:
    # Java's Character.isLetter and isLetterOrDigit over UTF-16 units: letters of any script, none outside the BMP.
    letters = all(ch == "_" or (ord(ch) < 0x10000 and (ch.isalpha() or ch.isdecimal())) for ch in name)
    if not name or not letters or name[0].isdecimal():
        raise _invalid(where, f"has a name that Java refuses (letters, digits and _, no digit first), got {name!r}")


def _aliases(raw: Mapping[str, Any], where: str) -> list[str]:
    aliases = raw.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise _invalid(where, f"has aliases that are no list of names, got {_short(aliases)}")
    return aliases


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
