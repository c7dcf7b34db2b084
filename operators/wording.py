"""What the model reads: the words around the state, in two named styles. The wording is part of every plan's hash.

`full` lists every question with its options, for general models. `compact` names only the schema, its version and its
questions, for a checkpoint that was trained on that very schema and knows the rest by heart.
"""

from collections.abc import Sequence
from typing import Literal

from slotstream.operators.marks import Marks
from slotstream.schemas.decision import ChoiceQuestion, DecisionSchema, NoulQuestion, Question

__all__ = ["BEGIN", "BETWEEN", "END_OF_TURN", "PAD", "WORDING_VERSION", "Style", "line_lead", "preamble"]

Style = Literal["full", "compact"]

WORDING_VERSION = "1"

# Control tokens by name, text as text: ("<bos>", "<|turn>", "user\n") and so on. The empty thought block belongs in the
# prompt: inside the canvas it makes reads far worse (vLLM's structured decisions found the same).
BEGIN = ("<bos>", "<|turn>", "user\n")
BETWEEN = ("<turn|>", "\n", "<|turn>", "model\n", "<|channel>", "thought\n", "<channel|>")
END_OF_TURN = "<turn|>"
PAD = "<pad>"

_DEFAULT_INSTRUCTIONS = {
    "noul": "Is this true of the text?",
    "choice": "Which of these fits the text best?",
    "score": "Where on this scale does the text stand? The lowest level comes first.",
}


def line_lead(number: int) -> str:
    """How the canvas line of a question begins: a neutral handle, never the question's id."""
    return f"{number}:" if number == 1 else f"\n{number}:"


def preamble(schema: DecisionSchema, style: Style, numbered: Sequence[tuple[int, Question, Marks]]) -> str:
    """The text before the state, for the questions of one prompt."""
    if style == "compact":
        lines = [f"{schema.name} {schema.version}", *(f"{number}: {question.id}" for number, question, _ in numbered)]
        return "\n".join(lines) + "\n\n"
    parts = [schema.instructions.strip()] if schema.instructions.strip() else []
    parts.append(
        "Read the text at the end and answer every question about it. "
        "Give one line per question: its number, a colon, and the mark of one answer."
    )
    parts += [_ask(number, question, marks) for number, question, marks in numbered]
    return "\n\n".join(parts) + "\n\nText:\n"


def _ask(number: int, question: Question, marks: Marks) -> str:
    lines = [f"Question {number}: {question.instructions or _DEFAULT_INSTRUCTIONS[question.type]}"]
    spellings = [spelling for spelling, _ in marks]
    if isinstance(question, NoulQuestion):
        meanings = (question.criteria.get("true"), question.criteria.get("false"))
        lines += [f"{mark}: {meaning}" if meaning else mark for mark, meaning in zip(spellings, meanings, strict=True)]
    elif isinstance(question, ChoiceQuestion):
        for mark, (name, description) in zip(spellings, question.criteria.items(), strict=True):
            shown = name.replace("_", " ")
            lines.append(f"{mark}: {shown} - {description}" if description else f"{mark}: {shown}")
    else:
        lines += [f"{mark}: {level}" for mark, level in zip(spellings, question.criteria, strict=True)]
    return "\n".join(lines)
