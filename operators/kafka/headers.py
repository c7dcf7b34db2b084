"""The headers that slotstream writes, and the only place that believes them: a redriven record.

Every output record carries `<prefix>.decision_id`, `<prefix>.origin` (`TOPIC[PARTITION]@OFFSET`) and
`<prefix>.attempt`, so that copies can be folded (operators/audit.py). Dead letters add why, in Kafka Connect's names
(KIP-298, what user interfaces and replay tools read) and ours.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from slotstream.schemas.errors import RecordError
from slotstream.schemas.label import Reason
from slotstream.schemas.record import Headers, Message, Origin

__all__ = [
    "ERROR_PREFIXES",
    "PREFIX",
    "HeaderStyle",
    "Identity",
    "Stamp",
    "dead_headers",
    "decision_headers",
    "header_value",
    "identity_of",
    "redriven",
    "review_headers",
]

PREFIX = "slotstream"
CONNECT = "__connect.errors."
STREAMS = "__streams.errors."
SPRING = "kafka_dlt-"
ERROR_PREFIXES = (CONNECT, STREAMS, SPRING)
MAX_MESSAGE_BYTES = 1024

HeaderStyle = Literal["connect", "streams", "spring", "none"]

_ORIGIN = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)\[(?P<partition>\d{1,10})\]@(?P<offset>\d{1,19})", re.ASCII)
_ATTEMPT = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_DECISION_ID = re.compile(
    r"(?P<topic_id>[A-Za-z0-9._-]+):(?P<partition>\d{1,10}):(?P<offset>\d{1,19}):(?P<hash>[^:]+)", re.ASCII
)


def header_value(headers: Headers, key: str) -> str | None:
    """The text of the last header of that key, None when there is none or it is not UTF-8."""
    for name, value in reversed(headers):
        if name == key and value is not None:
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return None
    return None


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the headers of one run have in common.

    schema_hash: of the decision schema that was asked.  group: the consumer group.  version: of slotstream.
    prefix: first word of our own names.  style: whose names the error headers have beside ours: Kafka Connect's, Kafka
    Streams' (KIP-1034), Spring's, or none.
    """

    schema_hash: str
    group: str
    version: str
    prefix: str = PREFIX
    style: HeaderStyle = "connect"


def decision_headers(message: Message, stamp: Stamp) -> Headers:
    """The message's own headers in their order, then ours; earlier ones of ours are replaced."""
    prefix = stamp.prefix
    return (
        *(header for header in message.headers if not header[0].startswith(f"{prefix}.")),
        (f"{prefix}.decision_id", message.origin.decision_id(stamp.schema_hash).encode()),
        (f"{prefix}.origin", str(message.origin).encode()),
        (f"{prefix}.attempt", b"%d" % message.attempt),
    )


def review_headers(message: Message, stamp: Stamp, reasons: tuple[Reason, ...]) -> Headers:
    """As decision_headers, then one `<prefix>.review.reason` a reason: `intent: probability 0.41 is below 0.6`."""
    key = f"{stamp.prefix}.review.reason"
    return decision_headers(message, stamp) + tuple((key, str(reason).encode()) for reason in reasons)


def dead_headers(
    message: Message, stamp: Stamp, error: RecordError, *, time_ms: int, schema_id: int | None = None
) -> Headers:
    """As decision_headers, then why the record is dead; error headers of an earlier attempt or system are replaced.

    Args:
        error: what is wrong with the record; its text holds no record text.
        time_ms: now, Unix milliseconds.
        schema_id: the value's id in the input registry, if it has one.
    """
    text = str(error).encode()[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore")
    own = {
        "error.code": error.code,
        "error.stage": error.stage,
        "error.message": text,
        "retriable": "true" if error.retriable else "false",
        "time": str(time_ms),
        "original.timestamp": str(message.timestamp_ms),
        "original.timestamp.type": str(message.timestamp_type),
        "group": stamp.group,
        "version": stamp.version,
    }
    if schema_id is not None:
        own["schema.id"] = str(schema_id)
    return (
        *(header for header in decision_headers(message, stamp) if not header[0].startswith(ERROR_PREFIXES)),
        *_styled(stamp.style, message, error, text, stamp.group),
        *((f"{stamp.prefix}.{name}", value.encode()) for name, value in own.items()),
    )


def _styled(style: HeaderStyle, message: Message, error: RecordError, text: str, group: str) -> Headers:
    origin = message.origin
    kind = f"{type(error).__module__}.{type(error).__name__}"
    if style == "none":
        return ()
    if style == "spring":
        return (
            (f"{SPRING}original-topic", origin.topic.encode()),
            (f"{SPRING}original-partition", origin.partition.to_bytes(4, "big")),
            (f"{SPRING}original-offset", origin.offset.to_bytes(8, "big")),
            (f"{SPRING}original-timestamp", message.timestamp_ms.to_bytes(8, "big", signed=True)),
            (f"{SPRING}original-consumer-group", group.encode()),
            (f"{SPRING}exception-fqcn", kind.encode()),
            (f"{SPRING}exception-message", text.encode()),
        )
    if style == "streams":
        names = {"exception": kind, "message": text}
        names |= {"topic": origin.topic, "partition": str(origin.partition), "offset": str(origin.offset)}
        return tuple((f"{STREAMS}{name}", value.encode()) for name, value in names.items())
    names = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(origin.offset),
        "connector.name": PREFIX,
        "task.id": "0",
        "stage": error.stage,
        "class.name": type(error).__module__,
        "exception.class.name": kind,
        "exception.message": text,
    }
    return tuple((f"{CONNECT}{name}", value.encode()) for name, value in names.items())


@dataclass(frozen=True, slots=True)
class Identity:
    """What our headers say a record is."""

    origin: Origin
    schema_hash: str
    attempt: int


def identity_of(headers: Headers, *, prefix: str = PREFIX) -> Identity | None:
    """Reads what decision_headers wrote; None when a part is missing or is not of its form."""
    place = _ORIGIN.fullmatch(header_value(headers, f"{prefix}.origin") or "")
    known = _DECISION_ID.fullmatch(header_value(headers, f"{prefix}.decision_id") or "")
    attempt = _ATTEMPT.fullmatch(header_value(headers, f"{prefix}.attempt") or "")
    if place is None or known is None or attempt is None:
        return None
    origin = Origin(place["topic"], known["topic_id"], int(known["partition"]), int(known["offset"]))
    return Identity(origin, known["hash"], int(attempt[0]))


def redriven(message: Message, *, prefix: str = PREFIX) -> Message:
    """A message of the redrive topic as the record that it is: its first origin, and one attempt more.

    Headers that do not say so leave it a record of its own. Error headers of the earlier attempt are taken off.
    Only records of `<input>.redrive` may come here: anybody who writes to the input could forge these headers.
    """
    identity = identity_of(message.headers, prefix=prefix)
    ours = (f"{prefix}.", *ERROR_PREFIXES)
    headers = tuple(header for header in message.headers if not header[0].startswith(ours))
    if identity is None:
        return replace(message, headers=headers)
    return replace(message, origin=identity.origin, headers=headers, attempt=identity.attempt + 1)
