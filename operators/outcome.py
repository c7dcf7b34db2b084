"""What becomes of one message: decided (or for review), dead, or passed through."""

from dataclasses import dataclass

from slotstream.schemas.errors import RecordError
from slotstream.schemas.label import Decision, Route
from slotstream.schemas.record import Message, Record

__all__ = ["Dead", "Decided", "Forwarded", "Outcome", "route_of"]


@dataclass(frozen=True, slots=True)
class Decided:
    """The record has its labels; `decision.route` says whether they are certain enough."""

    record: Record
    decision: Decision

    @property
    def message(self) -> Message:
        return self.record.message


@dataclass(frozen=True, slots=True)
class Dead:
    """The message could not be decided, and `error` says at which stage and why."""

    message: Message
    error: RecordError


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A tombstone on its way through: no question was asked; it counts as decided."""

    message: Message


Outcome = Decided | Dead | Forwarded


def route_of(outcome: Outcome) -> Route:
    """The one topic that the outcome is written to."""
    if isinstance(outcome, Decided):
        return outcome.decision.route
    return "dead" if isinstance(outcome, Dead) else "decided"
