"""What can be read of a dead letter's value, and the byte where reading stops: for a person, never for deciding."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from slotstream.operators.codec import ValueConfig
from slotstream.operators.registry import RegisteredSchema
from slotstream.schemas.avro import parse_writer_schema
from slotstream.schemas.avro.partial import Piece, read_partly
from slotstream.schemas.errors import SlotstreamError

__all__ = ["ValueFound", "read_value"]


@dataclass(frozen=True, slots=True)
class ValueFound:
    """A value as far as it can be read.

    what: its format in words.  pieces: Avro's values.  text: of JSON and plain text, up to where it stops.
    stopped_at: the byte of the first thing that cannot be read; None when all can be.  why: what is wrong there.
    """

    what: str
    pieces: tuple[Piece, ...] = ()
    more: int = 0
    text: str | None = None
    stopped_at: int | None = None
    why: str = ""


def read_value(value: bytes, config: ValueConfig, schema: Callable[[int], RegisteredSchema] | None) -> ValueFound:
    """Read a value in the format that the configuration names; what goes wrong is told, not raised.

    Args:
        schema: gives the writer schema of an id (0 for bare Avro).
    """
    if config.format == "avro":
        return _avro(value, schema, framed=config.framing == "confluent")
    what = "JSON" if config.format == "json" else "plain text"
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return ValueFound(what, text=value[: error.start].decode(), stopped_at=error.start, why="no UTF-8")
    if config.format == "json":
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            at = len(text[: error.pos].encode())
            return ValueFound(what, text=text[: error.pos], stopped_at=at, why=f"no JSON: {error.msg}")
        except RecursionError:
            return ValueFound(what, text=text, why="nested too deeply for a reader")
        except ValueError:  # an integer of so many digits that Python refuses it
            pass
    return ValueFound(what, text=text)


def _avro(value: bytes, schema: Callable[[int], RegisteredSchema] | None, *, framed: bool) -> ValueFound:
    schema_id, start = 0, 0
    if framed:
        if len(value) < 5 or value[0] != 0:
            why = "a zero byte and a 4-byte schema id are expected here"
            return ValueFound("not Confluent-framed Avro", stopped_at=0, why=why)
        schema_id, start = int.from_bytes(value[1:5], "big"), 5
    what = f"Avro, schema {schema_id}" if framed else "bare Avro"
    if schema is None:
        return ValueFound(what, stopped_at=start, why="no schema is configured")
    try:
        registered = schema(schema_id)
        writer = parse_writer_schema(registered.text, registered.references)
    except SlotstreamError as error:
        return ValueFound(what, stopped_at=start, why=f"its schema: {error}")
    found = read_partly(writer, value, start)
    return ValueFound(
        f"{what} ({writer.title})",
        pieces=found.pieces,
        more=found.more,
        stopped_at=found.stopped_at,
        why=found.why,
    )
