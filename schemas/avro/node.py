"""The types of a schema, with every name resolved."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MAX_DEPTH", "NAMED", "PRIMITIVES", "Node", "WriterSchema"]

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_DEPTH = 100
"""Deepest nesting of a schema and of a datum; Avro itself moves to this limit (AVRO-4302)."""
NAMED = frozenset({"record", "error", "enum", "fixed"})


@dataclass(slots=True, eq=False)
class Node:
    """One type. `kind` is a primitive, record, enum, fixed, array, map or union; the rest is filled as the kind needs.

    children: a union's branches, or the one item type of an array or map.
    aliases: of a record, those of its fields.  scale: of bytes or a fixed, when it is a decimal.
    width: the bytes that every value takes; None when they differ, or the type stands inside itself.
    """

    kind: str
    name: str = ""
    fields: list[tuple[str, "Node"]] = field(default_factory=list)
    children: list["Node"] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    scale: int | None = None
    width: int | None = None

    def inside(self) -> Iterator["Node"]:
        """The types that stand directly in this one."""
        yield from self.children
        yield from (child for _, child in self.fields)


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
        seen: set[int] = set()
        todo = [self.root]
        while todo:
            for node in todo.pop().inside():
                if node is self.root:
                    return True
                if id(node) not in seen:
                    seen.add(id(node))
                    todo.append(node)
        return False
