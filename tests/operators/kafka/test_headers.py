"""Headers: the user's own are kept, ours are replaced, and only a redriven record's are believed."""

import pytest

from slotstream.operators.kafka.headers import (
    Stamp,
    dead_headers,
    decision_headers,
    header_value,
    identity_of,
    redriven,
    review_headers,
)
from slotstream.schemas.errors import DecodeError, ReadTimeout
from slotstream.schemas.label import Reason
from slotstream.schemas.record import Headers, Message, Origin

ORIGIN = Origin("tickets", "6911f36c-1a9e-4197-9be0-7727156a97c6", 3, 1234)
STAMP = Stamp(schema_hash="cafe", group="labels", version="0.1.0")
OWN: Headers = (("trace", b"1"), ("bin", b"\xff\x00"), ("trace", b"2"), ("empty", b""), ("null", None), ("ключ", b"x"))


def message(headers: Headers = OWN, attempt: int = 1) -> Message:
    return Message(ORIGIN, 1_700_000_000_000, 0, b"key", b"value", headers, attempt)


def test_own_headers_stay_in_their_order_with_duplicates_and_nulls() -> None:
    assert decision_headers(message(), STAMP)[: len(OWN)] == OWN


def test_a_decision_says_which_record_it_is_of() -> None:
    identity = identity_of(decision_headers(message(attempt=2), STAMP))
    assert identity is not None
    assert (identity.origin, identity.schema_hash, identity.attempt) == (ORIGIN, "cafe", 2)


def test_headers_of_an_earlier_slotstream_are_replaced() -> None:
    once = decision_headers(message(), STAMP)
    twice = decision_headers(message(once), Stamp("beef", "other", "0.1.0"))
    assert [name for name, _ in twice] == [name for name, _ in once]
    assert header_value(twice, "slotstream.decision_id") == ORIGIN.decision_id("beef")


def test_another_prefix_keeps_the_headers_of_an_upstream_slotstream() -> None:
    once = decision_headers(message(), STAMP)
    twice = decision_headers(message(once), Stamp("beef", "g", "0.1.0", prefix="second"))
    assert twice[: len(once)] == once


def test_review_headers_name_each_reason() -> None:
    reasons = (Reason("intent", "probability", 0.41, 0.6), Reason("urgent", "margin", 0.1, 0.2))
    headers = review_headers(message(), STAMP, reasons)
    assert [value for name, value in headers if name == "slotstream.review.reason"] == [
        b"intent: probability 0.41 is below 0.6",
        b"urgent: margin 0.1 is below 0.2",
    ]


def test_a_dead_letter_speaks_kafka_connects_language_and_ours() -> None:
    headers = dead_headers(message(), STAMP, DecodeError("no magic byte"), time_ms=1_800_000_000_000, schema_id=7)
    told = {name: value for name, value in headers if name.startswith(("__connect.errors.", "slotstream."))}
    assert told == {
        "slotstream.decision_id": ORIGIN.decision_id("cafe").encode(),
        "slotstream.origin": b"tickets[3]@1234",
        "slotstream.attempt": b"1",
        "__connect.errors.topic": b"tickets",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"1234",
        "__connect.errors.connector.name": b"slotstream",
        "__connect.errors.task.id": b"0",
        "__connect.errors.stage": b"decode",
        "__connect.errors.class.name": b"slotstream.schemas.errors",
        "__connect.errors.exception.class.name": b"slotstream.schemas.errors.DecodeError",
        "__connect.errors.exception.message": b"no magic byte",
        "slotstream.error.code": b"decode_error",
        "slotstream.error.stage": b"decode",
        "slotstream.error.message": b"no magic byte",
        "slotstream.retriable": b"false",
        "slotstream.time": b"1800000000000",
        "slotstream.original.timestamp": b"1700000000000",
        "slotstream.original.timestamp.type": b"0",
        "slotstream.group": b"labels",
        "slotstream.version": b"0.1.0",
        "slotstream.schema.id": b"7",
    }
    assert headers[: len(OWN)] == OWN


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("streams", {"__streams.errors.topic": b"tickets", "__streams.errors.offset": b"1234"}),
        (
            "spring",
            {"kafka_dlt-original-partition": b"\0\0\0\3", "kafka_dlt-original-offset": (1234).to_bytes(8, "big")},
        ),
        ("none", {}),
    ],
)
def test_other_styles_have_their_own_names(style: str, expected: dict[str, bytes]) -> None:
    stamp = Stamp("cafe", "labels", "0.1.0", style=style)  # type: ignore[arg-type]
    headers = dict(dead_headers(message(()), stamp, ReadTimeout("late"), time_ms=0))
    assert expected.items() <= headers.items()
    assert not any(name.startswith("__connect.") for name in headers)
    assert headers["slotstream.error.code"] == b"read_timeout"
    assert headers["slotstream.retriable"] == b"true"


def test_error_messages_are_cut_at_a_kilobyte_between_characters() -> None:
    headers = dict(dead_headers(message(), STAMP, DecodeError("é" * 2000), time_ms=0))
    text = headers["slotstream.error.message"]
    assert text is not None
    assert len(text) == 1024
    assert text.decode("utf-8") == "é" * 512


def test_a_redriven_letter_is_its_first_record_again_one_attempt_later() -> None:
    letter = dead_headers(message(), STAMP, DecodeError("x"), time_ms=0)
    put_back = Message(Origin("tickets.redrive", "other", 0, 5), 1_700_000_000_000, 0, b"key", b"value", letter)
    assert redriven(put_back) == message(attempt=2)
    assert (
        redriven(
            Message(
                put_back.origin, 0, 0, None, b"", dead_headers(message(attempt=2), STAMP, DecodeError("x"), time_ms=0)
            )
        ).attempt
        == 3
    )


@pytest.mark.parametrize(
    "forged",
    [
        (),
        (("slotstream.origin", b"tickets[3]@1234"),),
        (
            ("slotstream.origin", b"tickets[3]@1234"),
            ("slotstream.decision_id", b"a:b:c:d"),
            ("slotstream.attempt", b"1"),
        ),
        (("slotstream.origin", b"t[3]@9"), ("slotstream.decision_id", b"u:3:9:h"), ("slotstream.attempt", b"-1")),
        (("slotstream.origin", b"t[3]@9"), ("slotstream.decision_id", b"u:3:9:h"), ("slotstream.attempt", b"\xff")),
        (("slotstream.origin", None), ("slotstream.decision_id", b"u:3:9:h"), ("slotstream.attempt", b"1")),
        (
            ("slotstream.origin", "t[³]@9".encode()),
            ("slotstream.decision_id", b"u:3:9:h"),
            ("slotstream.attempt", b"1"),
        ),
    ],
)
def test_headers_that_say_nothing_sound_leave_a_redriven_record_its_own(forged: Headers) -> None:
    put_back = Message(Origin("tickets.redrive", "other", 0, 5), 0, 0, None, b"v", (*forged, ("own", b"1")))
    again = redriven(put_back)
    assert (again.origin, again.attempt, again.headers) == (put_back.origin, 1, (("own", b"1"),))
