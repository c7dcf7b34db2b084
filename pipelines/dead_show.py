"""`slotstream dead show`: one letter for a person to read, its value as far as it can be read. Shows record text."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slotstream.operators.codec import ValueConfig
from slotstream.operators.kafka.dead_topic import letter_at, letters_of
from slotstream.operators.kafka.headers import header_value
from slotstream.operators.kafka.letter import Letter
from slotstream.operators.letter_value import ValueFound, read_value
from slotstream.operators.registry import SchemaRegistry, shared_registry
from slotstream.operators.registry_file import FileRegistry
from slotstream.pipelines.config import PipelineConfig
from slotstream.pipelines.dead_config import framed, open_config
from slotstream.pipelines.dead_words import shown, shown_time
from slotstream.schemas.error_codes import ERROR_CODES
from slotstream.schemas.errors import ConfigError

__all__ = ["dump", "letter_lines", "show_letter", "value_lines"]

MOST_LETTERS = 400
"""Of one value; more of it is in an export."""
MOST_LINES = 200
_WIDTH = 110


def show_letter(path: Path, place: tuple[str, int, int]) -> int:
    """Print one letter; returns the exit code.

    Args:
        place: topic (empty for the dead topic), partition, offset; of another topic it is the record's origin.

    Raises:
        ConfigError: no such letter is there.
        BrokerError: Kafka fails.
    """
    config, _ = open_config(path)
    topic, partition, offset = place
    dead = config.output.dead
    others: list[str] = []
    if topic in ("", dead):
        found = letter_at(config.kafka, dead, partition, offset, framed=framed(config))
        if found is None:
            raise ConfigError(f"no record lies at {dead}[{partition}]@{offset}; `slotstream dead list` shows what does")
    else:
        found, others = _latest(config, f"{topic}[{partition}]@{offset}")
    for line in letter_lines(found, others, prefix=config.kafka.header_prefix):
        print(line)
    if found.value:
        values = ValueConfig(format=config.input.format, framing=config.input.framing)
        registry = _registry(config)
        read = read_value(found.value, values, None if registry is None else registry.schema)
        for line in value_lines(found.value, read):
            print(line)
    return 0


def _latest(config: PipelineConfig, origin: str) -> tuple[Letter, list[str]]:
    """The letter of the highest attempt of that record, and where its other letters lie."""
    found: Letter | None = None
    places: list[str] = []
    for letter in letters_of(config.kafka, config.output.dead, framed=framed(config)):
        if letter.identity is None or str(letter.identity.origin) != origin:
            continue
        places.append(f"{letter.place} (attempt {letter.identity.attempt})")
        if found is None or found.identity is None or letter.identity.attempt > found.identity.attempt:
            found = letter
    if found is None:
        raise ConfigError(f"no letter on {config.output.dead} is of record {origin}; `slotstream dead list` shows some")
    return found, [place for place in places if not place.startswith(f"{found.place} ")]


def _registry(config: PipelineConfig) -> SchemaRegistry | None:
    if config.schema_file is not None:
        return FileRegistry(config.schema_file)
    return None if config.registry is None else shared_registry(config.registry)


def letter_lines(letter: Letter, others: list[str], *, prefix: str) -> Iterator[str]:
    """All but the value. Pure."""
    identity = letter.identity
    yield _row("record", "not written by slotstream" if identity is None else str(identity.origin))
    yield _row("letter", letter.place + "".join(f"; also {place}" for place in others))
    if identity is not None:
        yield _row("attempt", f"{identity.attempt}, of decision schema {identity.schema_hash}")
    yield _row("dead since", shown_time(letter.time_ms))
    yield _row("code", f"{letter.code or '-'}, at stage {letter.stage or '-'}")
    message = header_value(letter.headers, f"{prefix}.error.message")
    yield _row("error", shown(message or "-"))
    if letter.code in ERROR_CODES:
        yield _row("what to do", ERROR_CODES[letter.code].advice)
    yield _row("time stamp", shown_time(letter.timestamp_ms if letter.original_ms is None else letter.original_ms))
    yield _row("key", _bytes_shown(letter.key))
    yield f"headers     {len(letter.headers)}"
    for name, value in letter.headers:
        yield f"  {shown(name)} = {_bytes_shown(value)}"
    if letter.value is None:
        yield _row("value", "none: a tombstone")
    elif not letter.whole:
        facts = [
            f"{shown(name.removeprefix(prefix + '.'))} {_bytes_shown(value)}"
            for name, value in letter.headers
            if name in (f"{prefix}.payload.size", f"{prefix}.payload.sha256")
        ]
        yield _row("value", f"left out: too large for the dead topic ({', '.join(facts)})")
    elif not letter.value:
        yield _row("value", "empty, 0 bytes")


def value_lines(value: bytes, found: ValueFound) -> Iterator[str]:
    """The value as far as it can be read, then the bytes around the one where reading stopped. Pure."""
    yield _row("value", f"{len(value):,} bytes, {shown(found.what)}")
    lines = [
        f"  {_cut(shown(piece.path or '(value)'))} = {_value_shown(piece.value)}"
        + (f"   <- {piece.note}" if piece.note else "")
        for piece in found.pieces[:MOST_LINES]
    ]
    yield from lines
    if (more := len(found.pieces) - len(lines) + found.more) > 0:
        yield f"  ... and {more:,} more"
    if found.text is not None:
        # Where it stopped is at its end, so that is what is kept of a long one.
        text = found.text if found.stopped_at is None else "..." * (len(found.text) > _WIDTH) + found.text[-_WIDTH:]
        yield f"  {_cut(shown(text))}"
    if found.stopped_at is None:
        yield "  read to its end" + (f": {shown(found.why)}" if found.why else "")
        return
    yield f"  reading stops at byte {found.stopped_at:,} of {len(value):,}: {shown(found.why)}"
    yield from (f"  {line}" for line in dump(value, found.stopped_at))


def dump(value: bytes, at: int) -> Iterator[str]:
    """The bytes around one, sixteen a line, with a mark under it (it may be the one after the last). Pure."""
    first = max(0, at // 16 - 2) * 16
    for start in range(first, max(1, min(len(value), at + 33), at + 1), 16):
        row = value[start : start + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<47}  {text}".rstrip()
        if start <= at < start + 16:
            yield " " * (10 + 3 * (at - start)) + f"^^ byte {at}"


def _row(name: str, text: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=f"{name:<11} ", subsequent_indent=" " * 12, break_on_hyphens=False
    )


def _value_shown(value: Any) -> str:
    if isinstance(value, bytes):
        return _bytes_shown(value)
    return _cut(shown(json.dumps(value, ensure_ascii=False)))


def _bytes_shown(value: bytes | None) -> str:
    """Text in quotes where the bytes are text, else hexadecimal."""
    if value is None:
        return "null"
    try:
        return _cut(shown(json.dumps(value.decode(), ensure_ascii=False)))
    except UnicodeDecodeError:
        return _cut(f"{len(value):,} bytes {value[:MOST_LETTERS].hex(' ')}")


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}... ({len(text):,} characters)"
