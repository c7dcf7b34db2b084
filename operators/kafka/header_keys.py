"""Header keys that are not UTF-8: Kafka allows any bytes there, kafka-python 3.0.12 does not survive them.

One such record makes `KafkaConsumer.poll()` raise once and then spin for ever, because the batch iterator is dead but
not drained; seeking behind the record re-reads its whole batch and dies again. So the record parser gets a second try
that keeps the raw bytes: the key becomes a `RawHeaderKey`, a `str` whose `encode()` gives exactly those bytes back, so
that the record flows on and is written out with the key that it came with.
"""

from typing import Any

from kafka.record.default_records import DefaultRecord, DefaultRecordBatch
from kafka.record.util import decode_varint

__all__ = ["RawHeaderKey", "accept_any_header_key"]


class RawHeaderKey(str):
    """A header key that is not UTF-8. Reads as text with `\\xNN` escapes, encodes to the bytes that were read."""

    __slots__ = ("raw",)
    raw: bytes

    def __new__(cls, raw: bytes) -> "RawHeaderKey":
        key = super().__new__(cls, raw.decode("utf-8", "backslashreplace"))
        key.raw = raw
        return key

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:  # noqa: ARG002
        return self.raw

    def __reduce__(self) -> tuple[type["RawHeaderKey"], tuple[bytes]]:
        return RawHeaderKey, (self.raw,)


def accept_any_header_key() -> None:
    """Teach kafka-python's record parser to keep such keys. Idempotent; costs nothing for sound records."""
    parse = DefaultRecordBatch._read_msg
    if getattr(parse, "accepts_any_header_key", False):
        return

    def read_record(batch: Any) -> Any:
        try:
            return parse(batch)
        except UnicodeDecodeError:
            return _read_raw(batch)

    read_record.accepts_any_header_key = True  # type: ignore[attr-defined]
    DefaultRecordBatch._read_msg = read_record


def _read_raw(batch: Any) -> DefaultRecord:
    """Parse the record at the batch's position; layout: kafka/record/default_records.py and Kafka's DefaultRecord."""
    buffer, position = batch._buffer, batch._pos
    length, start = decode_varint(buffer, position)
    _attributes, position = decode_varint(buffer, start)
    timestamp_delta, position = decode_varint(buffer, position)
    append_time = batch.timestamp_type == batch.LOG_APPEND_TIME
    timestamp = batch.max_timestamp if append_time else batch.first_timestamp + timestamp_delta
    offset_delta, position = decode_varint(buffer, position)
    key, position = _nullable(buffer, position)
    value, position = _nullable(buffer, position)
    count, position = decode_varint(buffer, position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        raw, position = _nullable(buffer, position)
        header_value, position = _nullable(buffer, position)
        headers.append((_key(raw or b""), header_value))
    if position - start != length:
        raise ValueError(f"record of {length} bytes has {position - start}")  # kafka-python makes CorruptRecordError
    batch._pos = position
    offset = batch.base_offset + offset_delta
    return DefaultRecord(length, offset, timestamp, batch.timestamp_type, key, value, headers)


def _nullable(buffer: bytearray, position: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(buffer, position)
    if length < 0:
        return None, position
    return bytes(buffer[position : position + length]), position + length


def _key(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return RawHeaderKey(raw)
