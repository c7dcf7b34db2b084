"""What the model reads around the state, word for word: a changed word is a changed plan."""

from typing import Any

import pytest

from slotstream.operators.plan import ReadPlan
from slotstream.operators.wording import BEGIN, BETWEEN, WORDING_VERSION, Style, line_lead, preamble
from slotstream.schemas.decision import DecisionSchema
from tests.examples import CHOICE, NOUL, SCORE, choice_of, example_plan, example_schema

FULL = """\
Messages of customers to a bank.

Read the text at the end and answer every question about it. Give one line per question: its number, a colon, and the mark of one answer.

Question 1: Is the customer asking for money back?
yes: a refund
no

Question 2: Which of these fits the text best?
A: refund - wants money back
B: card lost
C: other

Question 3: Where on this scale does the text stand? The lowest level comes first.
0: calm
1: cross
2: furious

Text:
"""  # noqa: E501


def words(schema: DecisionSchema, style: Style = "full") -> str:
    letters: dict[str, tuple[str, ...]] = {
        "noul": ("yes", "no"),
        "choice": tuple("ABCDEFG"),
        "score": tuple("0123456789"),
    }
    numbered = []
    for number, question in enumerate(schema.questions, start=1):
        marks = tuple((letter, 0) for letter in letters[question.type][: len(question.options)])
        numbered.append((number, question, marks))
    return preamble(schema, style, numbered)


def test_the_full_wording_lists_every_question_with_its_options() -> None:
    questions = {"refund": {**NOUL, "criteria": {"true": "a refund", "false": None}}, "team": CHOICE, "anger": SCORE}
    assert words(example_schema(questions, instructions=" Messages of customers to a bank.\n")) == FULL


def test_the_full_wording_without_instructions_begins_with_the_task() -> None:
    assert words(example_schema({"refund": NOUL})).startswith("Read the text at the end")


def test_the_compact_wording_names_schema_version_and_questions() -> None:
    schema = example_schema(instructions="Not shown.", version="7")
    assert words(schema, "compact") == "example 7\n1: refund\n2: team\n3: anger\n\n"


def test_question_ids_do_not_stand_in_the_full_wording() -> None:
    questions = {"zq_first": NOUL, "zq_second": choice_of(3), "zq_third": SCORE}
    assert "zq" not in words(example_schema(questions))


@pytest.mark.parametrize("number", [1, 2, 9, 10, 99])
def test_a_line_begins_with_a_neutral_handle(number: int) -> None:
    assert line_lead(number).strip() == f"{number}:"
    assert line_lead(number).startswith("\n") == (number > 1)


def test_the_turn_and_the_empty_thought_stand_around_the_state() -> None:
    assert "".join(BEGIN) == "<bos><|turn>user\n"
    assert "".join(BETWEEN) == "<turn|>\n<|turn>model\n<|channel>thought\n<channel|>"


def test_a_change_of_wording_needs_a_new_wording_version() -> None:
    """Trained checkpoints know a wording. If this fails, raise WORDING_VERSION, then put the new hashes here."""
    plans = {style: _plan(style).prompt_hash for style in ("full", "compact")}
    assert (WORDING_VERSION, plans) == ("1", {"full": "d92a745ba3cde8ca", "compact": "0168e5115e00612b"})


def _plan(style: Any) -> ReadPlan:
    return example_plan(
        example_schema({"refund": NOUL, "team": CHOICE, "anger": SCORE, "one": {**NOUL, "alone": True}}), style=style
    )
