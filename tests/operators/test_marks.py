"""Marks: one distinct token an option, in the very place where it is read."""

from string import ascii_lowercase, ascii_uppercase
from typing import Any

import pytest
from tokenizers import normalizers

from slotstream.operators.marks import Marks, choose_marks
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.errors import MarkError
from tests.examples import NOUL, SCORE, choice_of, example_schema
from tests.tiny_tokenizer import tiny_tokenizer


def marks_of(question: dict[str, Any], tokenizer: PlanTokenizer, lead: str = "1:") -> Marks:
    asked = example_schema({"topic": question}).questions[0]
    return choose_marks(asked, tokenizer, lead, tokenizer.encode(lead))


def spelled(marks: Marks) -> list[str]:
    return [spelling for spelling, _ in marks]


@pytest.mark.parametrize("count", [2, 26, 27, 52, 53, 77, 128, 129, 255])
def test_every_option_has_a_token_of_its_own(tokenizer: PlanTokenizer, count: int) -> None:
    marks = marks_of(choice_of(count), tokenizer)
    assert len(marks) == count
    assert len({token_id for _, token_id in marks}) == count
    for spelling, token_id in marks:
        assert tokenizer.encode(f"1: {spelling}") == [*tokenizer.encode("1:"), token_id]


def test_marks_are_capitals_then_small_letters_then_pairs(tokenizer: PlanTokenizer) -> None:
    marks = spelled(marks_of(choice_of(55), tokenizer))
    assert marks == [*ascii_uppercase, *ascii_lowercase, "AA", "AB", "AC"]


def test_yes_and_no_and_digits_are_spelled_out(tokenizer: PlanTokenizer) -> None:
    assert spelled(marks_of(NOUL, tokenizer)) == ["yes", "no"]
    assert spelled(marks_of(SCORE, tokenizer)) == ["0", "1", "2"]
    ten = {"type": "score", "criteria": [f"level {i}" for i in range(10)]}
    assert spelled(marks_of(ten, tokenizer)) == list("0123456789")


def test_a_letter_that_is_no_token_is_passed_over() -> None:
    tokenizer = PlanTokenizer(tiny_tokenizer(letters="ACDabc", pairs=3))
    assert spelled(marks_of(choice_of(9), tokenizer)) == ["A", "C", "D", "a", "b", "c", "AA", "AB", "AC"]


@pytest.mark.parametrize(("pairs", "count"), [(0, 53), (24, 77), (202, 255)])
def test_too_few_pairs_stop_the_start_and_say_how_many_there_are(pairs: int, count: int) -> None:
    tokenizer = PlanTokenizer(tiny_tokenizer(pairs=pairs))
    with pytest.raises(MarkError) as caught:
        marks_of(choice_of(count), tokenizer)
    assert str(caught.value) == (
        f"question 'topic' needs {count} marks that are one distinct token each after '1:'; the model's tokenizer has "
        f"{52 + pairs} (missing: letter pairs). Use fewer options or another model."
    )


@pytest.mark.parametrize(
    ("question", "words", "missing"),
    [(NOUL, ["yes"], "no"), (NOUL, ["no"], "yes"), (NOUL, [], "yes")],
)
def test_yes_and_no_are_never_replaced(question: dict[str, Any], words: list[str], missing: str) -> None:
    with pytest.raises(MarkError, match=rf"'topic' needs 2 marks .* \(missing: {missing}\)"):
        marks_of(question, PlanTokenizer(tiny_tokenizer(words=words)))


def test_a_digit_is_never_replaced_by_the_next_one() -> None:
    with pytest.raises(MarkError, match=r"'topic' needs 3 marks .* has 1 \(missing: 1\)"):
        marks_of(SCORE, PlanTokenizer(tiny_tokenizer(numbers="023456789")))


def test_two_spellings_of_one_token_are_one_mark() -> None:
    """A tokenizer that folds case has 26 single letters, not 52."""
    raw = tiny_tokenizer(words=())
    raw.normalizer = normalizers.Lowercase()
    assert spelled(marks_of(choice_of(26), PlanTokenizer(raw))) == list(ascii_uppercase)
    with pytest.raises(MarkError, match="has 26"):
        marks_of(choice_of(27), PlanTokenizer(raw))


def test_marks_are_chosen_for_the_line_that_they_stand_in(tokenizer: PlanTokenizer) -> None:
    first, tenth = marks_of(NOUL, tokenizer, "1:"), marks_of(NOUL, tokenizer, "\n10:")
    assert first == tenth
