"""What the suites of the read plan share: a plan, its tokenizer, and how to look into a canvas."""

from typing import Any

from hypothesis import strategies as st

from slotstream.operators.engines.protocol import ReadRequest
from slotstream.operators.plan import Canvas, ReadPlan
from slotstream.operators.tokens import PlanTokenizer
from tests.examples import NOUL, example_plan
from tests.tiny_tokenizer import CONTROL, tiny_tokenizer

__all__ = ["END", "PAD", "PLAN", "STATES", "TOKENIZER", "canvas_text", "only", "text_of", "yes_no"]

TOKENIZER = PlanTokenizer(tiny_tokenizer())
PLAN = example_plan()
PAD, END = CONTROL.index("<pad>"), CONTROL.index("<turn|>")
STATES = st.lists(st.sampled_from([*CONTROL, "\n", "model", "1: A", " "]) | st.text(max_size=5), max_size=20).map(
    "".join
)


def text_of(ids: tuple[int, ...]) -> str:
    return str(tiny_tokenizer().decode(list(ids), skip_special_tokens=False))


def canvas_text(canvas: Canvas) -> str:
    return text_of(tuple(token_id for token_id in canvas.ids if token_id != PAD))


def only(plan: ReadPlan, state: str = "a text") -> ReadRequest:
    (request,) = plan.reads(state).requests
    return request


def yes_no(count: int, **settings: Any) -> dict[str, Any]:
    return {f"q{number}": {**NOUL, **settings} for number in range(count)}
