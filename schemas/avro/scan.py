"""Prove that bytes are one whole datum of a writer schema, without building a value.

Why not fastavro here: it takes negative enum and union indices and trailing bytes, dies with a segmentation fault on a
deep recursive datum, and allocates without bound on an array of nulls. A schema becomes a tree of closures, one a type,
compiled once; they allocate nothing, and their call depth is bounded by MAX_DEPTH.

What is refused: what Java Avro cannot read back after fields are appended (cut, trailing, an index out of range, a
negative length, a varint of more than 5 or 10 bytes, a block that is not as long as it says), and what is read only by
luck (nesting over MAX_DEPTH, more than MAX_EMPTY_ITEMS items that take no bytes). Over-long varints within those sizes,
negative block counts, several blocks and duplicate map keys are valid. What readers take without agreeing on a value
(text that is not UTF-8; a boolean byte that is neither 0 nor 1: false to Java, true to fastavro) passes here, and is
refused where a value is needed: see reader.py.
"""

from collections.abc import Callable
from typing import NoReturn

from slotstream.schemas.avro.node import MAX_DEPTH, Node
from slotstream.schemas.errors import DecodeError

__all__ = ["MAX_EMPTY_ITEMS", "Room", "Scanner", "Skip", "branch_index", "read_block", "read_long", "refuse"]

MAX_EMPTY_ITEMS = 65_536
"""Most items of zero bytes (nulls, empty records) in all arrays of one datum: seven bytes can claim 2^40 of them."""


class Room:
    """What is left of the limits while one datum is walked."""

    __slots__ = ("depth", "empties")

    def __init__(self) -> None:
        self.depth = MAX_DEPTH
        self.empties = MAX_EMPTY_ITEMS

    def enter(self) -> None:
        """One record, array or map deeper; whoever enters adds the level back."""
        self.depth -= 1
        if self.depth < 0:
            refuse("avro_too_deep", f"it is nested deeper than {MAX_DEPTH}")

    def spend(self, items: int) -> None:
        """Count items that take no bytes."""
        self.empties -= items
        if self.empties < 0:
            refuse("avro_count_too_large", f"it claims more than {MAX_EMPTY_ITEMS} items that take no bytes")


Skip = Callable[[bytes, int, Room], int]
"""(datum, position, room) to the position after the value. It may lie past the end: the caller compares once, last.

Raises IndexError when a byte that has to be looked at is not there.
"""


def refuse(code: str, message: str) -> NoReturn:
    raise DecodeError(message, code=code)


def read_long(buf: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift == 70:
            refuse("avro_varint_too_long", f"the varint before byte {pos} takes more than 10 bytes")
        byte = buf[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    number &= 0xFFFF_FFFF_FFFF_FFFF  # Java and C drop what does not fit
    return (number >> 1) ^ -(number & 1), pos


def read_block(buf: bytes, pos: int) -> tuple[int, int | None, int]:
    """The head of an array's or map's block: item count (0 ends it), where the block says it ends, position after."""
    count, pos = read_long(buf, pos)
    if count >= 0:
        return count, None, pos
    size, pos = read_long(buf, pos)
    if size < 0:
        refuse("avro_negative_length", f"the block before byte {pos} is {size} bytes long")
    return -count, pos + size, pos


def branch_index(count: int, what: str, code: str) -> Callable[[bytes, int], tuple[int, int]]:
    """A reader of an index below `count`: an enum's symbol or a union's branch."""

    def read(buf: bytes, pos: int) -> tuple[int, int]:
        index, end = read_long(buf, pos)
        if end > pos + 5:
            refuse("avro_varint_too_long", f"the index at byte {pos} takes more than 5 bytes")
        if not 0 <= index < count:
            refuse(code, f"{what} at byte {pos} has index {index} of {count}")
        return index, end

    return read


def _skip_varint(most: int) -> Skip:
    def skip(buf: bytes, pos: int, _room: Room) -> int:
        end = pos + most
        while buf[pos] >= 0x80:
            pos += 1
            if pos == end:
                refuse("avro_varint_too_long", f"the varint before byte {pos} takes more than {most} bytes")
        return pos + 1

    return skip


def _skip_bytes(buf: bytes, pos: int, _room: Room) -> int:
    byte = buf[pos]
    if byte < 0x80 and not byte & 1:  # one byte of length and not negative: nearly always
        return pos + 1 + (byte >> 1)
    length, pos = read_long(buf, pos)
    if length < 0:
        refuse("avro_negative_length", f"the length before byte {pos} is {length}")
    return pos + length


_LEAVES: dict[str, Skip] = {
    "int": _skip_varint(5),
    "long": _skip_varint(10),
    "bytes": _skip_bytes,
    "string": _skip_bytes,
}


class Scanner:
    """Compiles types to Skips; each named type once, so that recursive uses find it again."""

    def __init__(self) -> None:
        self._named: dict[int, Skip] = {}

    def skip(self, node: Node) -> Skip:
        if node.kind in _LEAVES:
            return _LEAVES[node.kind]
        if (width := node.width) is not None:
            return lambda _buf, pos, _room: pos + width
        match node.kind:
            case "enum":
                return _skip_enum(node)
            case "union":
                return self._union(node)
            case "record":
                return self._named.get(id(node)) or self._record(node)
        return self._items(node)

    def _record(self, node: Node) -> Skip:
        steps: list[Skip] = []

        def skip(buf: bytes, pos: int, room: Room) -> int:
            room.enter()
            for step in steps:
                pos = step(buf, pos, room)
            room.depth += 1
            return pos

        self._named[id(node)] = skip  # before its fields, which may name it
        steps += [self.skip(child) for _, child in node.fields]
        return skip

    def _union(self, node: Node) -> Skip:
        index = branch_index(len(node.children), "a union", "avro_union_out_of_range")
        branches = [self.skip(child) for child in node.children]
        by_byte = {number << 1: branch for number, branch in enumerate(branches[:64])}  # an index of one byte

        def skip(buf: bytes, pos: int, room: Room) -> int:
            branch = by_byte.get(buf[pos])
            if branch is not None:
                return branch(buf, pos + 1, room)
            number, pos = index(buf, pos)
            return branches[number](buf, pos, room)

        return skip

    def _items(self, node: Node) -> Skip:
        items = _skip_entries(self.skip(node.children[0])) if node.kind == "map" else self._array_items(node)

        def skip(buf: bytes, pos: int, room: Room) -> int:
            room.enter()
            while True:
                count, end, pos = read_block(buf, pos)
                if not count:
                    break
                pos = items(buf, pos, count, room)
                if end is not None and pos != end:
                    refuse("avro_block_size", f"the block that ends at byte {pos} says that it ends at byte {end}")
            room.depth += 1
            return pos

        return skip

    def _array_items(self, node: Node) -> Callable[[bytes, int, int, Room], int]:
        width, item = node.children[0].width, self.skip(node.children[0])

        def skip(buf: bytes, pos: int, count: int, room: Room) -> int:
            if width is not None:
                if not width:
                    room.spend(count)
                return pos + width * count
            if count > len(buf) - pos:  # each takes a byte or more
                raise IndexError
            for _ in range(count):
                pos = item(buf, pos, room)
            return pos

        return skip


def _skip_enum(node: Node) -> Skip:
    index = branch_index(len(node.symbols), f"enum {node.name}", "avro_enum_out_of_range")
    of_one_byte = frozenset(number << 1 for number in range(min(64, len(node.symbols))))

    def skip(buf: bytes, pos: int, _room: Room) -> int:
        return pos + 1 if buf[pos] in of_one_byte else index(buf, pos)[1]

    return skip


def _skip_entries(value: Skip) -> Callable[[bytes, int, int, Room], int]:
    def skip(buf: bytes, pos: int, count: int, room: Room) -> int:
        if count > len(buf) - pos:
            raise IndexError
        for _ in range(count):
            pos = value(buf, _skip_bytes(buf, pos, room), room)
        return pos

    return skip
