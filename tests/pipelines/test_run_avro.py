"""`slotstream run` on Confluent-framed Avro with a real registry: bytes in are bytes out, the decision behind them."""

import io
import json
from typing import Any

import fastavro
import httpx
import pytest

from slotstream.operators.kafka.headers import header_value
from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import QUESTIONS, texts

pytestmark = [pytest.mark.broker, pytest.mark.registry]

SCHEMA = {
    "type": "record",
    "name": "Ticket",
    "namespace": "bank",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def register(url: str, subject: str, schema: dict[str, Any]) -> int:
    answer = httpx.post(f"{url}/subjects/{subject}/versions", json={"schema": json.dumps(schema)})
    answer.raise_for_status()
    return int(answer.json()["id"])


def framed(schema_id: int, record: dict[str, Any]) -> bytes:
    out = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), record)
    return out.getvalue()


def opened(url: str, value: bytes) -> dict[str, Any]:
    schema_id = int.from_bytes(value[1:5], "big")
    schema = json.loads(httpx.get(f"{url}/schemas/ids/{schema_id}").json()["schema"])
    record = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None)
    assert isinstance(record, dict)
    return record


def test_records_keep_their_bytes_and_gain_the_decision(stream: StreamFactory, schema_registry: str) -> None:
    it = stream(settings={"input.format": "avro", "registry.urls": [schema_registry], "output.probabilities": True})
    schema_id = register(schema_registry, f"{it.names['in']}-value", SCHEMA)
    sound = [framed(schema_id, {"id": n, "text": f"text {n}", "note": None}) for n in range(100)]
    bad = [b"\x07bad", b"", b"\0\0", framed(999_999, {"id": 1, "text": "x", "note": None}), sound[0] + b"trailing"]
    sent = it.send([{"value": value, "key": b"k"} for value in [*sound, *bad]] + [{"value": None, "key": b"k"}])
    it.run_to_the_end()

    audit = it.audit()
    assert audit.sound
    assert audit.routes == {"decided": 101, "dead": 5}
    assert audit.folded == sent
    enriched = [record for record in it.read("decided") if record.value is not None]
    assert len(enriched) == len(sound)
    for record in enriched:
        fields = opened(schema_registry, record.value)
        given = framed(schema_id, {name: fields[name] for name in ("id", "text", "note")})
        assert record.value[5:].startswith(given[5:]), "the input's datum comes first, untouched"
        assert fields["kind"] in ("refund", "card", "other")
        assert sum(option["probability"] for option in fields["kind_probabilities"]) == pytest.approx(1, abs=1e-5)
        assert fields["decision_id"] == header_value(tuple(record.headers), "slotstream.decision_id")
    assert sorted(record.value or b"" for record in it.read("dead")) == sorted(bad)
    codes = sorted(header_value(tuple(record.headers), "slotstream.error.code") or "" for record in it.read("dead"))
    assert codes[:3] == ["avro_trailing_bytes", "framing_empty", "framing_unknown"]


def test_what_is_not_certain_enough_goes_to_review_in_the_same_form(
    stream: StreamFactory, schema_registry: str
) -> None:
    questions = json.loads(json.dumps(QUESTIONS))
    questions["questions"]["kind"]["thresholds"] = {"probability": 0.95}
    it = stream(questions=questions, settings={"input.format": "avro", "registry.urls": [schema_registry]})
    schema_id = register(schema_registry, f"{it.names['in']}-value", SCHEMA)
    it.send({"value": framed(schema_id, {"id": n, "text": f"text {n}", "note": "n"}), "key": b"k"} for n in range(20))
    it.run_to_the_end()
    review = it.read("review")
    assert len(review) == 20
    for record in review:
        fields = opened(schema_registry, record.value)
        assert fields["decision_route"] == "review"
        assert fields["decision_reasons"].startswith("kind: probability 0.9")
        assert header_value(tuple(record.headers), "slotstream.review.reason") == fields["decision_reasons"]


def test_a_refused_output_schema_stops_with_exit_code_3_and_nothing_is_dead_lettered(
    stream: StreamFactory, schema_registry: str
) -> None:
    it = stream(settings={"input.format": "avro", "registry.urls": [schema_registry]})
    schema_id = register(schema_registry, f"{it.names['in']}-value", SCHEMA)
    subject = f"{it.names['decided']}-value"
    register(schema_registry, subject, {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "bytes"}]})
    httpx.put(f"{schema_registry}/config/{subject}", json={"compatibility": "FULL"}).raise_for_status()
    it.send({"value": framed(schema_id, {"id": 1, "text": "t", "note": None}), "key": b"k"} for _ in range(3))
    running = it.run("--until-caught-up")
    assert running.finish() == 3, running.told()
    assert subject in running.told()
    assert "Traceback" not in running.told()
    assert it.written() == 0


def test_json_on_an_avro_topic_is_dead_with_a_hint(stream: StreamFactory, schema_registry: str) -> None:
    it = stream(settings={"input.format": "avro", "registry.urls": [schema_registry]})
    it.send(texts(3))
    it.run_to_the_end()
    messages = {header_value(tuple(record.headers), "slotstream.error.message") for record in it.read("dead")}
    assert any("JSON?" in (message or "") for message in messages)
