"""`slotstream run` on JSON values: everything that goes in comes out once, where it belongs, as it was."""

import json
from typing import Any

import pytest

from slotstream.operators.kafka.headers import header_value
from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import texts, until

pytestmark = pytest.mark.broker

HEADERS = [("trace", b"\x00\xff"), ("trace", b"again"), ("имя", "значение".encode())]


def by_origin(records: list[Any]) -> dict[tuple[str | None], Any]:
    return {header_value(tuple(record.headers), "slotstream.origin"): record for record in records}  # type: ignore[misc]


def test_each_record_comes_out_once_where_it_belongs_and_as_it_was(stream: StreamFactory) -> None:
    it = stream()
    odd: list[dict[str, Any]] = [
        {"value": None, "key": b"gone"},
        {"value": b"no json", "key": b"bad", "headers": HEADERS, "timestamp_ms": 1_700_000_000_123},
        {"value": b"", "key": b"empty"},
        {"value": b'{"other": 1}', "key": b"nothing to ask about"},
        {"value": b'{"text": ""}', "key": None},
        {"value": b'{ "text" : "1.0 stays 1.0", "x": 1.0, "big": 123456789012345678901234567890 }', "key": b"\xff\x00"},
        {"value": json.dumps({"text": "with everything"}).encode(), "key": b"k", "headers": HEADERS, "timestamp_ms": 7},
    ]
    sent = it.send(texts(300) + odd)
    running = it.run_to_the_end()

    audit = it.audit()
    assert audit.sound
    assert (audit.read, audit.folded, audit.copies) == (sent, sent, 0)
    assert audit.routes == {"decided": 303, "dead": 4}
    assert "303 decided (tombstones forwarded: 1), 0 review, 4 dead in" in running.told()

    given = {f"{it.names['in']}[{r.partition}]@{r.offset}": r for r in it.read("in")}
    decided, dead = it.read("decided"), it.read("dead")
    for record in decided + dead:
        origin = header_value(tuple(record.headers), "slotstream.origin")
        source = given[origin]  # type: ignore[index]
        assert (record.key, record.timestamp, record.partition) == (source.key, source.timestamp, source.partition)
        assert list(record.headers)[: len(source.headers)] == list(source.headers)
        if record in dead or source.value is None:
            assert record.value == source.value
        else:
            assert record.value.startswith(source.value.rstrip()[:-1].rstrip()), "the record's own bytes come first"
            enriched = json.loads(record.value)
            assert isinstance(enriched["urgent"], bool)
            assert enriched["kind"] in ("refund", "card", "other")
            assert enriched["decision_schema"] == "tickets"

    codes = sorted(header_value(tuple(r.headers), "slotstream.error.code") or "" for r in dead)
    assert codes == ["json_invalid", "json_invalid", "state_empty", "state_field_missing"]
    for partition in (0, 1):
        offsets = [
            int((header_value(tuple(r.headers), "slotstream.origin") or "").rpartition("@")[2])
            for r in decided
            if r.partition == partition
        ]
        assert offsets == sorted(offsets), "order per partition"


def test_a_second_run_finds_nothing_to_do(stream: StreamFactory) -> None:
    it = stream()
    it.send(texts(20))
    it.run_to_the_end()
    assert "0 decided, 0 review, 0 dead" in it.run_to_the_end().told()
    assert it.audit().copies == 0


def test_dropped_tombstones_are_counted_apart(stream: StreamFactory) -> None:
    it = stream(settings={"input.tombstones": "drop"})
    it.send([*texts(5), {"value": None, "key": b"a"}, {"value": None, "key": b"b"}])
    running = it.run_to_the_end()
    assert "5 decided, 0 review, 0 dead, 2 tombstones dropped" in running.told()
    assert it.written() == 5


def test_plain_text_values_become_objects(stream: StreamFactory) -> None:
    it = stream(settings={"input.format": "text", "output.field_prefix": "slot_"})
    it.send([{"value": "grüße\n".encode(), "key": b"a"}, {"value": b"\xff", "key": b"b"}])
    it.run_to_the_end()
    (decided,) = it.read("decided")
    assert json.loads(decided.value)["value"] == "grüße\n"
    assert "slot_urgent" in json.loads(decided.value)
    (dead,) = it.read("dead")
    assert dead.value == b"\xff"


def test_the_dead_letter_limit_stops_with_exit_code_4_and_says_why(stream: StreamFactory) -> None:
    it = stream()
    it.send({"value": b"secret words", "key": b"k"} for _ in range(300))
    running = it.run("--until-caught-up")
    assert running.finish() == 4
    told = running.told()
    assert "of the last" in told
    assert "json_invalid" in told
    assert f"such as {it.names['in']}[" in told
    assert "secret words" not in told
    assert "Traceback" not in told
    assert it.audit().sound  # what was counted is written and committed
    assert len(it.read("dead")) >= 100


def test_an_idle_streams_record_is_out_within_a_second(stream: StreamFactory) -> None:
    # The broker stamps what is written when it is written.
    it = stream(partitions=1, configs={"decided": {"message.timestamp.type": "LogAppendTime"}})
    running = it.run()
    for number in range(6):
        it.send(texts(1, first=number))
        until(lambda: it.written() > number, running)  # noqa: B023
    assert running.stop() == 0, running.told()
    took_ms = [out.timestamp - given.timestamp for given, out in zip(it.read("in"), it.read("decided"), strict=True)]
    assert sorted(took_ms[1:])[2] < 1_000, took_ms  # the median; the first one waited for the start
