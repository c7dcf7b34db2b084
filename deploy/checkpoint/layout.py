"""The read plan's own prompt and canvas as tensors: training sees exactly what a read will be."""

from dataclasses import dataclass

import torch
from torch import Tensor

from slotstream.operators.plan import Prompt, compile_plan
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import DecisionSchema

__all__ = ["CANVAS", "Layout", "apart", "assemble", "layouts"]

CANVAS = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """One prompt of a plan as tensors: what stands around the state, the canvas, and what is read where."""

    prefix: Tensor
    suffix: Tensor
    canvas: Tensor
    slots: tuple[int, ...]
    questions: tuple[int, ...]
    marks: tuple[Tensor, ...]


def apart(schema: DecisionSchema) -> DecisionSchema:
    """The same questions, each with a prompt and a read of its own."""
    questions = tuple(question.model_copy(update={"alone": True}) for question in schema.questions)
    return schema.model_copy(update={"questions": questions})


def layouts(schema: DecisionSchema, tokenizer: PlanTokenizer, device: str) -> list[Layout]:
    """The prompts that `schema` compiles to, in style compact."""
    plan = compile_plan(
        schema,
        tokenizer,
        style="compact",
        max_model_len=512,
        canvas_length=CANVAS,
        vocab_size=tokenizer.vocab_size,
    )

    def tensors(prompt: Prompt) -> Layout:
        (canvas,) = prompt.canvases
        return Layout(
            prefix=torch.tensor(prompt.prefix_ids, device=device),
            suffix=torch.tensor(prompt.suffix_ids, device=device),
            canvas=torch.tensor(canvas.ids, device=device),
            slots=tuple(slot.position for slot in canvas.slots),
            questions=tuple(slot.question for slot in canvas.slots),
            marks=tuple(torch.tensor([token for _, token in slot.marks], device=device) for slot in canvas.slots),
        )

    return [tensors(prompt) for prompt in plan.prompts]


def assemble(layout: Layout, ids: Tensor, lengths: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Token ids for `student.read_slots` (state, suffix, padding, canvas with fresh noise) and the prompts' lengths."""
    batch, longest = ids.shape
    tail = len(layout.suffix)
    out = torch.zeros(batch, longest + tail + len(layout.canvas), dtype=torch.long, device=ids.device)
    out[:, :longest] = ids
    at = lengths[:, None] + torch.arange(tail, device=ids.device)
    out.scatter_(1, at, layout.suffix.expand(batch, -1))
    out[:, longest + tail :] = layout.canvas
    for slot in layout.slots:
        out[:, longest + tail + slot] = torch.randint(vocab_size, (batch,), device=ids.device)
    return out, lengths + tail
