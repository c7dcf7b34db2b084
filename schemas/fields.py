"""The decision fields: which columns a decision adds to a record, and their values; the same for Avro and JSON."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from slotstream.schemas.errors import ConfigError
from slotstream.schemas.label import Decision, Label, QuestionType

__all__ = ["DecisionField", "DecisionFields", "FieldKind"]

FieldKind = Literal["string", "boolean", "double", "int", "timestamp", "probabilities"]
"""timestamp: Unix milliseconds. probabilities: a list of {option, probability}, in the schema's order."""

_PREFIX = re.compile(r"([a-z_][a-z0-9_]*)?\Z")


@dataclass(frozen=True, slots=True)
class DecisionField:
    """One column: flat, and null (probabilities: empty) where a reader finds none."""

    name: str
    kind: FieldKind
    doc: str


_MADE: tuple[tuple[str, FieldKind, str], ...] = (
    ("decision_id", "string", "Topic UUID, partition, offset and decision-schema hash; equal in all copies"),
    ("decision_route", "string", "decided, or review: not sure enough"),
    ("decision_reasons", "string", "Why the record is in review, null when it is decided"),
    ("decision_schema", "string", "Name of the decision schema"),
    ("decision_schema_version", "string", "Version of the decision schema"),
    ("decision_schema_hash", "string", "Hash of the decision schema"),
    ("decision_model", "string", "The model that was asked"),
    ("decision_engine", "string", "What ran the model, with its version"),
    ("decision_prompt_hash", "string", "Hash of the tokens that asked"),
    ("decision_draws", "int", "Reads per canvas"),
    ("decision_truncated", "boolean", "Whether the text was cut to fit"),
    ("decided_at", "timestamp", "When the record was decided"),
)


class DecisionFields:
    """The ordered decision fields of one set of questions.

    Args:
        questions: (id, type) of each question, in order.
        prefix: stands before every name; `[a-z_][a-z0-9_]*` or empty.
        probabilities: add `<question>_probabilities`, the full distribution.

    Raises:
        ConfigError: the prefix is no name, or two of the fields have one name.
    """

    def __init__(
        self, questions: Iterable[tuple[str, QuestionType]], *, prefix: str = "", probabilities: bool = False
    ) -> None:
        if not _PREFIX.match(prefix):
            raise ConfigError(f"output.field_prefix must match [a-z_][a-z0-9_]* or be empty, got {prefix!r}")
        self._questions = tuple(questions)
        self._probabilities = probabilities
        made = [field for question in self._questions for field in _of_question(*question, probabilities)]
        self.fields = tuple(DecisionField(prefix + name, kind, doc) for name, kind, doc in (*made, *_MADE))
        self.names = tuple(field.name for field in self.fields)
        self._taken = frozenset(self.names)
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ConfigError(f"two decision fields would be named {twice[0]!r}: rename the question that makes it")

    def clashes(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that a reader which folds case cannot tell from a decision field."""
        return [name for name in names if name.lower() in self._taken]

    def refuse_clash(self, where: str, names: Iterable[str]) -> None:
        """Raises ConfigError when `where` has one of `names` already."""
        if clashes := self.clashes(names):
            raise ConfigError(
                f"{where} already has a field or alias {clashes[0]!r}, which a decision field would be named: "
                f"set output.field_prefix (for example to 'slotstream_'), or rename the question"
            )

    def values(self, decision: Decision) -> tuple[Any, ...]:
        """One value a field, in the order of `fields`."""
        labels = {label.question: label for label in decision.labels}
        values: list[Any] = []
        for question, _ in self._questions:
            label = labels[question]
            values.append(label.value)
            if label.type == "score":
                values.append(label.level)
            values += (label.probability, label.mass, label.margin, label.entropy)
            if self._probabilities:
                values.append(_distribution(label))
        values += (
            decision.id,
            decision.route,
            "; ".join(map(str, decision.reasons)) or None,
            decision.schema_name,
            decision.schema_version,
            decision.schema_hash,
            decision.model,
            decision.engine,
            decision.prompt_hash,
            decision.draws,
            decision.truncated,
            decision.decided_at_ms,
        )
        return tuple(values)


def _of_question(question: str, type_: QuestionType, probabilities: bool) -> Iterable[tuple[str, FieldKind, str]]:
    if type_ == "noul":
        yield question, "boolean", f"Answer to {question}"
    elif type_ == "choice":
        yield question, "string", f"Answer to {question}: the option's name"
    else:
        yield question, "double", f"Answer to {question}: the expectation over the levels, the lowest being 0"
        yield f"{question}_level", "string", f"Most probable level of {question}"
    of_what = "the most probable level" if type_ == "score" else "the answer"
    yield f"{question}_probability", "double", f"Probability of {of_what}, among the options"
    yield f"{question}_mass", "double", "Share of all probability that the options hold"
    yield f"{question}_margin", "double", "Largest minus second largest probability"
    yield f"{question}_entropy", "double", "Entropy over the options, in nats"
    if probabilities:
        yield f"{question}_probabilities", "probabilities", "Probability of every option"


def _distribution(label: Label) -> list[dict[str, Any]]:
    return [{"option": option, "probability": probability} for option, probability in label.probabilities.items()]
