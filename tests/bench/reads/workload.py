"""What the engines are asked: synthetic reads of a given shape, or the demo's own reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random
from typing import Protocol

from slotstream.operators.card import style_for
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import EngineInfo, ReadRequest
from slotstream.operators.plan import compile_plan
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import load_decision_schema

__all__ = ["DemoReads", "Shape", "SyntheticReads", "Workload", "mixed_shape"]

_DEMO = Path(__file__).resolve().parents[3] / "deploy" / "demo"


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens of the shared prefix and of the record; width of the canvas; slots; marks a slot."""

    prefix: int = 256
    record: int = 128
    canvas: int = 32
    slots: int = 3
    marks: int = 4


class Workload(Protocol):
    """Where the rows get their reads from."""

    shaped: bool  # whether `shape` means anything

    def reads(self, shape: Shape, first: int, count: int) -> list[ReadRequest]:
        """Reads number `first` and on. Equal numbers are equal reads in every process; others share the prefix only."""
        ...


class SyntheticReads:
    """Random token ids: the values mean nothing, the work is that of real reads of the same shape."""

    shaped = True

    def __init__(self, vocab_size: int) -> None:
        self._ids = range(vocab_size)

    def reads(self, shape: Shape, first: int, count: int) -> list[ReadRequest]:
        return [self._read(shape, number) for number in range(first, first + count)]

    def _read(self, shape: Shape, number: int) -> ReadRequest:
        draw = Random(number)
        every = shape.canvas // shape.slots
        return ReadRequest(
            prompt_ids=(
                *_drawn(f"prefix {shape.prefix}", self._ids, shape.prefix),
                *draw.choices(self._ids, k=shape.record),
            ),
            canvas_ids=tuple(draw.choices(self._ids, k=shape.canvas)),
            slots=tuple(range(every - 1, every * shape.slots, every)),
            mark_ids=tuple(_drawn(f"slot {slot}", self._ids, shape.marks) for slot in range(shape.slots)),
        )


@lru_cache(maxsize=1024)
def _drawn(seed: str, ids: range, count: int) -> tuple[int, ...]:
    return tuple(Random(seed).sample(ids, count))


def mixed_shape(number: int, *, widest: int, longest: int) -> Shape:
    """The shape of the n-th read of a mixed stream: 1 to 24 slots, three widths, short and long records, 2 to 255
    options.

    Args:
        widest: canvas that the engine serves.
        longest: tokens that it takes together.
    """
    draw = Random(f"shape {number}")
    canvas = draw.choice([width for width in (16, 32, 64) if width <= widest] or [widest])
    slots = draw.choice([count for count in (1, 2, 3, 5, 8, 16, 24) if 2 * count <= canvas])
    marks = draw.choice([2, 4, 5, 10, 77, 255]) if slots == 1 else draw.choice([2, 3, 4, 5])
    record = min(draw.choice([8, 16, 40, 64, 128, 200, 333, 512]), max(8, (longest - canvas) // 4))
    return Shape(min(256, (longest - canvas) // 2), record, canvas, slots, marks)


class DemoReads:
    """The reads that the demo's messages become, over and over; shapes are the decision schema's own."""

    shaped = False

    def __init__(self, config: EngineConfig, info: EngineInfo) -> None:
        self._config, self._info = config, info

    def reads(self, shape: Shape, first: int, count: int) -> list[ReadRequest]:
        return [self._all[number % len(self._all)] for number in range(first, first + count)]

    @cached_property
    def _all(self) -> Sequence[ReadRequest]:
        schema = load_decision_schema(_DEMO / "tickets.yaml")
        model = self._config.model_folder
        plan = compile_plan(
            schema,
            PlanTokenizer.from_model(model),
            style=style_for(schema, model),
            max_model_len=self._info.max_model_len,
            canvas_length=self._info.canvas_length,
            vocab_size=self._info.vocab_size,
        )
        lines = (_DEMO / "messages.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line)["record"] for line in lines]
        return [request for record in records for request in plan.reads(schema.state.render(record)).requests]
