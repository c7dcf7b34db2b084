"""The demo's messages, as a support desk's gateway would publish them: Confluent-framed Avro, keys, headers, and flaws.

python deploy/demo/produce.py "The machine swallowed my card"       one more ticket, while `make demo KEEP=1` is up
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from kafka import KafkaProducer

if __name__ == "__main__":
    # Python puts this script's own folder first: a module here would then hide an installed package of its name.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from deploy.demo.place import CONFIG, INPUT, TICKET_SCHEMA, Place

__all__ = ["FLAWS", "Sample", "Wire", "load_samples", "main", "recent", "send", "wire", "with_tombstones"]

UNKNOWN_SCHEMA_ID = 999_999
TOO_OFTEN = 800
SEND_S = 30.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A ticket to send, and what is known about it.

    created_at_ms: Unix milliseconds.
    expected: the right answers by question (a score's as its 0-based level); None where no answer is right.
    flaw: what the producer does wrong, one of `FLAWS`; None for a sound message.
    hard: a reader has to think about it.
    """

    ticket_id: str
    customer: str
    channel: str
    created_at_ms: int
    text: str = field(repr=False)
    expected: Mapping[str, Any] | None = None
    flaw: str | None = None
    hard: bool = False


@dataclass(frozen=True, slots=True)
class Wire:
    """A message as it goes to Kafka."""

    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def load_samples(path: Path) -> tuple[Sample, ...]:
    """The samples of a JSON lines file, in order: `{"record": {...}, "expected": {...}, "break": ..., "hard": ...}`.

    Raises:
        ValueError: names the file, the line and what is wrong with it.
    """
    samples = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            samples.append(_sample(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: {type(error).__name__}: {error}") from None
    if not samples:
        raise ValueError(f"{path} holds no message")
    return tuple(samples)


def _sample(line: Mapping[str, Any]) -> Sample:
    if unknown := sorted(line.keys() - {"record", "expected", "break", "hard"}):
        raise ValueError(f"unknown keys {unknown}")
    record, flaw = line["record"], line.get("break")
    if flaw is not None and flaw not in FLAWS:
        raise ValueError(f"break is one of {', '.join(FLAWS)}, got {flaw!r}")
    created_at = datetime.fromisoformat(record["created_at"])
    if created_at.tzinfo is None:
        raise ValueError(f"created_at needs a time zone, got {record['created_at']!r}")
    return Sample(
        ticket_id=record["ticket_id"],
        customer=record["customer"],
        channel=record["channel"],
        created_at_ms=round(created_at.timestamp() * 1000),
        text=record["text"],
        expected=line["expected"],
        flaw=flaw,
        hard=line.get("hard", False),
    )


def with_tombstones(samples: Sequence[Sample], count: int) -> tuple[Sample, ...]:
    """The samples, and then a tombstone for each of the first `count` tickets: their customers took them back."""
    at_ms = samples[-1].created_at_ms
    return (*samples, *(replace(s, flaw="tombstone", created_at_ms=at_ms, expected=None) for s in samples[:count]))


def recent(samples: Sequence[Sample], now_ms: int) -> tuple[Sample, ...]:
    """The samples as if the newest of them was written now: old messages would meet a topic's retention."""
    later_ms = now_ms - max(sample.created_at_ms for sample in samples)
    return tuple(replace(sample, created_at_ms=sample.created_at_ms + later_ms) for sample in samples)


def wire(samples: Iterable[Sample], schema_id: int) -> list[Wire]:
    """The messages of `samples`, in order; the flawed ones with their flaws.

    Args:
        schema_id: the id of ticket.avsc, for the framing.
    """
    schema = fastavro.parse_schema(json.loads(TICKET_SCHEMA.read_text(encoding="utf-8")))
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    messages = []
    for sample in samples:
        datum = BytesIO()
        fastavro.schemaless_writer(datum, schema, _ticket(sample))
        framed = prefix + datum.getvalue()
        value = framed if sample.flaw is None else FLAWS[sample.flaw](framed)
        messages.append(Wire(sample.ticket_id.encode(), value, _headers(sample), sample.created_at_ms))
    return messages


def _ticket(sample: Sample) -> dict[str, Any]:
    return {
        "ticket_id": sample.ticket_id,
        "created_at": sample.created_at_ms,
        "channel": sample.channel.upper(),
        "customer": {"name": sample.customer, "language": "en"},
        "text": f"{sample.text} " * TOO_OFTEN if sample.flaw == "too_long" else sample.text,
        "attachments": [],
    }


def _headers(sample: Sample) -> tuple[tuple[str, bytes], ...]:
    """A trace (W3C Trace Context), who published it, and a binary value: all of them must come out again."""
    trace = hashlib.sha256(sample.ticket_id.encode())
    return (
        ("traceparent", f"00-{trace.hexdigest()[:32]}-{trace.hexdigest()[32:48]}-01".encode()),
        ("source", f"support-gateway/{sample.channel}".encode()),
        ("tenant", trace.digest()[-4:]),
    )


FLAWS: dict[str, Callable[[bytes], bytes | None]] = {
    "tombstone": lambda _: None,
    "too_short": lambda framed: framed[:3],
    "magic_byte": lambda framed: b"\x07" + framed[1:],
    "unknown_schema_id": lambda framed: b"\0" + UNKNOWN_SCHEMA_ID.to_bytes(4, "big") + framed[5:],
    "truncated": lambda framed: framed[: len(framed) * 2 // 3],
    "too_long": lambda framed: framed,  # its text is: more tokens than any prompt has room for
}
"""What may be wrong with a message, by its name in messages.jsonl: the sound value to the value that is sent."""


def send(bootstrap: str, topic: str, messages: Sequence[Wire]) -> list[str]:
    """Write the messages; returns where each is, as `TOPIC[PARTITION]@OFFSET`, when the broker has all of them.

    Raises:
        kafka.errors.KafkaError: one of them was refused.
    """
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="slotstream-demo-producer", linger_ms=5)
    try:
        futures = [
            producer.send(topic, m.value, key=m.key, headers=list(m.headers), timestamp_ms=m.timestamp_ms)
            for m in messages
        ]
        sent = [future.get(timeout=SEND_S) for future in futures]
    finally:
        producer.close(timeout=SEND_S)
    return [f"{at.topic}[{at.partition}]@{at.offset}" for at in sent]


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python deploy/demo/produce.py", description="Send one ticket of your own.")
    parser.add_argument("text", help="what the customer writes")
    parser.add_argument(
        "--config", type=Path, default=CONFIG, help="configuration of the pipeline (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    place = Place.of(options.config)
    now_ms = time.time_ns() // 1_000_000
    sample = Sample(f"T-{now_ms}", "You", "web", now_ms, options.text)
    print("sent to", *send(place.bootstrap, INPUT, wire([sample], place.ticket_schema_id())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
