"""A decider, its engine and its records, as the deciders' suites need them."""

from collections.abc import Callable, Iterable
from typing import Any

from slotstream.operators.decider import Decider
from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.outcome import Dead, Decided, Forwarded, Outcome
from slotstream.operators.plan import ReadPlan
from slotstream.operators.testing import hashed_read
from slotstream.schemas.errors import DecodeError
from slotstream.schemas.record import Message, Origin, Record
from tests.examples import NOUL, example_plan, example_record, example_schema
from tests.tiny_tokenizer import tiny_tokenizer

__all__ = [
    "PLAN",
    "SHORT_S",
    "TWO_CANVASES",
    "all_of",
    "codes",
    "dead",
    "decider",
    "meanwhile",
    "records",
    "scripted",
    "tombstone",
]

PLAN = example_plan()
TINY = tiny_tokenizer()
TWO_CANVASES = example_plan(example_schema({"a": NOUL, "b": {**NOUL, "alone": True}}))
SHORT_S = 0.02


def decider(engine: Engine, plan: ReadPlan = PLAN, *, max_in_flight: int = 100, **settings: Any) -> Decider:
    return Decider(plan, engine, max_in_flight=max_in_flight, **{"read_timeout_s": 5.0, **settings})


def meanwhile(*happenings: Callable[[], object] | float) -> Callable[[], float]:
    """A monotonic clock that is asked when a wait begins and when it ends: what happens then, or what it shows."""
    left = list(happenings)
    now = 0.0

    def clock() -> float:
        nonlocal now
        happening = left.pop(0) if left else now
        if callable(happening):
            happening()
        else:
            now = happening
        return now

    return clock


def records(*texts: Any) -> list[Record]:
    return [example_record(text, offset) for offset, text in enumerate(texts)]


def dead(offset: int) -> Dead:
    return Dead(example_record("", offset).message, DecodeError("bad bytes"))


def tombstone(offset: int) -> Forwarded:
    return Forwarded(Message(Origin("tickets", "topic-uuid", 0, offset), 0, 0, b"k", None))


def all_of(decider: Decider, items: Iterable[Record | Dead | Forwarded]) -> list[Outcome]:
    return [outcome for item in items for outcome in decider.add(item)] + list(decider.drain())


def codes(outcomes: Iterable[Outcome]) -> list[str]:
    """Of each outcome its offset and fate, such as "0 decided" and "1 mass_too_low"."""
    fates = {Decided: "decided", Forwarded: "forwarded"}
    return [f"{o.message.origin.offset} {o.error.code if isinstance(o, Dead) else fates[type(o)]}" for o in outcomes]


def scripted(script: dict[str, list[float]]) -> Callable[[ReadRequest], ReadResult]:
    """Reads of a prompt with such a word in it give this log-probability for every mark; one value a read, in turn."""
    left = {word: list(values) for word, values in script.items()}

    def read(request: ReadRequest) -> ReadResult:
        prompt = str(TINY.decode(list(request.prompt_ids)))
        for word, values in left.items():
            if word in prompt and values:
                value = values.pop(0)
                return ReadResult(tuple((value,) * len(marks) for marks in request.mark_ids))
        return hashed_read(request)

    return read
