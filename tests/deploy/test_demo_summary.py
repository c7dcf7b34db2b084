"""The demo's summary says what happened, and the counts are checked and not believed."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from deploy.demo.produce import Sample
from deploy.demo.read_back import Row, json_line
from deploy.demo.summary import WIDTH, Run, summarise
from deploy.demo.tally import Outcomes, Score
from slotstream.schemas.decision import parse_decision_schema

QUESTIONS = parse_decision_schema(
    {
        "questions": {
            "intent": {"type": "choice", "criteria": ["card_lost", "fees", "other_thing"]},
            "urgent": {"type": "noul", "instructions": "Now?"},
            "severity": {"type": "score", "criteria": ["low", "high"]},
        }
    },
    name="tickets",
).questions
INTENT, URGENT, SEVERITY = QUESTIONS
RUN = Run({"Kafka and registry": 10.0, "engine start": 45.5, "reads": 4.0}, reads_s=4.0)
MADE = {
    "decision_schema": "tickets",
    "decision_schema_version": "1",
    "decision_schema_hash": "0123456789abcdef",
    "decision_model": "small",
    "decision_engine": "vllm 0.32.0",
    "decision_prompt_hash": "fedcba9876543210",
    "decided_at": datetime(2026, 11, 29, 12, 30, tzinfo=UTC),
}


def sample(number: int, intent: str | None = "fees", **more: Any) -> Sample:
    expected = intent and {"intent": intent, "urgent": False, "severity": 0}
    return Sample(f"T-{number}", "Ana", "app", number, f"text {number}", expected or None, **more)


def row(topic: str, number: int, fields: dict[str, Any] | None, value: bytes | None, **headers: str) -> Row:
    headers = {"traceparent": f"00-{number}", "slotstream.origin": f"tickets[0]@{number}"} | headers
    return Row(topic, 0, number, 1_793_000_000_000, f"T-{number}", tuple(headers.items()), fields, value)


def answers(intent: str = "fees", urgent: bool = False, level: str = "low") -> dict[str, Any]:
    numbers = {
        f"{q}_{metric}": 0.75 for q in ("intent", "urgent", "severity") for metric in ("probability", "margin", "mass")
    }
    return (
        {"text": "...", "intent": intent, "urgent": urgent, "severity": 0.25, "severity_level": level} | numbers | MADE
    )


def decided(number: int, **more: Any) -> Row:
    return row("decided", number, answers(**more), b"\0bytes")


def review(number: int, reason: str = "intent: margin 0.1 is below 0.2", **more: Any) -> Row:
    return row("review", number, answers(**more), b"\0bytes", **{"slotstream.review.reason": reason})


def dead(number: int, code: str = "avro_truncated") -> Row:
    told = {"slotstream.error.code": code, "slotstream.error.stage": "decode", "slotstream.error.message": "ends early"}
    return row("dead", number, None, b"\0\0\0\0\1half", **told)


def outcomes(sent: Sequence[Sample], *rows: Row) -> Outcomes:
    return Outcomes(
        {f"tickets[0]@{number}": each for number, each in enumerate(sent)},
        {route: [each for each in rows if each.topic == route] for route in ("decided", "review", "dead")},
        QUESTIONS,
    )


@pytest.fixture
def whole() -> Outcomes:
    """Four decided (one wrong, one a tombstone), three for review (one right, one out of scope), one dead."""
    sent = [sample(0), sample(1), sample(2), sample(3, flaw="tombstone"), sample(4), sample(5), sample(6, None)]
    sent += [sample(7, None, flaw="truncated")]
    return outcomes(
        sent,
        decided(0),
        decided(1, level="high"),
        decided(2, intent="card_lost"),
        row("decided", 3, None, None),
        review(4),
        review(5, "intent: margin 0.15 is below 0.2", intent="other_thing"),
        review(6, "urgent: probability 0.55 is below 0.6", intent="card_lost"),
        dead(7),
    )


def test_counts_that_add_up_are_no_problem(whole: Outcomes) -> None:
    assert whole.problems() == []
    assert whole.remarks() == []
    assert "8 in = 4 decided + 3 review + 1 dead" in summarise(whole, RUN)


def test_a_lost_message_is_a_problem() -> None:
    lost = outcomes([sample(0), sample(1)], decided(0))
    assert lost.problems() == ["1 of 2 messages are on no output topic: tickets[0]@1"]
    assert "2 in is NOT 1 decided + 0 review + 0 dead" in summarise(lost, RUN)


def test_a_message_on_two_topics_is_a_problem() -> None:
    assert outcomes([sample(0)], decided(0), review(0)).problems() == [
        "1 messages are on more than one topic: tickets[0]@0 (decided and review)"
    ]


def test_a_record_that_nobody_sent_is_a_problem() -> None:
    assert outcomes([sample(0)], decided(0), decided(9)).problems() == [
        "1 output records have an origin that was never sent: tickets[0]@9"
    ]


def test_a_copy_of_one_decision_counts_once_and_is_told() -> None:
    copied = outcomes([sample(0)], decided(0), decided(0))
    assert copied.problems() == []
    assert "1 in = 1 decided + 0 review + 0 dead" in summarise(copied, RUN)
    assert "1 records were written again after a failure" in summarise(copied, RUN)


def test_a_sound_message_that_is_dead_and_a_flawed_one_that_is_not_are_told() -> None:
    told = outcomes([sample(0), sample(1, flaw="too_long")], dead(0, "mass_too_low"), decided(1)).remarks()
    assert told == [
        "1 flawed messages could be decided all the same: T-1",
        "1 sound messages are dead: T-0 (mass_too_low)",
    ]


def test_accuracy_is_told_for_all_and_for_decided_alone(whole: Outcomes) -> None:
    assert whole.accuracy(INTENT, "decided", "review") == Score(3, 5)
    assert whole.accuracy(INTENT, "decided") == Score(2, 3)
    assert whole.accuracy(INTENT, "review") == Score(1, 2)
    assert whole.accuracy(SEVERITY, "decided") == Score(2, 3)
    assert whole.accuracy(URGENT, "decided", "review") == Score(5, 5)
    text = summarise(whole, RUN)
    assert re.search(r"intent +60\.0% of 5 +66\.7% of 3 +50\.0% of 2", text)
    assert "1 of the 2 wrong answers to intent are in review" in text


def test_messages_out_of_scope_are_no_part_of_accuracy_and_are_told_apart(whole: Outcomes) -> None:
    assert whole.out_of_scope_in_review() == Score(1, 1)
    assert "Out of scope (no option fits): 1 of 1 went to review." in summarise(whole, RUN)


def test_hard_messages_are_told_apart() -> None:
    text = summarise(outcomes([sample(0, hard=True), sample(1)], decided(0, intent="card_lost"), decided(1)), RUN)
    assert "Hard messages: 0 of 1 intent answers right, 1 wrong and yet decided." in text


def test_reasons_are_grouped_without_their_own_numbers(whole: Outcomes) -> None:
    assert whole.review_reasons() == {"intent: margin below 0.2": 2, "urgent: probability below 0.6": 1}


def test_one_record_of_each_topic_is_shown(whole: Outcomes) -> None:
    text = summarise(whole, RUN)
    shown = text[text.index("Three records") :]
    assert "decided  T-0  from tickets[0]@0" in shown
    assert "because   intent: margin 0.1 is below 0.2" in shown
    assert "avro_truncated, at stage decode" in shown
    assert "9 bytes, as they came: 00 00 00 00 01 68 61 6c 66" in shown
    assert "traceparent=00-0 (as they came)" in shown


def test_reads_a_second_count_messages_that_were_asked(whole: Outcomes) -> None:
    assert "1.5 reads/s: 6 messages" in summarise(whole, RUN)
    assert "59.5 s  together" in summarise(whole, RUN)


def test_many_answers_are_cut_to_the_most_frequent() -> None:
    numbers = range(12)
    rows = [decided(number, intent=f"option_{number}") for number in numbers]
    text = summarise(outcomes([sample(number) for number in numbers], *rows), RUN)
    assert re.search(r"4 others +4\n", text)


@pytest.mark.parametrize("empty", ["review", "dead", "decided"])
def test_an_empty_topic_is_no_fault(whole: Outcomes, empty: str) -> None:
    rows = [each for route, rows in whole.rows.items() for each in rows if route != empty]
    text = summarise(outcomes(list(whole.sent.values()), *rows), RUN)
    assert re.search(rf"{empty} +0 +0%", text)


def test_nothing_that_came_out_is_no_fault_of_the_summary() -> None:
    assert "1 in is NOT 0 decided" in summarise(outcomes([sample(0)]), RUN)


def test_the_text_is_narrow_and_has_no_colour_unless_asked_for(whole: Outcomes) -> None:
    plain = summarise(whole, RUN)
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= WIDTH
    assert re.sub(r"\x1b\[\d+m", "", summarise(whole, RUN, colour=True)) == plain


def test_long_texts_stay_narrow() -> None:
    long = Sample("T-0", "Ana", "app", 0, "word " * 500, None)
    told = outcomes(
        [long, sample(1)], review(0, "; ".join(["intent: margin 0.1 is below 0.2"] * 40)), dead(1, "x" * 30)
    )
    assert max(map(len, summarise(told, RUN).splitlines())) <= WIDTH


def test_a_record_is_written_as_one_line_of_json() -> None:
    line = json_line(dead(7))
    assert "\n" not in line
    assert '"value_base64": "AAAAAAFoYWxm"' in line
    assert '"slotstream.error.code": ["avro_truncated"]' in line
    assert '"decided_at": "2026-11-29T12:30:00+00:00"' in json_line(decided(0))
