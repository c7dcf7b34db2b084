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

_ASKED = "questions: {a: {type: noul, instructions: x}}"
_CHOICE_OF = "questions: {{q: {{type: choice, criteria: {}}}}}"


@pytest.mark.parametrize(
    ("written", "place", "rule"),
    [
        ("", "", "must be a map with questions, got nothing; write questions:"),
        ("- a\n- b", "", "must be a map with questions, got a list"),
        ("just text", "", "must be a map with questions, got 'just text'"),
        ("{}", "questions:", "is missing"),
        ("questions: {}", "questions:", "asks at least one question, got none"),
        ("questions: [a]", "questions:", "is a map of question id to question, got a list"),
        ("questions: {a: text}", "questions:", "question 'a' is a map with type and criteria, got 'text'"),
        ("questions: {a: {instructions: x}}", "questions.a:", "its type is missing; write type: noul, choice or score"),
        ("questions: {a: {type: box}}", "questions.a:", "its type is noul, choice or score, got 'box'"),
        (
            "questions: {a: {type: no}}",
            "questions.a:",
            "its type is noul, choice or score, got false (as YAML reads a bare no or off)",
        ),
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
        (
            "questions: {a: {type: noul, instructions: x, extra: 1}}",
            "questions.a.extra:",
            "unknown key; known keys: instructions, ",
        ),
        (
            "questions: {a: {type: noul, instructions: 5}}",
            "questions.a.instructions:",
            "must be text, got the number 5; put it in quotes (What is asked",
        ),
        (
            "questions: {a: {type: noul, criteria: {maybe: x}}}",
            "questions.a.criteria.maybe:",
            "must be 'true' or 'false', got 'maybe'",
        ),
        (
            "questions: {a: {type: noul, criteria: {yes: x, true: y}}}",
            "questions.a.criteria:",
            "one criterion for true",
        ),
        (
            "questions: {a: {type: noul, criteria: [x]}}",
            "questions.a.criteria:",
            "must be a map, got a list (What counts as yes, and what as no)",
        ),
        ("questions: {A-1: {type: noul, instructions: x}}", "questions.A-1.id:", "must match [a-z_][a-z0-9_]*"),
        ("questions: {질문: {type: noul, instructions: x}}", "questions.질문.id:", "must match [a-z_][a-z0-9_]*"),
        ('questions: {"a\\n": {type: noul, instructions: x}}', "questions.a\n.id:", "must match [a-z_][a-z0-9_]*"),
        ("questions: {q: {type: choice}}", "questions.q.criteria:", "is missing"),
        (_CHOICE_OF.format("{x: }"), "questions.q.criteria:", "2 to 255 options, got 1"),
        (_CHOICE_OF.format([f"o{i}" for i in range(256)]), "questions.q.criteria:", "2 to 255 options, got 256"),
        (_CHOICE_OF.format("[x, y, x]"), "questions.q.criteria:", "every option has a name of its own, got 'x' twice"),
        (_CHOICE_OF.format("[1, true]"), "questions.q.criteria:", "put it in quotes, got the number 1"),
        (
            _CHOICE_OF.format("[x, no]"),
            "questions.q.criteria:",
            "put it in quotes, got false (as YAML reads a bare no or off)",
        ),
        (_CHOICE_OF.format("{x: , '  ': }"), "questions.q.criteria:", "an option needs a name, got '  '"),
        (
            _CHOICE_OF.format("{x: yes, y: }"),
            "questions.q.criteria.x:",
            "must be text, got true (as YAML reads a bare yes, on or true); put it",
        ),
        (
            _CHOICE_OF.format("{x: 2024-01-01, y: }"),
            "questions.q.criteria.x:",
            "must be text, got the date 2024-01-01; put it in quotes",
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
        ("questions: {s: {type: score, criteria: {x: , y: }}}", "questions.s.criteria:", "must be a list, got a map"),
        (
            "questions: {s: {type: score, criteria: [1, 2]}}",
            "questions.s.criteria.0:",
            "must be text, got the number 1; put it in quotes",
        ),
        (
            "thresholds: {mass: 1}\nquestions: {a: {type: noul, instructions: x}}",
            "thresholds:",
            "unknown key; known keys: name, version, ",
        ),
        (
            "questions: {a: {type: noul, instructions: x, thresholds: {mass: 1.5}}}",
            "questions.a.thresholds.mass:",
            "must be 1 or less, got the number 1.5 (Least share",
        ),
        (
            "questions: {a: {type: noul, instructions: x, thresholds: {mass: .nan}}}",
            "questions.a.thresholds.mass:",
            "got the number nan",
        ),
        (
            "name: two words\nquestions: {a: {type: noul, instructions: x}}",
            "name:",
            "letters, digits, dots, hyphens and underscores, got 'two words'",
        ),
        (
            "version: 1.10\nquestions: {a: {type: noul, instructions: x}}",
            "version:",
            "put it in quotes, got the number 1.1",
        ),
        (
            "version: yes\nquestions: {a: {type: noul, instructions: x}}",
            "version:",
            "must be text, got true (as YAML reads a bare yes, on or true); put it in quotes",
        ),
        (
            "draws: 0\nquestions: {a: {type: noul, instructions: x}}",
            "draws:",
            "must be 1 or more, got the number 0 (Reads per canvas",
        ),
        (
            "truncate: yes\nquestions: {a: {type: noul, instructions: x}}",
            "truncate:",
            "must be 'no', 'head', 'tail' or 'middle', got true (as",
        ),
        (
            "state: {path: x}\nquestions: {a: {type: noul, instructions: x}}",
            "state:",
            "a map with either fields or template, got 'path'; write one of them",
        ),
        # What a YAML user wrote, and what was meant.
        (f"{_ASKED}\ntruncat: tail", "truncat:", "unknown key; did you mean 'truncate'?"),
        (f"{_ASKED}\nq: {{type: noul, instruction: x}}", "q:", "a question stands under questions"),
        ("questions: {a: {type: nuol, instructions: x}}", "questions.a:", "got 'nuol'; did you mean 'noul'?"),
        ("questions: {a: {type: [noul], instructions: x}}", "questions.a:", "noul, choice or score, got a list\n"),
        ("questions: {a: {type: noul, instruction: x}}", "questions.a.instruction:", "did you mean 'instructions'?"),
        ("questions: {a: {type: noul, prompt: x}}", "questions.a.prompt:", "did you mean 'instructions'?"),
        ("questions: {a: {type: choice, options: [x, y]}}", "questions.a.options:", "did you mean 'criteria'?"),
        (
            "questions: {a: {type: noul, instructions: x, thresholds: {prob: 0.5}}}",
            "questions.a.thresholds.prob:",
            "unknown key; did you mean 'probability'?",
        ),
        (
            "questions: {a: {type: noul, instructions: x, thresholds: 0.5}}",
            "questions.a.thresholds:",
            "must be a map, got the number 0.5 (When a record goes to review",
        ),
        (
            "questions: {a: {type: noul, instructions: x, thresholds: {mass: high}}}",
            "questions.a.thresholds.mass:",
            "must be a number, got 'high'",
        ),
        (
            "questions: {a: {type: noul, instructions: x, thresholds: }}",
            "questions.a.thresholds:",
            "must be a map, got nothing; write one, or remove the key",
        ),
        ("questions: {a: {type: noul, instructions: x, alone: 5}}", "questions.a.alone:", "must be true or false, got"),
        ("questions: {a: }", "questions:", "question 'a' is a map with type and criteria, got nothing"),
        ("questions:", "questions:", "is a map of question id to question, got nothing"),
        ("questions: {q: {type: choice, criteria: 5}}", "questions.q.criteria:", "must be a map, got the number 5"),
        (f"{_ASKED}\ndraws: many", "draws:", "must be a whole number, got 'many'"),
        (f"{_ASKED}\ndraws: 1.5", "draws:", "must be a whole number, got the number 1.5"),
        (f"{_ASKED}\nname:", "name:", "must be text, got nothing; write one, or remove the key"),
        (f"{_ASKED}\ninstructions: [x]", "instructions:", "must be text, got a list (Context"),
        (f"{_ASKED}\nstate: 5", "state:", "a list of names, or a map with fields or template, got the number 5"),
        (f"{_ASKED}\nstate:", "state:", "with fields or template, got nothing"),
        (f"{_ASKED}\nstate: {{fields: [1]}}", "state.fields.0:", "must be text, got the number 1; put it in quotes"),
        (
            f"{_ASKED}\nstate: {{template: x, form: y}}",
            "state.form:",
            "unknown key; known keys: fields, template, absent",
        ),
        (
            f"{_ASKED}\nstate: {{template: '{{text'}}",
            "state:",
            "expected '}' before end of string; write {field}, and {{",
        ),
        ("questions:\n\ta: x", "", "line 2, column 1: a tab; indent with spaces"),
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
    assert rule in f"{message}\n"
    assert not place or f"\n  {place} " in message
    for raw in ("Input should", "Value error", "NoneType", "<class", "pydantic"):
        assert raw not in message


def test_all_broken_rules_are_named_at_once() -> None:
    with pytest.raises(DecisionSchemaError, match=r"'example' breaks 3 rule\(s\)"):
        example_schema({"a": {**NOUL, "thresholds": {"mass": 2}}}, draws=0, mass_floor=-1)


def test_a_schema_without_a_name_is_called_by_its_file(tmp_path: Path) -> None:
    path = write_schema(tmp_path, _ASKED, "billing.yaml")
    assert load_decision_schema(path).name == "billing"
    with pytest.raises(DecisionSchemaError, match=f"^decision schema {path} breaks 1 rule"):
        load_decision_schema(write_schema(tmp_path, "questions: {}", "billing.yaml"))


def test_a_file_whose_name_cannot_name_a_schema_asks_for_one(tmp_path: Path) -> None:
    path = write_schema(tmp_path, _ASKED, "my questions (2).yaml")
    with pytest.raises(DecisionSchemaError, match=r"has no name, and 'my questions \(2\)' cannot stand .* write name:"):
        load_decision_schema(path)
    assert load_decision_schema(write_schema(tmp_path, f"{_ASKED}\nname: mine", path.name)).name == "mine"


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
