"""Read the wanted fields of a datum in the same walk that proves it whole.

Values are plain: str, bytes, int, float, bool, None, list, dict. Logical types are not applied, so that a date in the
year 10000 is a number and not an error; but a decimal, whose bytes say nothing, is its number as text.
"""

import struct
from collections.abc import Callable, Iterable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

from slotstream.schemas.avro.node import MAX_DEPTH, Node, WriterSchema
from slotstream.schemas.avro.rules import invalid
from slotstream.schemas.avro.scan import Room, Scanner, Skip, branch_index, read_block, read_long, refuse
from slotstream.schemas.errors import DecodeError

__all__ = ["DatumReader"]

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_LONGEST_DECIMAL = 1024  # bytes; turning a number into digits takes the square of its length
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_Read = Callable[[bytes, int, Room], tuple[Any, int]]
_Wanted = dict[str, "_Wanted"]
"""Field name to what is wanted below it; an empty map means the whole value."""


class DatumReader:
    """Reads the wanted fields of data that one schema wrote. Pure and thread-safe.

    Args:
        schema: what the datum was written with.
        paths: dotted field paths, through sub-records and unions of them; a path that ends inside a value of another
            kind gets that value whole.

    Raises:
        DecodeError: `avro_schema_invalid`, a chain of types is too long.
    """

    def __init__(self, schema: WriterSchema, paths: Iterable[str]) -> None:
        self._title = schema.title
        self._scanner = Scanner()
        try:
            self._read = self._wanted(schema.root, _tree(paths))
        except RecursionError:
            invalid(schema.title, f"is nested deeper than {MAX_DEPTH}")

    def read(self, datum: bytes) -> dict[str, Any]:
        """The wanted fields, nested as in the record; a field that the schema lacks is left out.

        Raises:
            DecodeError: `avro_truncated`, `avro_trailing_bytes`, `avro_too_deep`, `avro_count_too_large`,
                `avro_enum_out_of_range`, `avro_union_out_of_range`, `avro_negative_length`, `avro_varint_too_long`,
                `avro_block_size`, or for a wanted field `avro_invalid_utf8`, `avro_invalid_boolean`.
        """
        try:
            fields, end = self._read(datum, 0, Room())
        except IndexError:
            end = len(datum) + 1
        except RecursionError:  # types without items or branches between them, so many that Python gives up
            raise DecodeError(f"datum of {self._title} is nested too deeply", code="avro_too_deep") from None
        except DecodeError as error:
            raise DecodeError(f"datum of {self._title}, {len(datum)} bytes: {error}", code=error.code) from None
        if end > len(datum):
            raise DecodeError(f"datum of {self._title} ends early, after {len(datum)} bytes", code="avro_truncated")
        if end < len(datum):
            raise DecodeError(
                f"datum of {self._title} ends after {end} of {len(datum)} bytes: was it written with another schema?",
                code="avro_trailing_bytes",
            )
        return fields if isinstance(fields, dict) else {}

    def _wanted(self, node: Node, wanted: _Wanted) -> _Read:
        if node.kind == "union":
            return self._union(node, wanted)
        if node.kind == "record":
            return self._record(node, wanted)
        return _checked(self._scanner.skip(node), node)

    def _record(self, node: Node, wanted: _Wanted) -> _Read:
        steps: list[tuple[str, Skip | None, _Read | None]] = []
        for name, child in node.fields:
            if name not in wanted:
                steps.append((name, self._scanner.skip(child), None))
            elif wanted[name]:
                steps.append((name, None, self._wanted(child, wanted[name])))
            else:
                steps.append((name, None, _checked(self._scanner.skip(child), child)))

        def read(buf: bytes, pos: int, room: Room) -> tuple[dict[str, Any], int]:
            room.enter()
            fields: dict[str, Any] = {}
            for name, skip, read_field in steps:
                if skip is not None:
                    pos = skip(buf, pos, room)
                elif read_field is not None:
                    fields[name], pos = read_field(buf, pos, room)
            room.depth += 1
            return fields, pos

        return read

    def _union(self, node: Node, wanted: _Wanted) -> _Read:
        index = branch_index(len(node.children), "a union", "avro_union_out_of_range")
        branches = [self._wanted(child, wanted) for child in node.children]

        def read(buf: bytes, pos: int, room: Room) -> tuple[Any, int]:
            branch, pos = index(buf, pos)
            return branches[branch](buf, pos, room)

        return read


def _tree(paths: Iterable[str]) -> _Wanted:
    tree: _Wanted = {}
    for path in sorted(paths, key=len, reverse=True):  # a whole record comes after its parts and replaces them
        *outer, last = path.split(".")
        level = tree
        for part in outer:
            level = level.setdefault(part, {})
        level[last] = {}
    return tree


def _checked(skip: Skip, node: Node) -> _Read:
    """Walk the value first, then build it: what is built is known to be bounded."""

    def read(buf: bytes, pos: int, room: Room) -> tuple[Any, int]:
        end = skip(buf, pos, room)
        if end > len(buf):
            raise IndexError
        return _value(node, buf, pos)

    return read


def _value(node: Node, buf: bytes, pos: int) -> tuple[Any, int]:  # noqa: PLR0911, PLR0912 - one case a kind
    """The value at `pos`, which has been walked, and the position after it."""
    match node.kind:
        case "string" | "bytes":
            length, pos = read_long(buf, pos)
            value = buf[pos : pos + length]
            return (_text(value, pos) if node.kind == "string" else _bytes(node, value)), pos + length
        case "int" | "long":
            return read_long(buf, pos)
        case "null":
            return None, pos
        case "boolean":
            if buf[pos] > 1:
                refuse("avro_invalid_boolean", f"the boolean at byte {pos} is {buf[pos]}; 0 is false and 1 is true")
            return buf[pos] == 1, pos + 1
        case "float":
            return _FLOAT.unpack_from(buf, pos)[0], pos + 4
        case "double":
            return _DOUBLE.unpack_from(buf, pos)[0], pos + 8
        case "fixed":
            end = pos + (node.width or 0)
            return _bytes(node, buf[pos:end]), end
        case "enum":
            index, pos = read_long(buf, pos)
            return node.symbols[index], pos
        case "union":
            index, pos = read_long(buf, pos)
            return _value(node.children[index], buf, pos)
        case "record":
            fields: dict[str, Any] = {}
            if node.width == 0:  # nothing but nulls, and a small schema can hold 2^30 of them
                return fields, pos
            for name, child in node.fields:
                fields[name], pos = _value(child, buf, pos)
            return fields, pos
    return _entries(node, buf, pos) if node.kind == "map" else _items(node, buf, pos)


def _items(node: Node, buf: bytes, pos: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while True:
        count, _, pos = read_block(buf, pos)
        if not count:
            return items, pos
        for _ in range(count):
            item, pos = _value(node.children[0], buf, pos)
            items.append(item)


def _entries(node: Node, buf: bytes, pos: int) -> tuple[dict[str, Any], int]:
    entries: dict[str, Any] = {}
    while True:
        count, _, pos = read_block(buf, pos)
        if not count:
            return entries, pos
        for _ in range(count):
            length, pos = read_long(buf, pos)
            key = _text(buf[pos : pos + length], pos)
            entries[key], pos = _value(node.children[0], buf, pos + length)


def _bytes(node: Node, value: bytes) -> bytes | str:
    if node.scale is None or len(value) > _LONGEST_DECIMAL:
        return value
    return format(Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-node.scale, _EXACT), "f")


def _text(value: bytes, pos: int) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        refuse("avro_invalid_utf8", f"a wanted text is no UTF-8 at byte {pos + error.start}")
