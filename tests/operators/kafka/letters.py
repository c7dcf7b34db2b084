"""Dead letters for the suites that need no broker."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from slotstream.operators.kafka.dead_letter import dead_letter, smaller
from slotstream.operators.kafka.headers import Stamp
from slotstream.operators.kafka.letter import Letter, letter_of
from slotstream.schemas.errors import DecodeError, RecordError
from slotstream.schemas.record import Headers, Message, Origin

__all__ = ["STAMP", "Lying", "letter", "numbered"]

STAMP = Stamp("cafe", "labels", "0.1.0")


@dataclass(frozen=True)
class Lying:
    """A record as kafka-python gives it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def letter(
    offset: int = 0,
    *,
    attempt: int = 1,
    topic: str = "tickets",
    partition: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"{",
    headers: Headers = (),
    error: RecordError | None = None,
    time_ms: int = 1_000,
    schema_id: int | None = None,
    timestamp_ms: int = 5,
    cut: bool = False,
) -> Letter:
    """The letter of `topic[partition]@offset`, as the pipeline writes it."""
    origin = Origin(topic, f"uuid-of-{topic}", partition, offset)
    message = Message(origin, timestamp_ms, 0, key, value, headers, attempt)
    reason = error or DecodeError("no JSON", code="json_invalid")
    outgoing = dead_letter(message, STAMP, reason, time_ms=time_ms, schema_id=schema_id)
    if cut:
        less = smaller(outgoing)
        assert less is not None
        outgoing = less
    return letter_of(Lying("dead", partition, 0, timestamp_ms, outgoing.key, outgoing.value, outgoing.headers))


def numbered(letters: Iterable[Letter]) -> list[Letter]:
    """The letters at offsets 0, 1, ... of the dead topic."""
    return [replace(each, offset=offset) for offset, each in enumerate(letters)]
