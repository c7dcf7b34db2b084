"""Counting what came out against what was sent. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.demo.place import ROUTES
from deploy.demo.produce import Sample
from deploy.demo.read_back import Row
from slotstream.schemas.decision import Question

__all__ = ["Outcomes", "Score", "answer_of"]

_REASON = re.compile(r"(?P<question>\w+): (?P<metric>\w+) \S+ is below (?P<threshold>\S+)")


@dataclass(frozen=True, slots=True)
class Score:
    """How many answers were right, of how many."""

    right: int
    of: int

    @property
    def wrong(self) -> int:
        return self.of - self.right

    @property
    def share(self) -> float:
        """In [0, 1]; 0 of nothing is 0."""
        return self.right / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Everything that was sent and everything that came out.

    sent: origin (`TOPIC[PARTITION]@OFFSET`) to what was sent there.
    rows: the records of the three output topics, by route.
    questions: the decision schema's, in order.
    """

    sent: Mapping[str, Sample]
    rows: Mapping[str, Sequence[Row]]
    questions: Sequence[Question]

    def labelled(self, *routes: str) -> Iterator[tuple[Sample, Row]]:
        """The records that have answers, with what was sent."""
        for route in routes:
            for row in self.rows[route]:
                if row.fields is not None and row.origin in self.sent:
                    yield self.sent[row.origin], row

    @property
    def tombstones(self) -> int:
        return sum(row.value is None for row in self.rows["decided"])

    def problems(self) -> list[str]:
        """Why the counts do not add up; empty when each message is on exactly one topic."""
        places: dict[str, list[str]] = {}
        for route in ROUTES:
            for row in self.rows[route]:
                places.setdefault(row.origin, []).append(route)
        problems = []
        if missing := [origin for origin in self.sent if origin not in places]:
            problems.append(f"{len(missing)} of {len(self.sent)} messages are on no output topic: {_some(missing)}")
        if unknown := [origin for origin in places if origin not in self.sent]:
            problems.append(f"{len(unknown)} output records have an origin that was never sent: {_some(unknown)}")
        if twice := [f"{origin} ({' and '.join(on)})" for origin, on in places.items() if len(set(on)) > 1]:
            problems.append(f"{len(twice)} messages are on more than one topic: {_some(twice)}")
        return problems

    def remarks(self) -> list[str]:
        """What is within the promise and yet worth a look."""
        remarks = []
        origins = Counter(row.origin for rows in self.rows.values() for row in rows)
        if copies := origins.total() - len(origins):
            remarks.append(f"{copies} records were written again after a failure, with the same decision_id")
        if alive := [str(row.key) for sample, row in self.labelled("decided", "review") if sample.flaw]:
            remarks.append(f"{len(alive)} flawed messages could be decided all the same: {_some(alive)}")
        dead = [row for row in self.rows["dead"] if row.origin in self.sent and self.sent[row.origin].flaw is None]
        if dead:
            told = [f"{row.key} ({row.header('slotstream.error.code')})" for row in dead]
            remarks.append(f"{len(dead)} sound messages are dead: {_some(told)}")
        return remarks

    def accuracy(self, question: Question, *routes: str, hard: bool = False) -> Score:
        """Against the known answers; messages without one are left out. `hard`: of the hard messages alone."""
        pairs = [
            (answer_of(row, question), _known(question, sample.expected))
            for sample, row in self.labelled(*routes)
            if sample.expected is not None and sample.hard >= hard
        ]
        return Score(sum(answer == known for answer, known in pairs), len(pairs))

    def out_of_scope_in_review(self) -> Score:
        """How many of the messages that no option fits went to review."""
        decided, review = (
            sum(sample.expected is None for sample, _ in self.labelled(route)) for route in ("decided", "review")
        )
        return Score(review, decided + review)

    def answers(self, question: Question) -> Counter[str]:
        """How often each answer was given."""
        return Counter(str(answer_of(row, question)) for _, row in self.labelled("decided", "review"))

    def review_reasons(self) -> Counter[str]:
        """Records by reason; a record may have several."""
        return Counter(kind for row in self.rows["review"] for kind in _reason_kinds(row))

    def dead_codes(self) -> Counter[str]:
        return Counter(row.header("slotstream.error.code") or "(no code)" for row in self.rows["dead"])


def answer_of(row: Row, question: Question) -> str | bool:
    """The answer as people know it: an option, yes as True, or the name of a score's most probable level."""
    assert row.fields is not None
    answer: str | bool = row.fields[f"{question.id}_level" if question.type == "score" else question.id]
    return answer


def _known(question: Question, expected: Mapping[str, Any]) -> str | bool:
    answer: str | bool = expected[question.id]
    return question.options[int(answer)] if question.type == "score" else answer


def _reason_kinds(row: Row) -> Iterable[str]:
    """The row's reasons without its own numbers: `intent: margin below 0.2`."""
    for name, text in row.headers:
        if name == "slotstream.review.reason":
            yield _REASON.sub(r"\g<question>: \g<metric> below \g<threshold>", text)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
