"""The dead-letter limit counts the last outcomes and says what went wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.dead_letter_limit import DeadLetterLimit, DeadLetterLimitConfig
from slotstream.operators.outcome import Dead, Forwarded
from slotstream.schemas.errors import DeadLetterLimitReached, DecodeError, StateTooLong
from slotstream.schemas.record import Message, Origin


def message(offset: int) -> Message:
    return Message(Origin("in", "uuid", 3, offset), 0, 0, b"key", b"secret text")


def dead(offset: int) -> Dead:
    return Dead(message(offset), DecodeError("bad bytes", code="json_invalid"))


def reached(limit: DeadLetterLimit) -> bool:
    try:
        limit.check()
    except DeadLetterLimitReached:
        return True
    return False


def test_a_hundred_dead_records_stop_a_pipeline_that_has_just_started() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    limit.add(dead(i) for i in range(99))
    assert not reached(limit)
    limit.add([dead(99)])
    assert reached(limit)


def test_exactly_half_is_still_allowed() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    for i in range(1_000):
        limit.add([Forwarded(message(i)), dead(i)])
    assert not reached(limit)
    limit.add([dead(0)])
    assert reached(limit)


def test_old_records_no_longer_count() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    limit.add(Forwarded(message(i)) for i in range(100_000))
    limit.add(dead(i) for i in range(500))
    assert not reached(limit)
    limit.add([dead(500)])
    assert reached(limit)


def test_sound_records_afterwards_do_not_take_it_back() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    limit.add(dead(i) for i in range(100))
    limit.add(Forwarded(message(i)) for i in range(5_000))
    assert reached(limit)


def test_a_share_of_one_never_stops() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig(share=1))
    limit.add(dead(i) for i in range(5_000))
    assert not reached(limit)


def test_the_message_names_three_codes_with_an_example_each_and_no_record_text() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig(min_records=100))
    for i in range(25):
        limit.add([dead(4 * i), Dead(message(4 * i + 1), StateTooLong("too long"))])
        limit.add(Dead(message(4 * i + j), DecodeError("x", code=f"rare_{i}")) for j in (2, 3))
    with pytest.raises(DeadLetterLimitReached) as caught:
        limit.check()
    text = str(caught.value)
    assert "100 of the last 100 records are dead" in text
    assert "json_invalid 25 times, such as in[3]@96" in text
    assert "state_too_long 25 times, such as in[3]@97" in text
    assert text.count("such as") == 3
    assert "secret" not in text


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 20), st.integers(1, 20))
def test_it_agrees_with_counting_the_window_again_each_time(fates: list[bool], window: int, least: int) -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig(share=0.5, window_records=window, min_records=least))
    limit.add(dead(0) if fate else Forwarded(message(0)) for fate in fates)
    expected = any(
        len(recent := fates[max(0, end - window) : end]) >= min(least, window) and sum(recent) > len(recent) / 2
        for end in range(1, len(fates) + 1)
    )
    assert reached(limit) == expected
