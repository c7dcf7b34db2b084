"""A record that cannot be decided or written, as it goes to `dead`: its own bytes, and why."""

import hashlib
from dataclasses import replace

from slotstream.operators.kafka.headers import ERROR_PREFIXES, PREFIX, Stamp, dead_headers
from slotstream.operators.kafka.sink import Outgoing
from slotstream.schemas.errors import RecordError
from slotstream.schemas.record import Message

__all__ = ["dead_letter", "smaller"]


def dead_letter(
    message: Message, stamp: Stamp, error: RecordError, *, time_ms: int, schema_id: int | None = None
) -> Outgoing:
    """The message as it was read, key, value and headers untouched, with the error in further headers."""
    headers = dead_headers(message, stamp, error, time_ms=time_ms, schema_id=schema_id)
    return Outgoing("dead", message, message.value, headers, schema_id)


def smaller(letter: Outgoing, prefix: str = PREFIX) -> Outgoing | None:
    """The letter for a topic that finds it too large: without its value, then without key and foreign headers, too.

    What was left out is named by size and SHA-256. None when nothing more can be left out.
    """
    marker = f"{prefix}.payload.omitted"
    value, key = letter.message.value or b"", letter.message.key or b""
    if all(name != marker for name, _ in letter.headers):
        facts = {
            marker: "true",
            f"{prefix}.payload.size": str(len(value)),
            f"{prefix}.payload.sha256": hashlib.sha256(value).hexdigest(),
        }
        added = tuple((name, text.encode()) for name, text in facts.items())
        return replace(letter, value=b"", headers=letter.headers + added)
    if letter.keyless:
        return None
    facts = {
        f"{prefix}.key.omitted": "true",
        f"{prefix}.key.size": str(len(key)),
        f"{prefix}.key.sha256": hashlib.sha256(key).hexdigest(),
        f"{prefix}.headers.omitted": "true",
    }
    ours = tuple(header for header in letter.headers if header[0].startswith((f"{prefix}.", *ERROR_PREFIXES)))
    return replace(letter, headers=ours + tuple((name, text.encode()) for name, text in facts.items()), keyless=True)
