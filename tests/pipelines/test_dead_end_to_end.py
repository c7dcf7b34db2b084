"""Dead letters on a real broker, as people work with them: looked at, taken away as a file, put back and decided."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.broker import LocalBroker
from slotstream.operators.kafka.headers import header_value
from slotstream.operators.kafka.letter import LetterFilter
from slotstream.operators.kafka.rows import records_of
from slotstream.operators.kafka.topics import NEVER, create_topics, topic_settings
from slotstream.pipelines.config import load_config
from slotstream.pipelines.dead_export import export_letters
from slotstream.pipelines.dead_list import list_letters
from slotstream.pipelines.dead_redrive import redrive_letters
from slotstream.pipelines.dead_show import show_letter
from slotstream.schemas.errors import BrokerError, ConfigError
from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import Stream, texts, until
from tests.pipelines.test_run_avro import SCHEMA, framed, register

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def apache_kafka(kafka_broker: LocalBroker) -> None:
    """Skips where noida-db stands in: its end offsets lag behind what it has acknowledged, and it lacks limits."""
    if kafka_broker.kind != "apache":
        pytest.skip("noida-db's end offsets lag, so that a topic is not read to its end")


HEADERS = [("trace", b"\x00\xff"), ("trace", b"again")]
CLASH = [
    {"value": json.dumps({"text": f"clash {n}", "urgent": 1}).encode(), "key": b"clash", "headers": HEADERS}
    for n in range(3)
]
# BAD and others have old time stamps, and a broker's cleaner would delete them within the test.
KEPT = {name: {"retention.ms": "-1"} for name in ("in", "decided", "review", "dead")}
BAD = {"value": b'{"text": "secret', "key": b"bad", "timestamp_ms": 1_700_000_000_123}


def redrive(it: Stream, *codes: str, **wishes: Any) -> int:
    settings = {"limit": None, "write": False, "create_topic": False, "again": False, "force": False} | wishes
    return redrive_letters(it.config_file, LetterFilter(frozenset(codes)), **settings)


def set_up(it: Stream, **settings: Any) -> None:
    """Change the configuration, by dotted key with __ for the dot."""
    data = yaml.safe_load(it.config_file.read_text())
    for path, value in settings.items():
        section, key = path.split("__")
        data[section][key] = value
    it.config_file.write_text(yaml.safe_dump(data))
    it.config = load_config(it.config_file)


def test_dead_letters_are_redriven_once_and_decided_under_their_first_ids(
    stream: StreamFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    it = stream(configs=KEPT)
    sent = it.send([*texts(20), *CLASH, BAD])
    it.run_to_the_end()
    assert it.audit().routes == {"decided": 20, "dead": 4}

    # Those whose reason is gone, once.
    set_up(it, output__field_prefix="slot_")
    assert redrive(it, "json_field_clash", write=True, create_topic=True) == 0
    assert "3 written to" in capsys.readouterr().out
    made = topic_settings(it.kafka, [it.config.input.redrive_topic])[it.config.input.redrive_topic]
    assert (made.partitions, made.ms("retention.ms")) == (2, NEVER)
    put_back = list(records_of(it.kafka, it.config.input.redrive_topic))
    assert sorted(record.value for record in put_back) == sorted(each["value"] for each in CLASH)  # type: ignore[type-var]
    assert [list(record.headers)[:2] for record in put_back] == [HEADERS] * 3

    running = it.run()
    until(lambda: it.written() == sent + 3, running)
    # While it runs: again does nothing, and the rest is put back and fails once more.
    assert redrive(it, "json_field_clash", write=True) == 0
    told = capsys.readouterr().out
    assert "0 written to" in told
    assert "3  are redriven already" in told
    assert redrive(it, write=True) == 0
    assert "1 written to" in capsys.readouterr().out
    until(lambda: it.written() == sent + 4, running)
    assert running.stop() == 0, running.told()

    audit = it.audit()
    assert audit.sound
    assert audit.routes == {"decided": 23, "dead": 1}
    assert (audit.read, audit.folded, audit.copies, audit.overtaken) == (sent, sent, 0, 4)
    second = [r for r in it.read("decided") if header_value(tuple(r.headers), "slotstream.attempt") == "2"]
    assert len(second) == 3
    given = {f"{it.names['in']}[{r.partition}]@{r.offset}": r for r in it.read("in")}
    for record in second:
        source = given[header_value(tuple(record.headers), "slotstream.origin") or ""]
        assert (record.key, record.timestamp, record.partition) == (source.key, source.timestamp, source.partition)
        assert list(record.headers)[:2] == HEADERS
        assert all(name.startswith("slotstream.") for name, _ in record.headers[2:])
        assert "slot_urgent" in json.loads(record.value)

    assert list_letters(it.config_file, LetterFilter(), limit=0) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in listed[3:]] == [["json_field_clash", "3", "3"], ["json_invalid", "2", "1"]]

    # The second failure is a letter of its own: it can be put back; the ones before it cannot.
    assert redrive(it) == 0
    told = capsys.readouterr().out
    assert "1 would be written" in told
    assert "3  are redriven already" in told
    assert "1  are copies, or their record has a letter of a later attempt" in told

    # Again makes one more attempt of what was decided: no attempt has two answers.
    assert redrive(it, "json_field_clash", write=True, again=True, limit=1) == 0
    it.run_to_the_end()
    audit = it.audit()
    assert audit.sound
    assert (audit.copies, audit.overtaken, audit.routes) == (0, 5, {"decided": 23, "dead": 1})
    assert [header_value(tuple(r.headers), "slotstream.attempt") for r in it.read("decided")].count("3") == 1


def test_a_dry_run_writes_nothing_and_a_missing_topic_is_told_with_what_to_do(
    stream: StreamFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    it = stream(configs=KEPT)
    it.send([*CLASH, BAD])
    it.run_to_the_end()
    capsys.readouterr()
    assert redrive(it) == 0
    told = capsys.readouterr().out
    assert "4 would be written" in told
    assert "does not exist. Add --create-topic, or create it: kafka-topics.sh --create" in told
    assert "This was a dry run" in told
    with pytest.raises(ConfigError, match="nothing was written"):
        redrive(it, write=True)
    create_topics(it.kafka, {it.config.input.redrive_topic: 1}, configs={"cleanup.policy": "compact"})
    with pytest.raises(ConfigError, match="is compacted"):
        redrive(it, write=True)
    assert list(records_of(it.kafka, it.config.input.redrive_topic)) == []


def test_letters_are_listed_shown_and_exported(
    stream: StreamFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    it = stream(partitions=1, configs=KEPT)
    it.send([*CLASH, BAD, {"value": b"\xff", "key": b"\x00\xfe"}])
    it.run_to_the_end()
    capsys.readouterr()
    origin = it.names["in"]

    assert list_letters(it.config_file, LetterFilter(), limit=2) == 0
    listed = capsys.readouterr().out
    assert f"{it.names['dead']}: 5 letters\n" in listed
    assert "json_field_clash         3" in listed
    assert f"{origin}[0]@3" in listed
    assert "the newest 2:" in listed
    assert "secret" not in listed
    assert "clash 1" not in listed
    assert list_letters(it.config_file, LetterFilter(stage="encode"), limit=2) == 0
    assert "5 letters, 0 of them match" in capsys.readouterr().out

    for place in ((origin, 0, 3), ("", 0, 3), (it.names["dead"], 0, 3)):
        assert show_letter(it.config_file, place) == 0
        text = capsys.readouterr().out
        assert f"record      {origin}[0]@3\n" in text
        assert "json_invalid, at stage decode" in text
        assert "2023-11-14T22:13:20Z" in text
        assert 'key         "bad"' in text
        assert "reading stops at byte 9 of 16" in text
        assert "^^ byte 9" in text
    for place in ((origin, 0, 99), ("", 0, 99), ("", 7, 0)):
        with pytest.raises(ConfigError):
            show_letter(it.config_file, place)

    out = tmp_path / "letters.jsonl"
    assert export_letters(it.config_file, LetterFilter(), out, limit=None) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [base64.b64decode(line["value"]) for line in lines] == [r.value for r in it.read("dead")]
    assert base64.b64decode(lines[4]["key"]) == b"\x00\xfe"
    assert lines[0]["headers"][0] == {"key": "trace", "value": base64.b64encode(b"\x00\xff").decode()}
    assert lines[3]["original_timestamp_ms"] == BAD["timestamp_ms"]
    assert out.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="the file exists"):
        export_letters(it.config_file, LetterFilter(), out, limit=None)


def test_a_key_with_a_newer_record_on_a_compacted_output_stays_dead_unless_forced(
    stream: StreamFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    it = stream(partitions=1, configs=KEPT | {"decided": {"cleanup.policy": "compact"}})
    it.send([*CLASH[:1], {"value": b'{"text": "newer"}', "key": b"clash"}])
    it.send([{"value": b'{"text": "older"}', "key": b"other"}, CLASH[0] | {"key": b"other"}])
    it.run_to_the_end()
    capsys.readouterr()
    assert redrive(it) == 0
    told = capsys.readouterr().out
    assert "1 would be written" in told
    assert "1  have a key with a newer record on a compacted output topic" in told
    assert "is compacted: newer records that wait in the input are not seen" in told
    assert redrive(it, force=True) == 0
    assert "2 would be written" in capsys.readouterr().out


def test_a_letter_that_the_redrive_topic_refuses_is_told_and_its_neighbours_are_written(
    stream: StreamFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    it = stream(partitions=1, configs=KEPT)
    large = {"value": b'{"text": "' + b"x" * 30_000, "key": b"large"}
    old = {"value": b"no json", "key": b"old", "timestamp_ms": 1_000}
    it.send([BAD, large, old, {"value": b"[1]", "key": None}])
    it.run_to_the_end()
    limits = {"max.message.bytes": "20000", "message.timestamp.before.max.ms": "172800000000"}
    limits["retention.ms"] = "172800000000"
    create_topics(it.kafka, {it.config.input.redrive_topic: 1}, configs=limits)
    capsys.readouterr()
    assert redrive(it, write=True) == 1
    told = capsys.readouterr().out
    assert "3 written to" in told
    assert "1 of them have the time of writing" in told
    assert "1 were refused by" in told
    assert "retention.ms=172800000000" in told
    assert redrive(it, write=True) == 1, "only the refused one is tried again"
    assert "0 written to" in capsys.readouterr().out


def test_a_dead_topic_that_is_not_there_and_a_broker_that_is_gone_are_told(stream: StreamFactory) -> None:
    it = stream(configs=KEPT)
    set_up(it, output__dead="no-such-topic")
    with pytest.raises(ConfigError, match=r"topic no-such-topic \(output.dead\) does not exist"):
        list_letters(it.config_file, LetterFilter(), limit=1)
    set_up(it, kafka__bootstrap_servers="localhost:1", kafka__connect_timeout_ms=1_000)
    with pytest.raises(BrokerError, match="localhost:1"):
        list_letters(it.config_file, LetterFilter(), limit=1)


@pytest.mark.registry
def test_an_avro_value_is_shown_up_to_the_byte_that_is_wrong_and_found_by_its_schema_id(
    stream: StreamFactory, schema_registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    it = stream(partitions=1, settings={"input.format": "avro", "registry.urls": [schema_registry]})
    schema_id = register(schema_registry, f"{it.names['in']}-value", SCHEMA)
    whole = framed(schema_id, {"id": 7, "text": "hello", "note": None})
    it.send([{"value": whole[:-2], "key": b"k"}, {"value": whole + b"!", "key": b"k"}, {"value": b"\x07", "key": b"k"}])
    it.run_to_the_end()
    capsys.readouterr()
    for place, lines in {
        ("", 0, 0): ["id = 7", "reading stops at byte 6 of 11: text (string) needs more bytes than are left (5)"],
        ("", 0, 1): ['text = "hello"', "note = null", "reading stops at byte 13 of 14: the datum ends here"],
        ("", 0, 2): ["not Confluent-framed Avro", "reading stops at byte 0 of 1"],
    }.items():
        assert show_letter(it.config_file, place) == 0
        text = capsys.readouterr().out
        for line in lines:
            assert line in text, text
    assert list_letters(it.config_file, LetterFilter(schema_id=schema_id), limit=5) == 0
    assert "3 letters, 2 of them match the filters" in capsys.readouterr().out
