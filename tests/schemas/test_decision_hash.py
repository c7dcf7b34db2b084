"""Decision schemas: what their hashes stand for, that nothing changes under them, and that they travel."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from slotstream.operators.plan import plan_hash
from slotstream.schemas.decision import load_decision_schema, parse_decision_schema
from tests.examples import CHOICE, NOUL, SCORE, example_schema, write_schema


@pytest.fixture
def whole() -> dict[str, Any]:
    return {
        "name": "tickets",
        "version": "1",
        "instructions": "Messages to a bank.",
        "state": ["subject", "body"],
        "questions": {"refund": dict(NOUL), "team": copy.deepcopy(CHOICE), "anger": {**SCORE, "alone": True}},
    }


def _set(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        *parents, last = path
        for part in parents:
            data = data[part]
        data[last] = to

    return change


def _reorder(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for part in path:
            data = data[part]
        items = list(data.items())
        data.clear()
        data.update(reversed(items))

    return change


_ASKED = {
    "name": _set("name", to="letters"),
    "version": _set("version", to="2"),
    "instructions": _set("instructions", to="Messages to a bank"),
    "question instructions": _set("questions", "refund", "instructions", to="Refund?"),
    "a description": _set("questions", "team", "criteria", "Technical", to="Bugs"),
    "an option": _set("questions", "team", "criteria", "Legal", to=None),
    "levels": _set("questions", "anger", "criteria", to=["Very angry", "Frustrated", "Calm"]),
    "alone": _set("questions", "anger", "alone", to=False),
    "a question": _set("questions", "urgent", to=NOUL),
    "order of questions": _reorder("questions"),
    "order of options": _reorder("questions", "team", "criteria"),
}
_NOT_ASKED = {
    "thresholds": _set("questions", "refund", "thresholds", to={"probability": 0.9}),
    "state": _set("state", to={"template": "{subject}"}),
    "truncate": _set("truncate", to="tail"),
    "mass floor": _set("mass_floor", to=0.02),
    "draws": _set("draws", to=4),
}


@pytest.mark.parametrize("change", [*_ASKED, *_NOT_ASKED])
def test_every_change_changes_the_schema_s_hash(whole: dict[str, Any], change: str) -> None:
    before = parse_decision_schema(copy.deepcopy(whole), name="x").hash
    (_ASKED | _NOT_ASKED)[change](whole)
    assert parse_decision_schema(whole, name="x").hash != before


@pytest.mark.parametrize("style", ["full", "compact"])
@pytest.mark.parametrize("change", _ASKED)
def test_what_the_model_is_asked_changes_the_plan_s_hash(whole: dict[str, Any], change: str, style: Any) -> None:
    before = plan_hash(parse_decision_schema(copy.deepcopy(whole), name="x"), style)
    _ASKED[change](whole)
    assert plan_hash(parse_decision_schema(whole, name="x"), style) != before


@pytest.mark.parametrize("change", _NOT_ASKED)
def test_what_the_model_is_not_asked_leaves_the_plan_s_hash(whole: dict[str, Any], change: str) -> None:
    before = plan_hash(parse_decision_schema(copy.deepcopy(whole), name="x"), "full")
    _NOT_ASKED[change](whole)
    assert plan_hash(parse_decision_schema(whole, name="x"), "full") == before


def test_the_two_styles_have_different_plan_hashes(whole: dict[str, Any]) -> None:
    schema = parse_decision_schema(whole, name="x")
    assert plan_hash(schema, "full") != plan_hash(schema, "compact")


def test_how_a_schema_is_written_does_not_matter(tmp_path: Path, whole: dict[str, Any]) -> None:
    spelled_out = {
        **whole,
        "truncate": "no",
        "draws": 1,
        "mass_floor": 0.01,
        "state": {"fields": ["subject", "body"], "absent": "dead"},
    }
    as_json = load_decision_schema(write_schema(tmp_path, json.dumps(spelled_out), "a.json"))
    assert as_json.hash == parse_decision_schema(whole, name="b").hash


def test_the_hash_is_stable_from_release_to_release() -> None:
    """It is part of every record's id: if this fails, ids of unchanged schemas change."""
    assert example_schema({"refund": NOUL, "team": CHOICE, "anger": SCORE}).hash == "c36df1597ed2e4dd"


def test_reading_absent_fields_as_empty_is_part_of_the_hash() -> None:
    one, other = (example_schema(state={"fields": ["text"], "absent": absent}) for absent in ("dead", "empty"))
    assert one.hash == example_schema().hash != other.hash
    assert one.wording == other.wording


def test_a_changed_copy_has_a_hash_of_its_own(whole: dict[str, Any]) -> None:
    schema = parse_decision_schema(whole, name="x")
    before = schema.hash
    assert schema.model_copy(update={"version": "2"}).hash != before == schema.hash


def test_a_schema_survives_pickling(whole: dict[str, Any]) -> None:
    schema = parse_decision_schema(whole, name="x")
    schema.state.render({"subject": "s", "body": "b"})  # with everything cached that it caches
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema == copy.deepcopy(schema)
    assert again.hash == schema.hash
    with pytest.raises(TypeError, match="cannot be changed"):
        again.questions[1].criteria["Legal"] = None


def test_nothing_of_a_schema_can_be_changed(whole: dict[str, Any]) -> None:
    schema = parse_decision_schema(whole, name="x")
    before = schema.hash
    noul, choice, _ = schema.questions
    changes: list[Callable[[], Any]] = [
        lambda: setattr(schema, "name", "y"),
        lambda: setattr(noul, "alone", True),
        lambda: setattr(noul.thresholds, "mass", 0.1),
        lambda: setattr(schema.state, "fields", ("other",)),
    ]
    for change in changes:
        with pytest.raises(ValidationError, match="frozen"):
            change()
    for criteria in (noul.criteria, choice.criteria):
        assert isinstance(criteria, dict)
        for change in (
            lambda c=criteria: c.update(x="y"),
            lambda c=criteria: c.__setitem__("x", None),
            lambda c=criteria: c.__delitem__("Billing"),
            lambda c=criteria: c.setdefault("x", None),
            lambda c=criteria: c.pop("Billing", None),
            criteria.popitem,
            criteria.clear,
        ):
            with pytest.raises(TypeError, match="cannot be changed"):
                change()
    assert schema.hash == before
