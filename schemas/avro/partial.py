"""Read a datum as far as it goes, for a person who wants to see what is wrong with it; never for deciding.

Every value is told with the bytes that it takes, up to the first one that is not what the schema says. Text that is not
UTF-8 and booleans that are neither 0 nor 1 have a well-known length, so they are told with a note and reading goes on.
"""

import struct
from dataclasses import dataclass
from typing import Any

from slotstream.schemas.avro.node import Node, WriterSchema
from slotstream.schemas.avro.scan import Room, Scanner, branch_index, read_block, read_long, refuse
from slotstream.schemas.errors import DecodeError

__all__ = ["Partial", "Piece", "read_partly"]

MOST_PIECES = 10_000
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


@dataclass(frozen=True, slots=True)
class Piece:
    """One value inside the datum, at the bytes [start, end). value: str, bytes, int, float, bool, None, [] or {}."""

    path: str
    value: Any
    start: int
    end: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Partial:
    """What could be read.

    pieces: in the order of the bytes, the first MOST_PIECES.  more: how many followed them.
    stopped_at: the byte at which the first thing stands that is not as the schema says; None for a whole datum.
    why: what is wrong there.
    """

    pieces: tuple[Piece, ...]
    more: int = 0
    stopped_at: int | None = None
    why: str = ""


def read_partly(schema: WriterSchema, value: bytes, start: int = 0) -> Partial:
    """Read the datum that begins at `start`; positions count from the beginning of `value`. Pure, raises nothing."""
    walk = _Walk(value, start)
    stopped_at: int | None = None
    why = ""
    try:
        walk.value(schema.root, "")
        if walk.pos < len(value):
            stopped_at, why = walk.pos, f"the datum ends here, and {len(value) - walk.pos} bytes follow it"
    except IndexError:
        stopped_at, why = walk.pos, f"{walk.reading} needs more bytes than are left ({len(value) - walk.pos})"
    except DecodeError as error:
        stopped_at, why = walk.pos, f"{walk.reading}: {error}"
    except RecursionError:
        stopped_at, why = walk.pos, f"{walk.reading} is nested too deeply"
    return Partial(tuple(walk.pieces), walk.more, stopped_at, why)


class _Walk:
    def __init__(self, buf: bytes, pos: int) -> None:
        self.pieces: list[Piece] = []
        self.more = 0
        self.pos = pos
        self.reading = "the datum"
        self._buf = buf
        self._room = Room()
        self._scanner = Scanner()

    def value(self, node: Node, path: str) -> None:
        self.reading = f"{path or 'the datum'} ({node.name or node.kind})"
        if node.kind == "record" and node.width != 0:  # one of nothing but nulls can hold 2^30 of them
            self._room.enter()
            for name, child in node.fields:
                self.value(child, f"{path}.{name}" if path else name)
            self._room.depth += 1
        elif node.kind == "union":
            index, self.pos = branch_index(len(node.children), "a union", "avro_union_out_of_range")(
                self._buf, self.pos
            )
            self.value(node.children[index], path)
        elif node.kind in ("array", "map"):
            self._items(node, path)
        else:
            end = self._scanner.skip(node)(self._buf, self.pos, self._room)
            if end > len(self._buf):
                raise IndexError
            value, note = _leaf(node, self._buf, self.pos, end)
            self._add(path, value, end, note)

    def _items(self, node: Node, path: str) -> None:
        self._room.enter()
        child, number, start = node.children[0], 0, self.pos
        while True:
            self.reading = f"{path or 'the datum'} ({node.kind})"
            count, end, pos = read_block(self._buf, self.pos)
            if count and child.width == 0 and node.kind == "array":
                self._room.spend(count)
            elif count > len(self._buf) - pos:
                raise IndexError
            self.pos = pos
            if not count:
                break
            for _ in range(count):
                self.value(child, f"{path}[{self._key(path) if node.kind == 'map' else number}]")
                number += 1
            if end is not None and self.pos != end:
                refuse("avro_block_size", f"its block says that it ends at byte {end}")
        if not number:
            self._add(path, {} if node.kind == "map" else [], self.pos, start=start)
        self._room.depth += 1

    def _key(self, path: str) -> str:
        self.reading = f"a key of {path or 'the datum'}"
        length, pos = read_long(self._buf, self.pos)
        if length < 0:
            refuse("avro_negative_length", f"its length is {length}")
        if length > len(self._buf) - pos:
            raise IndexError
        self.pos = pos + length
        return repr(self._buf[pos : self.pos].decode("utf-8", "backslashreplace"))

    def _add(self, path: str, value: Any, end: int, note: str = "", *, start: int | None = None) -> None:
        if len(self.pieces) < MOST_PIECES:
            self.pieces.append(Piece(path, value, self.pos if start is None else start, end, note))
        else:
            self.more += 1
        self.pos = end


def _leaf(node: Node, buf: bytes, pos: int, end: int) -> tuple[Any, str]:  # noqa: PLR0911 - one case a kind
    match node.kind:
        case "null":
            return None, ""
        case "boolean":
            return buf[pos] == 1, "" if buf[pos] < 2 else f"byte {pos} is {buf[pos]}, neither 0 nor 1"
        case "int" | "long":
            return read_long(buf, pos)[0], ""
        case "float":
            return _FLOAT.unpack_from(buf, pos)[0], ""
        case "double":
            return _DOUBLE.unpack_from(buf, pos)[0], ""
        case "enum":
            return node.symbols[read_long(buf, pos)[0]], ""
        case "record":
            return {}, ""
        case "bytes":
            return buf[read_long(buf, pos)[1] : end], ""
        case "string":
            pos = read_long(buf, pos)[1]
            try:
                return buf[pos:end].decode(), ""
            except UnicodeDecodeError as error:
                text = buf[pos:end].decode("utf-8", "backslashreplace")
                return text, f"not UTF-8 at byte {pos + error.start}"
    return buf[pos:end], ""
