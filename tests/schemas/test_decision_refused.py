"""Decision schemas: what is refused, and how the message says so."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.schemas.decision import load_decision_schema, parse_decision_schema
from slotstream.schemas.errors import DecisionSchemaError
from tests.examples import NOUL, SCORE, example_schema, write_schema

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
    path = write_schema(tmp_path, written)
    with pytest.raises(DecisionSchemaError) as caught:
        load_decision_schema(path)
    message = str(caught.value)
    assert str(path) in message
    assert rule in message
    assert not place or f"\n  {place} " in message


def test_all_broken_rules_are_named_at_once() -> None:
    with pytest.raises(DecisionSchemaError, match=r"'example' breaks 3 rule\(s\)"):
        example_schema({"a": {**NOUL, "thresholds": {"mass": 2}}}, draws=0, mass_floor=-1)


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
        example_schema({"anger": SCORE, other: NOUL})


@pytest.mark.parametrize("taken", ["decision_id", "decision_model", "decided_at"])
def test_a_question_whose_column_a_decision_needs_itself_is_refused(taken: str) -> None:
    with pytest.raises(DecisionSchemaError, match=f"two decision fields would be named '{taken}'"):
        example_schema({taken: NOUL})


def test_a_level_column_exists_for_scores_only() -> None:
    assert len(example_schema({"anger": NOUL, "anger_level": NOUL}).questions) == 2


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
