"""Decision schemas: what loads, what is refused and how the message says so, and what the hashes stand for."""

import copy
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slotstream.operators.plan import plan_hash
from slotstream.schemas.decision import (
    ChoiceQuestion,
    DecisionSchema,
    NoulQuestion,
    ScoreQuestion,
    load_decision_schema,
    parse_decision_schema,
)
from slotstream.schemas.errors import DecisionSchemaError

NOUL = {"type": "noul", "instructions": "Is the customer asking for money back?"}
CHOICE = {
    "type": "choice",
    "instructions": "Which team should handle this ticket?",
    "criteria": {"Billing": "Payments, invoices, refunds", "Technical": None, "Sales": ""},
}
SCORE = {"type": "score", "criteria": ["Calm", "Frustrated", "Very angry"]}

WHOLE = """\
name: tickets
version: 3
instructions: Messages of customers to a bank.
state: [subject, body]
truncate: no
questions:
  intent:
    type: choice
    criteria:
      refund: wants money back
      other:
  urgent:
    type: noul
    criteria: {true: must be answered today, false: can wait}
    thresholds: {probability: 0.9, margin: 0.2}
  anger:
    type: score
    criteria: [calm, cross, furious]
    alone: true
"""


def parse(questions: Any, **settings: Any) -> DecisionSchema:
    return parse_decision_schema({"questions": questions, **settings}, name="example")


def write(folder: Path, content: str | bytes, name: str = "example.yaml") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# What loads


def test_a_whole_file_loads(tmp_path: Path) -> None:
    schema = load_decision_schema(write(tmp_path, WHOLE))
    assert (schema.name, schema.version, schema.truncate, schema.state.paths) == (
        "tickets",
        "3",
        "no",
        ("subject", "body"),
    )
    intent, urgent, anger = schema.questions
    assert isinstance(intent, ChoiceQuestion)
    assert intent.options == ("refund", "other")
    assert intent.criteria["other"] is None
    assert isinstance(urgent, NoulQuestion)
    assert urgent.options == ("yes", "no")
    assert dict(urgent.criteria) == {"true": "must be answered today", "false": "can wait"}
    assert (urgent.thresholds.probability, urgent.thresholds.margin, urgent.thresholds.mass) == (0.9, 0.2, 0.5)
    assert isinstance(anger, ScoreQuestion)
    assert anger.options == ("calm", "cross", "furious")
    assert anger.alone


def test_a_bare_system_one_map_gets_the_file_s_stem_as_name_and_text_as_state(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"refund": NOUL, "team": CHOICE, "anger": SCORE}), "support.json")
    schema = load_decision_schema(path)
    assert (schema.name, schema.version, schema.state.paths) == ("support", "1", ("text",))
    assert [question.id for question in schema.questions] == ["refund", "team", "anger"]


def test_of_a_system_one_request_body_only_the_questions_are_taken() -> None:
    body = {
        "model": "jev-latest",
        "state": {"subject": "Twice", "body": "Charged twice"},
        "questions": {"refund": NOUL},
    }
    assert parse_decision_schema({**body, "seed": 7}, name="support") == parse_decision_schema(
        {"refund": NOUL}, name="support"
    )


def test_a_question_may_be_called_questions_or_type() -> None:
    assert [q.id for q in parse_decision_schema({"questions": NOUL}, name="x").questions] == ["questions"]
    assert [q.id for q in parse({"type": NOUL, "model": NOUL}).questions] == ["type", "model"]


@pytest.mark.parametrize(
    "criteria", [None, {}, {"true": "yes, they do"}, {"false": "a question only"}, {"true": "a", "false": None}]
)
def test_noul_criteria_may_be_absent_null_or_of_one_side(criteria: Any) -> None:
    assert parse({"refund": {**NOUL, "criteria": criteria}}).questions[0].criteria == (criteria or {})


@pytest.mark.parametrize(
    "written",
    [
        "{true: money, false: other}",
        "{yes: money, no: other}",
        "{'true': money, 'no': other}",
        "{True: money, FALSE: other}",
    ],
)
def test_yaml_s_words_for_true_and_false_are_the_sides_of_a_noul_question(tmp_path: Path, written: str) -> None:
    schema = load_decision_schema(write(tmp_path, f"refund: {{type: noul, criteria: {written}}}"))
    assert schema.questions[0].criteria == {"true": "money", "false": "other"}


def test_python_s_booleans_are_the_sides_of_a_noul_question() -> None:
    assert parse({"refund": {"type": "noul", "criteria": {True: "money"}}}).questions[0].criteria == {"true": "money"}


def test_option_names_are_the_text_as_it_is_written(tmp_path: Path) -> None:
    written = "stars: {type: choice, criteria: {1: bad, 2:, yes:, no:, 010:, 1.10:, null:, ~:}}"
    schema = load_decision_schema(write(tmp_path, written))
    assert schema.questions[0].options == ("1", "2", "yes", "no", "010", "1.10", "null", "~")


def test_objects_and_arrays_are_taken_where_text_is() -> None:
    schema = parse(
        {
            "a": {"type": "noul", "instructions": {"task": "Wants money?"}, "criteria": {"true": ["refund me", "ü"]}},
            "b": {
                "type": "choice",
                "instructions": ["Route.", "Pick one."],
                "criteria": {"x": {"owns": ["y"]}, "z": None},
            },
            "c": {"type": "score", "criteria": [{"label": "Calm"}, {"label": "Angry", "signals": ["threats"]}]},
        }
    )
    a, b, c = schema.questions
    assert a.instructions == '{"task": "Wants money?"}'
    assert a.criteria == {"true": '["refund me", "ü"]'}
    assert b.instructions == '["Route.", "Pick one."]'
    assert b.criteria == {"x": '{"owns": ["y"]}', "z": None}
    assert c.options == ('{"label": "Calm"}', '{"label": "Angry", "signals": ["threats"]}')


def test_a_list_of_options_is_a_map_without_descriptions() -> None:
    as_list = parse({"team": {"type": "choice", "criteria": ["Billing", "Sales"]}})
    assert as_list == parse({"team": {"type": "choice", "criteria": {"Billing": None, "Sales": None}}})


@pytest.mark.parametrize("count", [2, 26, 27, 255])
def test_a_choice_question_takes_2_to_255_options(count: int) -> None:
    assert (
        len(parse({"q": {"type": "choice", "criteria": [f"o{i}" for i in range(count)]}}).questions[0].options) == count
    )


def test_names_in_any_script_are_kept() -> None:
    options = ("환불 요청", "배송 문의", "🙂 기타", "naïve")
    assert parse({"kind": {"type": "choice", "criteria": list(options)}}).questions[0].options == options


def test_an_escaped_emoji_of_a_json_file_is_one_character(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"q": {"type": "choice", "criteria": {"😀": None, "😡": None}}}), "q.json")
    assert load_decision_schema(path).questions[0].options == ("😀", "😡")


def test_anchors_and_merges_share_what_questions_have_in_common(tmp_path: Path) -> None:
    first = "a: &base {type: noul, instructions: A, thresholds: {mass: 0.8}}"
    written = f"{first}\nb: {{<<: *base, instructions: B}}"
    a, b = load_decision_schema(write(tmp_path, written)).questions
    assert (a.thresholds, a.instructions, b.instructions) == (b.thresholds, "A", "B")


@pytest.mark.parametrize("written", ["no", "head", "tail", "middle", "'no'"])
def test_a_bare_no_is_the_word_no(tmp_path: Path, written: str) -> None:
    schema = load_decision_schema(
        write(tmp_path, f"truncate: {written}\nquestions: {{a: {{type: noul, instructions: A}}}}")
    )
    assert schema.truncate == written.strip("'")


# What is refused

_CHOICE_OF = "questions: {{q: {{type: choice, criteria: {}}}}}"


@pytest.mark.parametrize(
    ("written", "place", "rule"),
    [
        ("", "", "is a map with questions, got nothing"),
        ("- a\n- b", "", "is a map with questions, got list"),
        ("just text", "", "is a map with questions, got str"),
        ("{}", "questions:", "is missing"),
        ("questions: {}", "questions:", "asks at least one question, got none"),
        ("questions: [a]", "questions:", "is a map of question id to question, got list"),
        ("questions: {a: text}", "questions:", "question 'a' is a map with type and criteria, got str"),
        ("questions: {a: {instructions: x}}", "questions.a:", "its type is noul, choice or score, got None"),
        ("questions: {a: {type: box}}", "questions.a:", "its type is noul, choice or score, got 'box'"),
        ("questions: {a: {type: no}}", "questions.a:", "its type is noul, choice or score, got False"),
        (
            "questions: {a: {type: noul}}",
            "questions.a:",
            "'a': a noul question needs instructions or criteria, got neither",
        ),
        (
            "questions: {a: {type: noul, instructions: x, id: b}}",
            "questions:",
            "its key is its id, remove the field 'id'",
        ),
        ("questions: {a: {type: noul, instructions: x, extra: 1}}", "questions.a.extra:", "is not known here, got 1"),
        (
            "questions: {a: {type: noul, instructions: 5}}",
            "questions.a.instructions:",
            "must be text: put it in quotes, got 5",
        ),
        (
            "questions: {a: {type: noul, criteria: {maybe: x}}}",
            "questions.a.criteria.maybe:",
            "should be 'true' or 'false'",
        ),
        (
            "questions: {a: {type: noul, criteria: {yes: x, true: y}}}",
            "questions.a.criteria:",
            "one criterion for true",
        ),
        ("questions: {a: {type: noul, criteria: [x]}}", "questions.a.criteria:", "valid dictionary, got ['x']"),
        ("questions: {A-1: {type: noul, instructions: x}}", "questions.A-1.id:", "must match [a-z_][a-z0-9_]*"),
        ("questions: {질문: {type: noul, instructions: x}}", "questions.질문.id:", "must match [a-z_][a-z0-9_]*"),
        ('questions: {"a\\n": {type: noul, instructions: x}}', "questions.a\n.id:", "must match [a-z_][a-z0-9_]*"),
        ("questions: {q: {type: choice}}", "questions.q.criteria:", "is missing"),
        (_CHOICE_OF.format("{x: }"), "questions.q.criteria:", "2 to 255 options, got 1"),
        (_CHOICE_OF.format([f"o{i}" for i in range(256)]), "questions.q.criteria:", "2 to 255 options, got 256"),
        (_CHOICE_OF.format("[x, y, x]"), "questions.q.criteria:", "every option has a name of its own, got 'x' twice"),
        (_CHOICE_OF.format("[1, true]"), "questions.q.criteria:", "put it in quotes, got 1"),
        (_CHOICE_OF.format("[x, no]"), "questions.q.criteria:", "put it in quotes, got False"),
        (_CHOICE_OF.format("{x: , '  ': }"), "questions.q.criteria:", "an option needs a name, got '  '"),
        (_CHOICE_OF.format("{x: yes, y: }"), "questions.q.criteria.x:", "put it in quotes, got True"),
        (
            _CHOICE_OF.format("{x: 2024-01-01, y: }"),
            "questions.q.criteria.x:",
            "put it in quotes, got datetime.date(2024, 1, 1)",
        ),
        ("questions: {s: {type: score, criteria: [x]}}", "questions.s.criteria:", "2 to 10 levels, got 1"),
        (
            f"questions: {{s: {{type: score, criteria: {list('abcdefghijk')}}}}}",
            "questions.s.criteria:",
            "2 to 10 levels, got 11",
        ),
        (
            "questions: {s: {type: score, criteria: [x, x]}}",
            "questions.s.criteria:",
            "every level has a name of its own, got 'x' twice",
        ),
        ("questions: {s: {type: score, criteria: [x, ' ']}}", "questions.s.criteria:", "a level needs a name, got ' '"),
        ("questions: {s: {type: score, criteria: {x: , y: }}}", "questions.s.criteria:", "valid tuple"),
        ("questions: {s: {type: score, criteria: [1, 2]}}", "questions.s.criteria.0:", "put it in quotes, got 1"),
        ("thresholds: {mass: 1}\nquestions: {a: {type: noul, instructions: x}}", "thresholds:", "is not known here"),
        (
            "questions: {a: {type: noul, instructions: x, thresholds: {mass: 1.5}}}",
            "questions.a.thresholds.mass:",
            "got 1.5",
        ),
        (
            "questions: {a: {type: noul, instructions: x, thresholds: {mass: .nan}}}",
            "questions.a.thresholds.mass:",
            "got nan",
        ),
        ("name: two words\nquestions: {a: {type: noul, instructions: x}}", "name:", "got 'two words'"),
        ("version: 1.10\nquestions: {a: {type: noul, instructions: x}}", "version:", "put it in quotes, got 1.1"),
        ("version: yes\nquestions: {a: {type: noul, instructions: x}}", "version:", "put it in quotes, got True"),
        ("draws: 0\nquestions: {a: {type: noul, instructions: x}}", "draws:", "got 0"),
        ("truncate: yes\nquestions: {a: {type: noul, instructions: x}}", "truncate:", "got True"),
        (
            "state: {path: x}\nquestions: {a: {type: noul, instructions: x}}",
            "state:",
            "either fields or template, got ['path']",
        ),
        ("a: {type: noul, instructions: x}\na: {type: noul, instructions: y}", "", "line 2: key 'a' stands twice"),
        ("a: {type: noul, instructions: [}", "", "line 1"),
        (b"a: {type: noul, instructions: \xe9t\xe9}", "", "invalid continuation byte"),
        ('{"a": {"type": "noul", "instructions": "\\ud800"}}', "", "half of a surrogate pair"),
    ],
)
def test_a_broken_rule_is_named_with_its_place_and_the_value(
    tmp_path: Path, written: str | bytes, place: str, rule: str
) -> None:
    path = write(tmp_path, written)
    with pytest.raises(DecisionSchemaError) as caught:
        load_decision_schema(path)
    message = str(caught.value)
    assert str(path) in message
    assert rule in message
    assert not place or f"\n  {place} " in message


def test_all_broken_rules_are_named_at_once() -> None:
    with pytest.raises(DecisionSchemaError, match=r"'example' breaks 3 rule\(s\)"):
        parse({"a": {**NOUL, "thresholds": {"mass": 2}}}, draws=0, mass_floor=-1)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DecisionSchemaError, match=r"missing.yaml: cannot be read \(No such file or directory\)"):
        load_decision_schema(tmp_path / "missing.yaml")
    with pytest.raises(DecisionSchemaError, match="cannot be read"):
        load_decision_schema(tmp_path)


@pytest.mark.parametrize(
    "other", ["anger_level", "anger_probability", "anger_mass", "anger_margin", "anger_entropy", "anger_probabilities"]
)
def test_two_questions_whose_columns_would_have_one_name_are_refused(other: str) -> None:
    with pytest.raises(DecisionSchemaError, match=f"two decision fields would be named '{other}'"):
        parse({"anger": SCORE, other: NOUL})


@pytest.mark.parametrize("taken", ["decision_id", "decision_model", "decided_at"])
def test_a_question_whose_column_a_decision_needs_itself_is_refused(taken: str) -> None:
    with pytest.raises(DecisionSchemaError, match=f"two decision fields would be named '{taken}'"):
        parse({taken: NOUL})


def test_a_level_column_exists_for_scores_only() -> None:
    assert len(parse({"anger": NOUL, "anger_level": NOUL}).questions) == 2


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["noul", "choice", "score"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text()
            | st.integers()
            | st.sampled_from(["questions", "type", "criteria", "instructions", "state", "model"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_ANY)
def test_anything_at_all_is_a_schema_or_a_schema_error(data: Any) -> None:
    with suppress(DecisionSchemaError):
        assert parse_decision_schema(data, name="example").questions


# Hashes, immutability, travel


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
    spelled_out = {**whole, "truncate": "no", "draws": 1, "mass_floor": 0.01, "state": {"fields": ["subject", "body"]}}
    as_json = load_decision_schema(write(tmp_path, json.dumps(spelled_out), "a.json"))
    assert as_json.hash == parse_decision_schema(whole, name="b").hash


def test_the_hash_is_stable_from_release_to_release() -> None:
    """It is part of every record's id: if this fails, ids of unchanged schemas change."""
    assert parse({"refund": NOUL, "team": CHOICE, "anger": SCORE}).hash == "11f35ef0331e6ae3"


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
