"""Where a decided record goes: to `decided`, or to `review` with the reasons."""

from collections.abc import Sequence

from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.label import Label, Metric, Reason

__all__ = ["review_reasons"]

_METRICS: tuple[Metric, ...] = ("probability", "margin", "mass")


def review_reasons(schema: DecisionSchema, labels: Sequence[Label]) -> tuple[Reason, ...]:
    """Every threshold that a label does not reach, in question order; empty when the record is decided."""
    reasons = []
    for question, label in zip(schema.questions, labels, strict=True):
        least = question.thresholds
        if label.probability >= least.probability and label.margin >= least.margin and label.mass >= least.mass:
            continue
        for metric in _METRICS:
            value, threshold = getattr(label, metric), getattr(least, metric)
            if value < threshold:
                reasons.append(Reason(question.id, metric, value, threshold))
    return tuple(reasons)
