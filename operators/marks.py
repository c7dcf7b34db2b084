"""Marks: the single-token spelling of every option in its slot."""

from collections.abc import Iterator, Sequence
from itertools import product
from string import ascii_lowercase, ascii_uppercase, digits

from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import ChoiceQuestion, NoulQuestion, Question
from slotstream.schemas.errors import MarkError

__all__ = ["Marks", "choose_marks"]

Marks = tuple[tuple[str, int], ...]
"""(spelling, token id) of each option, in option order."""


def _spellings(question: Question) -> Iterator[str]:
    if isinstance(question, NoulQuestion):
        yield from ("yes", "no")
    elif isinstance(question, ChoiceQuestion):
        yield from ascii_uppercase
        yield from ascii_lowercase
        yield from map("".join, product(ascii_uppercase, repeat=2))
    else:
        yield from digits


def choose_marks(question: Question, tokenizer: PlanTokenizer, lead: str, lead_ids: Sequence[int]) -> Marks:
    """Marks for all options of `question`, spelled ` A` after `lead` (such as "1:"): A-Z, a-z, then AA, AB ...

    Letters that are no single distinct token there are passed over in favour of the next; yes, no and digits must be.

    Raises:
        MarkError: the tokenizer has too few; names the question, the number needed and the number found.
    """
    needed = len(question.options)
    fixed = not isinstance(question, ChoiceQuestion)
    chosen: list[tuple[str, int]] = []
    taken: set[int] = set()
    for spelling in _spellings(question):
        token_id = tokenizer.one_token_after(lead, lead_ids, f" {spelling}")
        if token_id is None or token_id in taken:
            if fixed:
                break  # yes, no and levels mean something: nothing else can stand for them
            continue
        taken.add(token_id)
        chosen.append((spelling, token_id))
        if len(chosen) == needed:
            return tuple(chosen)
    missing = next(s for s in _spellings(question) if s not in {c for c, _ in chosen}) if fixed else "letter pairs"
    raise MarkError(
        f"question {question.id!r} needs {needed} marks that are one distinct token each after {lead!r}; "
        f"the model's tokenizer has {len(chosen)} (missing: {missing}). Use fewer options or another model."
    )
