"""The typed answers of one record, and where they send it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Decision", "Label", "Metric", "QuestionType", "Reason", "Route"]

Route = Literal["decided", "review", "dead"]
QuestionType = Literal["noul", "choice", "score"]
Metric = Literal["probability", "margin", "mass"]


@dataclass(frozen=True, slots=True)
class Label:
    """One question's answer.

    value: `bool` for noul, the option's name for choice, the 0-based expectation over the levels for score.
    level: the most probable level's name (score only).
    probability: of the value (noul: of the side that `value` names; score: of the most probable level), in [0, 1].
    mass: share of the full vocabulary's probability that the marks hold, in [0, 1].
    margin: top minus second probability.  entropy: of the option distribution, in nats.
    probabilities: option name to probability, in the schema's order; noul uses "yes" and "no", score the level names.
    All numbers are rounded to six decimals, so that copies of one decision are byte-identical.
    """

    question: str
    type: QuestionType
    value: str | bool | float
    level: str | None
    probability: float
    mass: float
    margin: float
    entropy: float
    probabilities: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a record goes to review: `metric` of `question` is `value`, below `threshold`."""

    question: str
    metric: Metric
    value: float
    threshold: float

    def __str__(self) -> str:
        return f"{self.question}: {self.metric} {self.value:g} is below {self.threshold:g}"


@dataclass(frozen=True, slots=True)
class Decision:
    """All labels of one record, with their making. A record that cannot be decided has an error instead.

    id: see Origin.decision_id.  prompt_hash: of the prefix and canvas token ids that asked.
    draws: reads per canvas.  truncated: the state was cut, as the schema allows.  decided_at_ms: Unix milliseconds.
    """

    id: str
    route: Literal["decided", "review"]
    reasons: tuple[Reason, ...]
    labels: tuple[Label, ...]
    schema_name: str
    schema_version: str
    schema_hash: str
    model: str
    engine: str
    prompt_hash: str
    draws: int
    truncated: bool
    decided_at_ms: int
