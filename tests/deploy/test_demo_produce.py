"""What the demo sends: sound tickets decode to what was written, each flaw is refused for its own reason."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.place import TICKET_SCHEMA
from deploy.demo.produce import FLAWS, Sample, load_samples, recent, wire, with_tombstones
from slotstream.operators.codec import Codec, ValueConfig, build_codec
from slotstream.operators.registry_file import FileRegistry, SchemaFileConfig
from slotstream.schemas.decision import DecisionSchema, load_decision_schema
from slotstream.schemas.errors import DecodeError
from slotstream.schemas.record import Message, Origin

DEMO = TICKET_SCHEMA.parent
SAMPLE = Sample("T-1", "Ana Young", "app", 1_793_000_000_000, "My card was swallowed, äh, eaten!")
RECORD = {
    "ticket_id": "T-1",
    "customer": "Ana Young",
    "channel": "app",
    "created_at": "2026-11-02T07:04:08Z",
    "text": "Help",
}


@pytest.fixture(scope="module")
def questions() -> DecisionSchema:
    return load_decision_schema(DEMO / "tickets.yaml")


@pytest.fixture(scope="module")
def codec(questions: DecisionSchema) -> Codec:
    registry = FileRegistry(SchemaFileConfig(input_file=TICKET_SCHEMA, output_file=None, input_id=7, output_id=8))
    return build_codec(ValueConfig(), questions, topics={"decided": "decided", "review": "review"}, source=registry)


def message(value: bytes | None) -> Message:
    return Message(Origin("tickets", "uuid", 0, 0), 0, 0, b"key", value)


def test_a_sound_ticket_decodes_to_its_text(codec: Codec) -> None:
    (sent,) = wire([SAMPLE], schema_id=7)
    assert codec.decode(message(sent.value)).fields == {"text": SAMPLE.text}


def test_key_timestamp_and_trace_are_the_tickets_own() -> None:
    first, second = wire([SAMPLE, Sample("T-2", "B", "web", 5, "text")], schema_id=7)
    assert (first.key, first.timestamp_ms) == (b"T-1", SAMPLE.created_at_ms)
    assert (second.key, second.timestamp_ms) == (b"T-2", 5)
    traces = [dict(sent.headers)["traceparent"].decode() for sent in (first, second)]
    assert traces[0] != traces[1]
    for trace in traces:
        version, trace_id, span_id, flags = trace.split("-")
        assert (version, len(trace_id), len(span_id), flags) == ("00", 32, 16, "01")


CODES = {
    "too_short": "framing_unknown",
    "magic_byte": "framing_unknown",
    "unknown_schema_id": "schema_not_found",
    "truncated": "avro_truncated",
}


@pytest.mark.parametrize(("flaw", "code"), CODES.items())
def test_a_broken_message_is_refused_for_its_flaw(codec: Codec, flaw: str, code: str) -> None:
    (sent,) = wire([Sample("T-1", "A", "app", 0, "some text", flaw=flaw)], schema_id=7)
    with pytest.raises(DecodeError) as caught:
        codec.decode(message(sent.value))
    assert caught.value.code == code


def test_a_text_that_is_too_long_has_more_words_than_any_prompt_has_tokens(codec: Codec) -> None:
    (sent,) = wire([Sample("T-1", "A", "app", 0, "I tell the whole story", flaw="too_long")], schema_id=7)
    text = codec.decode(message(sent.value)).fields["text"]
    assert len(text.split()) >= 4_000
    assert sent.value is not None
    assert len(sent.value) < 1_000_000  # Kafka takes it


def test_every_flaw_is_tried() -> None:
    assert set(FLAWS) == {*CODES, "too_long", "tombstone"}


def test_customers_take_their_first_tickets_back_at_the_end() -> None:
    samples = [Sample(f"T-{n}", "A", "app", n, "text") for n in range(5)]
    sent = wire(with_tombstones(samples, 2), schema_id=7)
    assert [(each.key, each.value is None) for each in sent[-3:]] == [(b"T-4", False), (b"T-0", True), (b"T-1", True)]
    assert [each.timestamp_ms for each in sent] == sorted(each.timestamp_ms for each in sent)


def test_the_newest_message_is_written_now() -> None:
    samples = recent([Sample("T-1", "A", "app", 1_000, "t"), Sample("T-2", "A", "app", 4_000, "t")], now_ms=100_000)
    assert [sample.created_at_ms for sample in samples] == [97_000, 100_000]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "AttributeError"),
        ('{"expected": null}', "KeyError: 'record'"),
        (json.dumps({"record": RECORD}), "KeyError: 'expected'"),
        (json.dumps({"record": RECORD, "expected": None, "break": "gently"}), "got 'gently'"),
        (json.dumps({"record": RECORD, "expected": None, "brake": "truncated"}), "unknown keys ['brake']"),
        (json.dumps({"record": RECORD | {"created_at": "2026-11-02T07:04:08"}, "expected": None}), "time zone"),
        (json.dumps({"record": RECORD | {"created_at": "yesterday"}, "expected": None}), "yesterday"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text(json.dumps({"record": RECORD, "expected": None}) + "\n" + line + "\n")
    with pytest.raises(ValueError, match="line 2") as caught:
        load_samples(path)
    assert told in str(caught.value)


def test_a_file_without_messages_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match="holds no message"):
        load_samples(tmp_path / "empty.jsonl")


class TestTheShippedMessages:
    samples = load_samples(DEMO / "messages.jsonl")

    def test_are_many_and_some_are_broken_hard_or_out_of_scope(self) -> None:
        flaws = Counter(sample.flaw for sample in self.samples)
        assert len(self.samples) >= 200
        assert flaws.total() - flaws[None] >= 5
        assert any(sample.hard for sample in self.samples)
        assert any(sample.expected is None and sample.flaw is None for sample in self.samples)

    def test_have_a_key_each(self) -> None:
        assert len({sample.ticket_id for sample in self.samples}) == len(self.samples)

    def test_are_answered_with_options_of_the_decision_schema(self, questions: DecisionSchema) -> None:
        for sample in self.samples:
            for question in questions.questions if sample.expected else ():
                answer: Any = sample.expected[question.id] if sample.expected else None
                right = {"noul": (True, False), "choice": question.options, "score": range(len(question.options))}
                assert answer in right[question.type], sample.ticket_id

    def test_fit_the_tickets_schema(self) -> None:
        assert len(wire(self.samples, schema_id=1)) == len(self.samples)
