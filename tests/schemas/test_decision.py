"""Decision schemas: what loads, and as what."""

import json
from pathlib import Path
from typing import Any

import pytest

from slotstream.schemas.decision import (
    ChoiceQuestion,
    NoulQuestion,
    ScoreQuestion,
    load_decision_schema,
    parse_decision_schema,
)
from tests.examples import CHOICE, NOUL, SCORE, example_schema, write_schema

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


def test_a_whole_file_loads(tmp_path: Path) -> None:
    schema = load_decision_schema(write_schema(tmp_path, WHOLE))
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
    path = write_schema(tmp_path, json.dumps({"refund": NOUL, "team": CHOICE, "anger": SCORE}), "support.json")
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
    assert [q.id for q in example_schema({"type": NOUL, "model": NOUL}).questions] == ["type", "model"]


@pytest.mark.parametrize(
    "criteria", [None, {}, {"true": "yes, they do"}, {"false": "a question only"}, {"true": "a", "false": None}]
)
def test_noul_criteria_may_be_absent_null_or_of_one_side(criteria: Any) -> None:
    assert example_schema({"refund": {**NOUL, "criteria": criteria}}).questions[0].criteria == (criteria or {})


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
    schema = load_decision_schema(write_schema(tmp_path, f"refund: {{type: noul, criteria: {written}}}"))
    assert schema.questions[0].criteria == {"true": "money", "false": "other"}


def test_python_s_booleans_are_the_sides_of_a_noul_question() -> None:
    assert example_schema({"refund": {"type": "noul", "criteria": {True: "money"}}}).questions[0].criteria == {
        "true": "money"
    }


def test_option_names_are_the_text_as_it_is_written(tmp_path: Path) -> None:
    written = "stars: {type: choice, criteria: {1: bad, 2:, yes:, no:, 010:, 1.10:, null:, ~:}}"
    schema = load_decision_schema(write_schema(tmp_path, written))
    assert schema.questions[0].options == ("1", "2", "yes", "no", "010", "1.10", "null", "~")


def test_objects_and_arrays_are_taken_where_text_is() -> None:
    schema = example_schema(
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
    as_list = example_schema({"team": {"type": "choice", "criteria": ["Billing", "Sales"]}})
    assert as_list == example_schema({"team": {"type": "choice", "criteria": {"Billing": None, "Sales": None}}})


@pytest.mark.parametrize("count", [2, 26, 27, 255])
def test_a_choice_question_takes_2_to_255_options(count: int) -> None:
    assert (
        len(example_schema({"q": {"type": "choice", "criteria": [f"o{i}" for i in range(count)]}}).questions[0].options)
        == count
    )


def test_names_in_any_script_are_kept() -> None:
    options = ("환불 요청", "배송 문의", "🙂 기타", "naïve")
    assert example_schema({"kind": {"type": "choice", "criteria": list(options)}}).questions[0].options == options


def test_an_escaped_emoji_of_a_json_file_is_one_character(tmp_path: Path) -> None:
    path = write_schema(tmp_path, json.dumps({"q": {"type": "choice", "criteria": {"😀": None, "😡": None}}}), "q.json")
    assert load_decision_schema(path).questions[0].options == ("😀", "😡")


def test_anchors_and_merges_share_what_questions_have_in_common(tmp_path: Path) -> None:
    first = "a: &base {type: noul, instructions: A, thresholds: {mass: 0.8}}"
    written = f"{first}\nb: {{<<: *base, instructions: B}}"
    a, b = load_decision_schema(write_schema(tmp_path, written)).questions
    assert (a.thresholds, a.instructions, b.instructions) == (b.thresholds, "A", "B")


@pytest.mark.parametrize("written", ["no", "head", "tail", "middle", "'no'"])
def test_a_bare_no_is_the_word_no(tmp_path: Path, written: str) -> None:
    schema = load_decision_schema(
        write_schema(tmp_path, f"truncate: {written}\nquestions: {{a: {{type: noul, instructions: A}}}}")
    )
    assert schema.truncate == written.strip("'")
