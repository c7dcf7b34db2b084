"""Which letters are put back: each record once, its latest letter, and never behind a newer record of its key."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.kafka.headers import Identity, identity_of
from slotstream.operators.kafka.letter import Letter, LetterFilter
from slotstream.operators.kafka.redrive import redrive_headers
from slotstream.operators.kafka.redrive_choice import LEFT_OUT, Attempts, Choice, NewestOfKeys
from slotstream.schemas.record import Origin
from tests.operators.kafka.letters import letter, numbered


def attempts(pairs: Iterable[tuple[int, int]], topic: str = "tickets") -> Attempts:
    known = Attempts()
    for offset, attempt in pairs:
        known.add(Identity(Origin(topic, f"uuid-of-{topic}", 0, offset), "cafe", attempt))
    return known


def choose(
    letters: Iterable[Letter],
    redriven: Iterable[tuple[int, int]] = (),
    *,
    wanted: LetterFilter | None = None,
    newest: NewestOfKeys | None = None,
    again: bool = False,
) -> tuple[list[tuple[int, int]], Choice]:
    """(offset of the record, attempt to write) of what is chosen, in order."""
    letters = numbered(letters)
    latest = Attempts()
    for each in letters:
        if each.identity is not None and each.identity.origin.topic == "tickets":
            latest.add(each.identity)
    choice = Choice(
        "tickets", wanted or LetterFilter(), latest=latest, redriven=attempts(redriven), newest=newest, again=again
    )
    chosen = [
        (each.identity.origin.offset, attempt)
        for each in letters
        if (attempt := choice.attempt(each)) is not None and each.identity is not None
    ]
    return chosen, choice


@pytest.mark.parametrize(
    ("letters", "redriven", "again", "chosen"),
    [
        ([letter(1), letter(2)], [], False, [(1, 1), (2, 1)]),
        ([letter(1), letter(1)], [], False, [(1, 1)]),  # a copy
        ([letter(1), letter(1, attempt=2)], [(1, 1)], False, [(1, 2)]),  # it failed again
        ([letter(1, attempt=2), letter(1)], [], False, [(1, 2)]),
        ([letter(1)], [(1, 1)], False, []),
        ([letter(1)], [(1, 3)], False, []),
        ([letter(1, attempt=3)], [(1, 2)], False, [(1, 3)]),
        ([letter(1)], [(1, 1)], True, [(1, 2)]),  # it counts on
        ([letter(1)], [(1, 4)], True, [(1, 5)]),
        ([letter(1), letter(2)], [(1, 1)], True, [(1, 2), (2, 1)]),
        ([letter(1, cut=True)], [], False, []),
        ([letter(1, topic="others")], [], False, []),
        ([replace(letter(1), identity=None)], [], False, []),
        ([], [], False, []),
    ],
)
def test_a_record_is_put_back_once_by_its_latest_letter(
    letters: list[Letter], redriven: list[tuple[int, int]], again: bool, chosen: list[tuple[int, int]]
) -> None:
    assert choose(letters, redriven, again=again)[0] == chosen


def test_what_is_left_out_is_counted_by_reason() -> None:
    letters = [
        replace(letter(1), identity=None),
        letter(1, topic="others"),
        letter(2),
        letter(2, attempt=2),
        letter(3),
        letter(4, cut=True),
        letter(5, time_ms=9),
    ]
    _, choice = choose(letters, [(2, 1), (3, 1)], wanted=LetterFilter(since_ms=10))
    assert choice.left_out == {"foreign": 1, "other_topic": 1, "overtaken": 1, "redriven": 1, "cut": 1}
    assert (choice.read, choice.meant, choice.codes) == (7, 6, {"json_invalid": 1})
    assert choice.left_out.keys() <= LEFT_OUT.keys()


def test_a_filter_means_the_latest_letter_of_a_record() -> None:
    first, second = letter(1), letter(1, attempt=2, time_ms=5_000)
    assert choose([first, second], wanted=LetterFilter(until_ms=2_000))[0] == []


STREAMS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=20)


@given(STREAMS, STREAMS)
def test_what_was_put_back_is_not_put_back_a_second_time(
    lying: list[tuple[int, int]], redriven: list[tuple[int, int]]
) -> None:
    letters = [letter(offset, attempt=attempt) for offset, attempt in lying]
    once, _ = choose(letters, redriven)
    assert len({offset for offset, _ in once}) == len(once)
    assert choose(letters, [*redriven, *once])[0] == []
    again, _ = choose(letters, [*redriven, *once], again=True)
    highest = {offset: max(a for o, a in [*redriven, *once] if o == offset) for offset, _ in again}
    assert all(attempt > highest[offset] for offset, attempt in again), "no attempt has two answers"
    assert {offset for offset, _ in again} == {offset for offset, _ in lying}


@pytest.mark.parametrize(
    ("key", "source", "offset", "time_ms", "newer"),
    [
        (b"k", ("tickets", 0), 8, 0, True),
        (b"k", ("tickets", 0), 7, 99, False),  # the record itself, decided at a later attempt
        (b"k", ("tickets", 0), 6, 99, False),  # of one partition only the offset counts
        (b"k", ("tickets", 1), 1, 51, True),
        (b"k", ("tickets", 1), 99, 50, False),
        (b"k", None, 0, 51, True),
        (b"other", ("tickets", 0), 8, 99, False),
        (None, None, 0, 99, False),
    ],
)
def test_a_newer_record_of_the_key_is_found(
    key: bytes | None, source: tuple[str, int] | None, offset: int, time_ms: int, newer: bool
) -> None:
    newest = NewestOfKeys()
    newest.want(b"k")
    identity = None
    if source is not None:
        identity = Identity(Origin(source[0], f"uuid-of-{source[0]}", source[1], offset), "cafe", 1)
    newest.add(key, identity, time_ms)
    it = letter(7, timestamp_ms=50)
    assert newest.has_newer(it) == newer
    assert not newest.has_newer(replace(it, key=None))
    chosen, choice = choose([it], newest=newest)
    assert (chosen == []) == newer
    assert choice.left_out["newer"] == newer


def test_what_is_written_names_the_record_and_leaves_the_error_behind() -> None:
    own = (("trace", b"\xff"), ("trace", None), ("имя", b"x"))
    it = letter(7, attempt=2, headers=own)
    headers = redrive_headers(it, 2, prefix="slotstream")
    assert headers[:3] == (("trace", b"\xff"), ("trace", b""), ("имя", b"x"))
    assert [name for name, _ in headers[3:]] == [f"slotstream.{part}" for part in ("decision_id", "origin", "attempt")]
    identity = identity_of(headers)
    assert identity is not None
    assert it.identity is not None
    assert (identity.origin, identity.attempt) == (it.identity.origin, 2)
