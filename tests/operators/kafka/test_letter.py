"""A dead letter says what its headers say, believes nothing of another form, and passes the filters that mean it."""

import pytest

from slotstream.operators.kafka.headers import dead_headers
from slotstream.operators.kafka.letter import LetterFilter, letter_of
from slotstream.schemas.errors import DecodeError, RecordTooLarge
from slotstream.schemas.record import Headers, Message, Origin
from tests.operators.kafka.letters import STAMP, Lying, letter


def lying(headers: Headers, value: bytes | None = b"v") -> Lying:
    return Lying("dead", 3, 7, 5, b"k", value, headers)


def test_a_letter_of_ours_says_all_that_was_written() -> None:
    it = letter(9, attempt=2, error=RecordTooLarge("large"), time_ms=77, schema_id=4, timestamp_ms=123)
    assert it.identity is not None
    assert (str(it.identity.origin), it.identity.attempt) == ("tickets[0]@9", 2)
    assert (it.code, it.stage, it.time_ms, it.schema_id, it.original_ms) == ("record_too_large", "write", 77, 4, 123)
    assert (it.retriable, it.whole, it.place) == (False, True, "dead[0]@0")


def test_a_record_of_somebody_else_says_nothing_and_still_has_a_place() -> None:
    it = letter_of(lying((("other", b"\xff"),)))
    assert (it.identity, it.code, it.stage, it.time_ms, it.schema_id) == (None, None, None, None, None)
    assert (it.place, it.size) == ("dead[3]@7", 1 + 1 + 5 + 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("error.code", b"Not A Code\x1b[2J"),
        ("error.code", b"\xff"),
        ("error.code", b"x" * 65),
        ("time", b"-1"),
        ("time", b"9" * 19),
        ("time", "١".encode()),
        ("schema.id", b""),
    ],
)
def test_a_header_of_another_form_counts_as_not_there(name: str, value: bytes) -> None:
    it = letter_of(lying(((f"slotstream.{name}", value),)))
    assert (it.code, it.time_ms, it.schema_id) == (None, None, None)


def test_another_prefix_is_read_when_it_is_configured() -> None:
    message = Message(Origin("in", "u", 0, 1), 5, 0, b"k", b"v")
    stamp = type(STAMP)("cafe", "g", "1", prefix="acme")
    headers = dead_headers(message, stamp, DecodeError("x"), time_ms=1)
    assert letter_of(lying(headers)).identity is None
    assert letter_of(lying(headers), prefix="acme").identity is not None


@pytest.mark.parametrize(
    ("value", "framed", "schema_id"),
    [
        (b"\0\0\0\1\2rest", True, 258),
        (b"\0\0\0\1\2rest", False, None),
        (b"\0\0\0\1", True, None),
        (b"{\0\0\0\1", True, None),
        (None, True, None),
    ],
)
def test_a_schema_id_is_read_off_the_value_where_values_are_framed(
    value: bytes | None, framed: bool, schema_id: int | None
) -> None:
    assert letter_of(lying((), value), framed=framed).schema_id == schema_id


def test_a_letter_without_its_value_is_not_whole() -> None:
    assert not letter(cut=True).whole


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        (LetterFilter(), True),
        (LetterFilter(frozenset({"json_invalid"})), True),
        (LetterFilter(frozenset({"other", "json_invalid"})), True),
        (LetterFilter(frozenset({"other"})), False),
        (LetterFilter(stage="decode"), True),
        (LetterFilter(stage="write"), False),
        (LetterFilter(since_ms=1_000), True),
        (LetterFilter(since_ms=1_001), False),
        (LetterFilter(until_ms=1_001), True),
        (LetterFilter(until_ms=1_000), False),
        (LetterFilter(schema_id=4), True),
        (LetterFilter(schema_id=5), False),
        (LetterFilter(frozenset({"json_invalid"}), "write"), False),
    ],
)
def test_a_filter_lets_through_what_meets_all_of_it(wanted: LetterFilter, passes: bool) -> None:
    assert wanted.lets_through(letter(time_ms=1_000, schema_id=4)) == passes


@pytest.mark.parametrize(
    "wanted",
    [LetterFilter(since_ms=0), LetterFilter(until_ms=1 << 60), LetterFilter(schema_id=0), LetterFilter(stage="decode")],
)
def test_a_letter_that_does_not_say_is_not_meant(wanted: LetterFilter) -> None:
    assert not wanted.lets_through(letter_of(lying(())))
