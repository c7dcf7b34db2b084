"""The fold: nothing that was read is lost, and each id says one thing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.audit import Row, audit, fold
from slotstream.schemas.label import Route
from slotstream.schemas.record import Origin


def origin(offset: int, partition: int = 0) -> Origin:
    return Origin("tickets", "uuid", partition, offset)


def row(route: Route, offset: int = 0, attempt: int = 1, code: str | None = None, schema_hash: str = "h") -> Row:
    return Row(route, origin(offset), schema_hash, attempt, code)


ROWS = st.lists(
    st.builds(
        row,
        st.sampled_from(["decided", "review", "dead"]),
        st.integers(0, 5),
        st.integers(1, 3),
        st.sampled_from([None, "read_timeout", "decode_error"]),
        st.sampled_from(["h1", "h2"]),
    )
)


@pytest.mark.parametrize(
    ("rows", "winner"),
    [
        ([row("dead"), row("decided")], "decided"),
        ([row("dead"), row("review")], "review"),
        ([row("review"), row("decided")], "decided"),
        ([row("decided"), row("dead", attempt=2)], "dead"),
        ([row("review", attempt=2), row("decided", attempt=1)], "review"),
    ],
)
def test_the_highest_attempt_wins_and_then_the_better_route(rows: list[Row], winner: str) -> None:
    assert [folded.route for folded in fold(rows).values()] == [winner]
    assert [folded.route for folded in fold(reversed(rows)).values()] == [winner]


@given(ROWS)
def test_folding_twice_or_in_another_order_changes_nothing(rows: list[Row]) -> None:
    once = {key: (kept.route, kept.attempt) for key, kept in fold(rows).items()}
    again = {key: (kept.route, kept.attempt) for key, kept in fold(fold(rows).values()).items()}
    turned = {key: (kept.route, kept.attempt) for key, kept in fold(rows[::-1]).items()}
    assert once == again == turned
    assert set(once) == {kept.id for kept in rows}


@given(ROWS)
def test_every_record_is_folded_a_copy_or_overtaken(rows: list[Row]) -> None:
    found = audit(rows, {origin(offset) for offset in range(6)})
    assert found.written == found.folded + found.copies + found.overtaken
    assert found.copies >= 0
    assert sum(found.routes.values()) == found.folded
    assert len(found.lost) == 6 - len({kept.origin for kept in rows})


def test_a_record_without_output_is_lost() -> None:
    found = audit([row("decided", 0), row("dead", 2)], {origin(0), origin(1), origin(2)})
    assert found.lost == (origin(1),)
    assert not found.sound


def test_a_copy_is_counted_and_harms_nothing() -> None:
    found = audit([row("decided", 0), row("decided", 0)], {origin(0)})
    assert (found.copies, found.sound, found.routes["decided"]) == (1, True, 1)


def test_output_before_its_commit_is_ahead_and_not_lost() -> None:
    found = audit([row("decided", 0), row("decided", 1)], {origin(0)})
    assert found.ahead == (origin(1),)
    assert found.sound


def test_two_routes_in_one_attempt_are_a_contradiction() -> None:
    found = audit([row("decided"), row("review")], {origin(0)})
    assert found.contradictions == (origin(0).decision_id("h"),)
    assert not found.sound


def test_a_read_that_timed_out_once_and_was_decided_on_replay_is_allowed() -> None:
    found = audit([row("dead", code="read_timeout"), row("decided")], {origin(0)})
    assert found.allowed_contradictions == (origin(0).decision_id("h"),)
    assert found.sound
    assert found.routes["decided"] == 1


def test_a_redriven_record_may_take_another_route() -> None:
    found = audit([row("dead", code="decode_error"), row("decided", attempt=2)], {origin(0)})
    assert (found.sound, found.overtaken, found.copies) == (True, 1, 0)


def test_a_decision_schema_that_changed_in_between_loses_nothing() -> None:
    found = audit([row("decided", 0, schema_hash="old"), row("decided", 1, schema_hash="new")], {origin(0), origin(1)})
    assert found.sound
