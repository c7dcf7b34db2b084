"""What the pipeline wrote, read back from its topics and decoded by the schema that each value names.

python deploy/demo/read_back.py decided review          both topics from the beginning, as JSON lines
"""

import argparse
import base64
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from kafka import KafkaConsumer, TopicPartition

if __name__ == "__main__":
    # Python puts this script's own folder first: a module here would then hide an installed package of its name.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from deploy.demo.place import CONFIG, ROUTES, Place, Schemas

__all__ = ["Row", "decode", "json_line", "main", "read_topic"]

READ_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """One record of an output topic.

    headers: in their order; values that are no text are hexadecimal.
    fields: the decoded value; None for a tombstone, and for a dead letter whose bytes are what is wrong with it.
    value: as it stands on the topic.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    headers: tuple[tuple[str, str], ...]
    fields: Mapping[str, Any] | None = field(repr=False)
    value: bytes | None = field(repr=False)

    def header(self, name: str) -> str | None:
        """The text of the last header of that name."""
        return next((text for key, text in reversed(self.headers) if key == name), None)

    @property
    def origin(self) -> str:
        """`TOPIC[PARTITION]@OFFSET` of the input record. Raises ValueError where slotstream has not written it."""
        origin = self.header("slotstream.origin")
        if origin is None:
            raise ValueError(f"{self.topic}[{self.partition}]@{self.offset} has no header slotstream.origin")
        return origin


def read_topic(bootstrap: str, topic: str, schemas: Schemas) -> list[Row]:
    """Every record of `topic`, from the beginning to the end that it has now, in order per partition.

    Raises:
        TimeoutError: the end was not reached in a minute.
        ValueError: a value is not what slotstream writes.
    """
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id="slotstream-demo-reader",
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        if not partitions:
            raise ValueError(f"topic {topic} is not on {bootstrap}")
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        rows: list[Row] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic} could not be read to its end within {READ_TIMEOUT_S:.0f} s")
            for records in consumer.poll(timeout_ms=500).values():
                rows += [_row(record, schemas) for record in records]
    finally:
        consumer.close(timeout_ms=5_000)
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def _row(record: Any, schemas: Schemas) -> Row:
    headers = tuple((name, _text(value or b"")) for name, value in record.headers)
    broken = ("slotstream.error.stage", "decode") in headers or ("slotstream.payload.omitted", "true") in headers
    return Row(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=None if record.key is None else _text(record.key),
        headers=headers,
        fields=None if record.value is None or broken else decode(record.value, schemas),
        value=record.value,
    )


def decode(value: bytes, schemas: Schemas) -> dict[str, Any]:
    """The fields of a Confluent-framed Avro record.

    Raises:
        ValueError: it is not framed so, or not whole.
    """
    if value[:1] != b"\0" or len(value) < 5:
        raise ValueError(f"a value does not start with a zero byte and a schema id, it starts with {value[:5].hex()}")
    datum = BytesIO(value[5:])
    fields = fastavro.schemaless_reader(datum, json.loads(schemas(int.from_bytes(value[1:5], "big"))), None)
    if not isinstance(fields, dict) or datum.read(1):
        raise ValueError("a value is no record of its schema: bytes are left over")
    return fields


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def json_line(row: Row) -> str:
    """The row as one line of JSON; every header has a list of values, since names may repeat."""
    headers: dict[str, list[str]] = {}
    for name, text in row.headers:
        headers.setdefault(name, []).append(text)
    shown: dict[str, Any] = {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": datetime.fromtimestamp(row.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "key": row.key,
        "origin": row.origin,
        "headers": headers,
        "fields": row.fields,
    }
    if row.fields is None and row.value is not None:
        shown["value_base64"] = base64.b64encode(row.value).decode()
    return json.dumps(shown, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else value.hex()  # a datetime is a date; the rest is bytes


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python deploy/demo/read_back.py", description="Print output topics as JSON lines, decoded."
    )
    parser.add_argument("topics", nargs="+", choices=ROUTES, metavar="TOPIC", help="decided, review or dead")
    parser.add_argument(
        "--config", type=Path, default=CONFIG, help="configuration of the pipeline (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    place = Place.of(options.config)
    rows = [row for topic in options.topics for row in read_topic(place.bootstrap, topic, place.schemas())]
    try:
        print(*map(json_line, rows), sep="\n", flush=True)
    except BrokenPipeError:  # head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
