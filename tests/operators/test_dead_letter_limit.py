"""The dead-letter limit counts the last outcomes and says what went wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.dead_letter_limit import DeadLetterLimit, DeadLetterLimitConfig
from slotstream.schemas.errors import DeadLetterLimitReached
from slotstream.schemas.record import Origin


def dead(limit: DeadLetterLimit, offsets: range) -> None:
    for offset in offsets:
        limit.add("json_invalid", Origin("in", "uuid", 3, offset))


def sound(limit: DeadLetterLimit, count: int) -> None:
    for _ in range(count):
        limit.add(None)


def reached(limit: DeadLetterLimit) -> bool:
    try:
        limit.check()
    except DeadLetterLimitReached:
        return True
    return False


def test_a_hundred_dead_records_stop_a_pipeline_that_has_just_started() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    dead(limit, range(99))
    assert not reached(limit)
    dead(limit, range(99, 100))
    assert reached(limit)


def test_exactly_half_is_still_allowed() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    for i in range(1_000):
        sound(limit, 1)
        dead(limit, range(i, i + 1))
    assert not reached(limit)
    dead(limit, range(1))
    assert reached(limit)


def test_old_records_no_longer_count() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    sound(limit, 100_000)
    dead(limit, range(500))
    assert not reached(limit)
    dead(limit, range(1))
    assert reached(limit)


def test_sound_records_afterwards_do_not_take_it_back() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    dead(limit, range(100))
    sound(limit, 5_000)
    assert reached(limit)


def test_a_share_of_one_never_stops() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig(share=1))
    dead(limit, range(5_000))
    assert not reached(limit)


def test_the_message_names_the_three_most_frequent_codes_with_an_example_each() -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig())
    for i in range(25):
        dead(limit, range(2 * i, 2 * i + 1))
        limit.add("state_too_long", Origin("in", "uuid", 3, 2 * i + 1))
        limit.add(f"rare_{i}", "in[0]@1")
        limit.add(f"rarer_{i}", "in[0]@2")
    with pytest.raises(DeadLetterLimitReached) as caught:
        limit.check()
    text = str(caught.value)
    assert "100 of the last 100 records are dead" in text
    assert "json_invalid 25 times, such as in[3]@48" in text
    assert "state_too_long 25 times, such as in[3]@49" in text
    assert text.count("such as") == 3


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 20), st.integers(1, 20))
def test_it_agrees_with_counting_the_window_again_each_time(fates: list[bool], window: int, least: int) -> None:
    limit = DeadLetterLimit(DeadLetterLimitConfig(share=0.5, window_records=window, min_records=least))
    for fate in fates:
        limit.add("json_invalid" if fate else None)
    expected = any(
        len(recent := fates[max(0, end - window) : end]) >= min(least, window) and sum(recent) > len(recent) / 2
        for end in range(1, len(fates) + 1)
    )
    assert reached(limit) == expected
