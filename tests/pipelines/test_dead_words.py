"""Times and places are read as people write them, and foreign text cannot reach the terminal raw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.pipelines.dead_words import parse_place, parse_time, shown, shown_time

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", NOW - 45),
        ("90m", NOW - 5_400),
        ("2h", NOW - 7_200),
        ("3d", NOW - 259_200),
        ("2026-11-29", 1_795_910_400),
        ("2026-11-29T10:00", 1_795_946_400),
        ("2026-11-29T10:00:00Z", 1_795_946_400),
        ("2026-11-29T11:00+01:00", 1_795_946_400),
    ],
)
def test_a_time_is_a_date_or_a_span_before_now(text: str, seconds: float) -> None:
    assert parse_time(text, NOW) == seconds * 1_000


@pytest.mark.parametrize("text", ["", "yesterday", "2x", "-2h", "2026-13-01", "1 h"])
def test_another_time_is_refused_with_the_forms_that_are_understood(text: str) -> None:
    with pytest.raises(ValueError, match="a time is 2026-11-29"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("tickets[0]@17", ("tickets", 0, 17)),
        ("a.b_c-d[12]@0", ("a.b_c-d", 12, 0)),
        ("[3]@5", ("", 3, 5)),
        ("3@5", ("", 3, 5)),
    ],
)
def test_a_record_is_named_by_topic_partition_and_offset(text: str, place: tuple[str, int, int]) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", "tickets", "tickets@5", "tickets[x]@5", "tickets[0]", "[0]@-1", "0@", "a b[0]@1"])
def test_another_name_is_refused_with_the_forms_that_are_understood(text: str) -> None:
    with pytest.raises(ValueError, match="TOPIC"):
        parse_place(text)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("grüße €", "grüße €"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eabc", "\\u202eabc"),
        ("\x9b", "\\x9b"),
    ],
)
def test_what_could_move_the_cursor_is_shown_as_an_escape(text: str, safe: str) -> None:
    assert shown(text) == safe


@given(st.text())
def test_whatever_is_shown_prints(text: str) -> None:
    assert shown(text).isprintable()


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_795_946_400_999, "2026-11-29T10:00:00Z"),
        (None, "-"),
        (10**17, "1" + "0" * 17 + " ms"),
    ],
)
def test_a_time_is_shown_in_utc(time_ms: int | None, text: str) -> None:
    assert shown_time(time_ms) == text
