"""Small decision schemas, plans and records that many suites need."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from slotstream.operators.engines.protocol import Engine
from slotstream.operators.plan import ReadPlan, compile_plan
from slotstream.operators.testing import INSTANT_INFO
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import DecisionSchema, parse_decision_schema
from slotstream.schemas.record import Message, Origin, Record
from tests.tiny_tokenizer import tiny_tokenizer

__all__ = [
    "CHOICE",
    "NOUL",
    "SCORE",
    "LoadEngines",
    "choice_of",
    "example_plan",
    "example_record",
    "example_schema",
    "write_schema",
]

LoadEngines = Callable[..., list[Engine]]
"""Type of the fixture `engines`: how the process loads engines in a test, and what it has loaded."""

NOUL = {"type": "noul", "instructions": "Is the customer asking for money back?"}
CHOICE = {"type": "choice", "criteria": {"refund": "wants money back", "card_lost": None, "other": None}}
SCORE = {"type": "score", "criteria": ["calm", "cross", "furious"]}


def choice_of(count: int) -> dict[str, Any]:
    """A choice question of so many options."""
    return {"type": "choice", "criteria": [f"option {number}" for number in range(count)]}


def example_schema(questions: dict[str, Any] | None = None, **settings: Any) -> DecisionSchema:
    """A schema that asks one question of each type about the field `text`."""
    questions = {"refund": NOUL, "team": CHOICE, "anger": SCORE} if questions is None else questions
    return parse_decision_schema({"questions": questions, **settings}, name="example")


def write_schema(folder: Path, content: str | bytes, name: str = "example.yaml") -> Path:
    """Write a schema's file as its author would; returns its path."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def example_plan(
    schema: DecisionSchema | None = None,
    tokenizer: PlanTokenizer | None = None,
    *,
    style: Any = "full",
    max_model_len: int = INSTANT_INFO.max_model_len,
    canvas_length: int = 64,
) -> ReadPlan:
    """The schema's plan for the tiny tokenizer, or another."""
    tokenizer = tokenizer or PlanTokenizer(tiny_tokenizer())
    return compile_plan(
        schema or example_schema(),
        tokenizer,
        style=style,
        max_model_len=max_model_len,
        canvas_length=canvas_length,
        vocab_size=tokenizer.vocab_size,
    )


def example_record(text: Any, offset: int = 0) -> Record:
    """A record with the field `text`, as if it came from Kafka."""
    origin = Origin("tickets", "topic-uuid", 0, offset)
    return Record(Message(origin, timestamp_ms=offset, timestamp_type=0, key=None, value=b"v"), {"text": text})
