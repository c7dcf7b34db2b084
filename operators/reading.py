"""From what the engine read to the labels of a record: pure arithmetic."""

from collections.abc import Sequence
from math import exp, fsum, isnan, log

from slotstream.operators.engines.protocol import ReadResult
from slotstream.operators.plan import ReadPlan
from slotstream.schemas.decision import Question
from slotstream.schemas.errors import MassTooLow, ReadNotFinite
from slotstream.schemas.label import Label

__all__ = ["is_finite", "label_from_read", "labels_from_reads"]

_STEPS = 1e6
# A float's last bits may differ between batches; six decimals make copies of a record byte-identical.


def _rounded(value: float) -> float:
    """To six decimals. A third of `round(value, 6)`'s time, and a record has dozens of numbers."""
    return round(value * _STEPS) / _STEPS


def is_finite(results: Sequence[ReadResult]) -> bool:
    """Whether every log-probability is a number at most 0 (up to rounding); minus infinity is one: probability 0."""
    # A sum is NaN when anything in it is, which `max` does not show.
    return all(max(slot) <= 1e-3 and not isnan(sum(slot)) for result in results for slot in result.log_probs)


def labels_from_reads(plan: ReadPlan, results: Sequence[ReadResult]) -> tuple[Label, ...]:
    """The labels of one record, in the schema's question order.

    Args:
        results: one a request of `plan.reads(...)`, in its order: canvas by canvas, draws side by side.

    Raises:
        ReadNotFinite: a log-probability is NaN.
        MassTooLow: a question's marks hold less than the schema's floor.
    """
    draws = plan.schema.draws
    if not is_finite(results):
        raise ReadNotFinite("the engine read NaN for this record")
    labels: dict[int, Label] = {}
    for number, canvas in enumerate(plan.canvases):
        of_canvas = results[number * draws : (number + 1) * draws]
        for index, slot in enumerate(canvas.slots):
            question = plan.schema.questions[slot.question]
            reads = [result.log_probs[index] for result in of_canvas]
            labels[slot.question] = label_from_read(question, reads, mass_floor=plan.schema.mass_floor)
    return tuple(labels[index] for index in range(len(plan.schema.questions)))


def label_from_read(question: Question, draws: Sequence[Sequence[float]], *, mass_floor: float) -> Label:
    """One question's label from the log-probabilities of its marks, averaged over draws in probability.

    Args:
        draws: per draw, the natural log-probability of every option's mark over the full vocabulary.

    Raises:
        MassTooLow: the marks hold less than `mass_floor` of the probability.
    """
    if len(draws) == 1:
        over_vocabulary = list(map(exp, draws[0]))
    else:
        over_vocabulary = [fsum(map(exp, option)) / len(draws) for option in zip(*draws, strict=True)]
    total = fsum(over_vocabulary)
    mass = min(total, 1.0)  # an engine's rounding may lift it just above
    if mass < mass_floor or mass == 0.0:
        raise MassTooLow(
            f"question {question.id!r}: the options hold {mass:.2g} of the model's probability and the floor is "
            f"{mass_floor:g}: the model would answer something that no option names"
        )
    probabilities = [p / total for p in over_vocabulary]
    highest = max(probabilities)
    top = probabilities.index(highest)
    rounded = [round(p * _STEPS) / _STEPS for p in probabilities]
    value, level = _value(question, probabilities, top)
    return Label(
        question.id,
        question.type,
        value,
        level,
        probability=rounded[top],
        mass=_rounded(mass),
        margin=_rounded(highest - sorted(probabilities)[-2]),
        entropy=_rounded(-fsum([p * log(p) for p in probabilities if p])) + 0.0,
        probabilities=dict(zip(question.options, rounded, strict=True)),
    )


def _value(question: Question, probabilities: Sequence[float], top: int) -> tuple[str | bool | float, str | None]:
    if question.type == "noul":
        return top == 0, None
    if question.type == "choice":
        return question.options[top], None
    return _rounded(fsum([i * p for i, p in enumerate(probabilities)])), question.options[top]
