"""Every outcome has one topic."""

import pickle
from dataclasses import replace

import pytest

from slotstream.operators.outcome import Dead, Decided, Forwarded, Outcome, route_of
from slotstream.schemas.errors import DecodeError
from tests.examples import example_record
from tests.schemas.test_label import DECISION

RECORD = example_record("secret words")
DECIDED = Decided(RECORD, replace(DECISION, route="decided", reasons=()))
REVIEW = Decided(RECORD, DECISION)
DEAD = Dead(RECORD.message, DecodeError("the value is no JSON", code="bad_json"))
FORWARDED = Forwarded(replace(RECORD.message, value=None))
ALL = (DECIDED, REVIEW, DEAD, FORWARDED)


@pytest.mark.parametrize(
    ("outcome", "route"), [(DECIDED, "decided"), (REVIEW, "review"), (DEAD, "dead"), (FORWARDED, "decided")]
)
def test_an_outcome_has_one_route(outcome: Outcome, route: str) -> None:
    assert route_of(outcome) == route


@pytest.mark.parametrize("outcome", ALL)
def test_an_outcome_names_the_message_that_it_came_from(outcome: Outcome) -> None:
    assert outcome.message.origin == RECORD.message.origin


@pytest.mark.parametrize("outcome", ALL)
def test_an_outcome_survives_pickling(outcome: Outcome) -> None:
    again = pickle.loads(pickle.dumps(outcome))
    assert (type(again), again.message, route_of(again)) == (type(outcome), outcome.message, route_of(outcome))
    if isinstance(outcome, Dead):
        assert (str(again.error), again.error.code) == (str(outcome.error), outcome.error.code)
    else:
        assert again == outcome


@pytest.mark.parametrize("outcome", ALL)
def test_no_record_text_stands_in_an_outcome_s_repr(outcome: Outcome) -> None:
    assert "secret" not in repr(outcome)
