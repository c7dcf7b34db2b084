"""`slotstream dead export`: letters as JSON lines that hold everything, so that any program can read or replay them."""

import base64
import json
import os
from pathlib import Path
from typing import IO, Any

from slotstream.operators.kafka.dead_topic import letters_of
from slotstream.operators.kafka.header_keys import RawHeaderKey
from slotstream.operators.kafka.letter import Letter, LetterFilter
from slotstream.pipelines.dead_config import framed, open_config
from slotstream.schemas.errors import ConfigError

__all__ = ["export_letters", "exported"]


def export_letters(path: Path, wanted: LetterFilter, out: Path, *, limit: int | None) -> int:
    """Write the letters that the filter lets through to a new file; returns the exit code.

    Raises:
        ConfigError: the file exists or cannot be made.
    """
    config, _ = open_config(path)
    count = read = 0
    with _open(out) as file:
        for letter in letters_of(config.kafka, config.output.dead, framed=framed(config)):
            if limit is not None and count >= limit:
                break
            read += 1
            if wanted.lets_through(letter):
                file.write(json.dumps(exported(letter), ensure_ascii=False) + "\n")
                count += 1
    print(f"{out}: {count:,} of {read:,} letters that were read from {config.output.dead}")
    return 0


def exported(letter: Letter) -> dict[str, Any]:
    """A letter as JSON values. Bytes are base64; a header key that is no UTF-8 has its bytes beside it."""
    identity = letter.identity
    return {
        "origin": None if identity is None else str(identity.origin),
        "decision_id": None if identity is None else identity.origin.decision_id(identity.schema_hash),
        "attempt": None if identity is None else identity.attempt,
        "code": letter.code,
        "stage": letter.stage,
        "retriable": letter.retriable,
        "time_ms": letter.time_ms,
        "schema_id": letter.schema_id,
        "letter": letter.place,
        "timestamp_ms": letter.timestamp_ms,
        "original_timestamp_ms": letter.original_ms,
        "key": _base64(letter.key),
        "value": _base64(letter.value),
        "headers": [_header(name, value) for name, value in letter.headers],
    }


def _header(name: str, value: bytes | None) -> dict[str, str | None]:
    shown: dict[str, str | None] = {"key": str(name), "value": _base64(value)}
    return shown | {"key_bytes": _base64(name.raw)} if isinstance(name, RawHeaderKey) else shown


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _open(out: Path) -> IO[str]:
    """A new file that only its owner may read: it holds what records say. A device or a pipe is written as it is."""
    try:
        if out.exists() and not out.is_file():
            return out.open("w", encoding="utf-8")
        return os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except FileExistsError:
        raise ConfigError(f"--out {out}: the file exists, and is not overwritten; name another one") from None
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}") from None
