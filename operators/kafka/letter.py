"""One dead letter as it lies on the dead topic: what our headers say of it, and which letters a filter lets through."""

import re
from dataclasses import dataclass
from typing import Any

from slotstream.operators.kafka.headers import PREFIX, Identity, identity_of
from slotstream.schemas.record import Headers

__all__ = ["Letter", "LetterFilter", "letter_of"]

_WORD = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the dead topic.

    topic, partition, offset: where the letter itself lies.
    identity: which record it is, by our headers; None for a record that slotstream did not write.
    code, stage: why it is dead.  time_ms: when it was found so, Unix milliseconds.
    schema_id: of its value, from the headers or the value's framing.
    whole: its value and key are on it; a letter that was too large for the dead topic lacks them.
    original_ms: the record's own time stamp; the letter's differs where the dead topic refused it.
    """

    topic: str
    partition: int
    offset: int
    identity: Identity | None
    code: str | None
    stage: str | None
    time_ms: int | None
    retriable: bool
    schema_id: int | None
    whole: bool
    timestamp_ms: int
    original_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def place(self) -> str:
        """Where it lies on the dead topic, `TOPIC[PARTITION]@OFFSET`."""
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        content = sum(len(name) + len(value or b"") for name, value in self.headers)
        return content + len(self.key or b"") + len(self.value or b"")


def letter_of(record: Any, *, prefix: str = PREFIX, framed: bool = False) -> Letter:
    """Read the headers of a record (kafka-python's ConsumerRecord, or anything with its attributes). Pure.

    Anybody may have written to the topic: what is not of the form that slotstream writes counts as not there.

    Args:
        prefix: first word of our header names.
        framed: values start with a zero byte and a 4-byte schema id, so that an id can be read off a letter whose
            headers do not name it.
    """
    headers: Headers = tuple(record.headers)

    ours = {name: value for name, value in headers if name.startswith(f"{prefix}.")}  # of equal names the last counts

    def text(name: str) -> str:
        return (ours.get(f"{prefix}.{name}") or b"").decode("utf-8", "replace")

    def word(name: str) -> str | None:
        found = text(name)
        return found if _WORD.fullmatch(found) else None

    def number(name: str) -> int | None:
        found = text(name)
        return int(found) if _NUMBER.fullmatch(found) else None

    schema_id = number("schema.id")
    value: bytes | None = record.value
    if schema_id is None and framed and value is not None and len(value) >= 5 and value[0] == 0:
        schema_id = int.from_bytes(value[1:5], "big")
    return Letter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        identity=identity_of(tuple(ours.items()), prefix=prefix),
        code=word("error.code"),
        stage=word("error.stage"),
        time_ms=number("time"),
        retriable=text("retriable") == "true",
        schema_id=schema_id,
        whole=f"{prefix}.payload.omitted" not in ours and f"{prefix}.key.omitted" not in ours,
        timestamp_ms=record.timestamp,
        original_ms=number("original.timestamp"),
        key=record.key,
        value=value,
        headers=headers,
    )


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are meant; what is None does not matter.

    codes: any of these; empty for all.  since_ms, until_ms: found dead from then (included) to then (excluded).
    """

    codes: frozenset[str] = frozenset()
    stage: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    schema_id: int | None = None

    def lets_through(self, letter: Letter) -> bool:
        """A letter that does not say what is asked for is not meant."""
        if self.since_ms is not None and (letter.time_ms is None or letter.time_ms < self.since_ms):
            return False
        if self.until_ms is not None and (letter.time_ms is None or letter.time_ms >= self.until_ms):
            return False
        return (
            (not self.codes or letter.code in self.codes)
            and (self.stage is None or letter.stage == self.stage)
            and (self.schema_id is None or letter.schema_id == self.schema_id)
        )
