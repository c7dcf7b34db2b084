"""The read plan: a decision schema compiled against one tokenizer, once, at worker start."""

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from slotstream.operators.engines.protocol import ReadRequest
from slotstream.operators.marks import Marks, choose_marks
from slotstream.operators.tokens import PlanTokenizer
from slotstream.operators.wording import (
    BEGIN,
    BETWEEN,
    END_OF_TURN,
    PAD,
    WORDING_VERSION,
    Style,
    line_lead,
    preamble,
)
from slotstream.schemas.decision import DecisionSchema, Question
from slotstream.schemas.errors import EngineNotCapable, StateTooLong

__all__ = ["CANVAS_STEP", "Canvas", "PlannedReads", "Prompt", "ReadPlan", "Slot", "compile_plan", "plan_hash"]

CANVAS_STEP = 16
"""Canvas widths are multiples of this many tokens (vLLM's own reads use the same), so that few shapes occur."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot: the question's index in the schema, its canvas position, and its marks in option order."""

    question: int
    position: int
    marks: Marks


@dataclass(frozen=True, slots=True)
class Canvas:
    """The token ids of one canvas, a pad in every slot, and the slots in ascending order."""

    ids: tuple[int, ...]
    slots: tuple[Slot, ...]
    positions: tuple[int, ...]
    mark_ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: prefix, state, suffix; and the canvases that are read behind it.

    prefix_bytes: the prefix as it goes into the hash of the prompt, made once: it is most of it.
    """

    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    canvases: tuple[Canvas, ...]
    prefix_bytes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PlannedReads:
    """The reads of one record, canvas by canvas (draws of one canvas side by side), and whether the state was cut."""

    requests: tuple[ReadRequest, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How every record of one decision schema is read by one model.

    state_budget: the most tokens a state may have.
    hash: of everything that is asked, in which style (a checkpoint's card lists the hashes it was trained on).
    prompt_hash: of the token ids around the state and of the marks that are read; stands on every record.
    """

    schema: DecisionSchema
    style: Style
    prompts: tuple[Prompt, ...]
    state_budget: int
    vocab_size: int
    hash: str
    prompt_hash: str
    _tokenizer: PlanTokenizer = field(repr=False, compare=False)

    @property
    def canvases(self) -> tuple[Canvas, ...]:
        """All canvases, in the order in which `reads` asks them."""
        return tuple(canvas for prompt in self.prompts for canvas in prompt.canvases)

    @property
    def reads_a_record(self) -> int:
        """Requests that `reads` makes of any state."""
        return len(self.canvases) * self.schema.draws

    def reads(self, state: str) -> PlannedReads:
        """The reads of one record's state. Pure: the same state gives the same noise, so a replay reads the same.

        Raises:
            StateTooLong: more tokens than `state_budget`, and the schema says not to cut.
        """
        (planned,) = self.reads_of_all([state])
        if isinstance(planned, StateTooLong):
            raise planned
        return planned

    def reads_of_all(self, states: Sequence[str]) -> list[PlannedReads | StateTooLong]:
        """`reads` of every state, its error in its place; tokenizing many together takes half the time."""
        planned: list[PlannedReads | StateTooLong] = []
        for ids in self._tokenizer.encode_all(states):
            try:
                planned.append(self._planned(ids))
            except StateTooLong as error:
                planned.append(error)
        return planned

    def _planned(self, ids: list[int]) -> PlannedReads:
        truncated = len(ids) > self.state_budget
        if truncated:
            ids = self._cut(ids)
        requests = []
        for prompt in self.prompts:
            behind = (*ids, *prompt.suffix_ids)
            prompt_ids = prompt.prefix_ids + behind
            digest = _digest(prompt.prefix_bytes).copy()
            digest.update(array("I", behind).tobytes())
            for canvas in prompt.canvases:
                for draw in range(self.schema.draws):
                    requests.append(
                        ReadRequest(
                            prompt_ids=prompt_ids,
                            canvas_ids=_seed(canvas, digest, draw, self.vocab_size),
                            slots=canvas.positions,
                            mark_ids=canvas.mark_ids,
                        )
                    )
        return PlannedReads(tuple(requests), truncated)

    def _cut(self, ids: list[int]) -> list[int]:
        budget, cut = self.state_budget, self.schema.truncate
        if cut == "no":
            raise StateTooLong(
                f"the state has {len(ids)} tokens and the prompt leaves {budget}; shorten it, raise "
                "engine.max_model_len, or let the decision schema cut it (truncate: head, tail or middle)"
            )
        if cut == "tail":
            return ids[:budget]
        if cut == "head":
            return ids[-budget:]
        first = (budget + 1) // 2
        return ids[:first] + ids[len(ids) - (budget - first) :]


@lru_cache(maxsize=64)  # the prefix is most of a prompt, and the same for every record
def _digest(prefix_bytes: bytes) -> "hashlib._Hash":
    return hashlib.sha256(prefix_bytes)


def _seed(canvas: Canvas, prompt_digest: "hashlib._Hash", draw: int, vocab_size: int) -> tuple[int, ...]:
    """The canvas with noise in its slots: uniform over the vocabulary, from a hash of (prompt ids, draw, position)."""
    ids = list(canvas.ids)
    for position in canvas.positions:
        digest = prompt_digest.copy()
        digest.update(draw.to_bytes(4, "little") + position.to_bytes(4, "little"))
        ids[position] = int.from_bytes(digest.digest()[:8], "little") % vocab_size
    return tuple(ids)


def plan_hash(schema: DecisionSchema, style: Style) -> str:
    """16 hex digits over wording, style, questions, options and version; not over thresholds, routing or the state."""
    asked = {"wording": WORDING_VERSION, "style": style, **schema.wording}
    return hashlib.sha256(json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()[:16]


def compile_plan(
    schema: DecisionSchema,
    tokenizer: PlanTokenizer,
    *,
    style: Style,
    max_model_len: int,
    canvas_length: int,
    vocab_size: int,
) -> ReadPlan:
    """Compile `schema` for one model.

    Args:
        max_model_len: the engine's limit on prompt plus canvas, tokens.
        canvas_length: the widest canvas that the engine serves; questions that do not fit get further canvases.
        vocab_size: the model's; noise is drawn from it.

    Raises:
        MarkError: an option cannot be spelled as one token.
        EngineNotCapable: a control token is missing, or prompt or canvas leave no room.
    """
    joint = [(i, q) for i, q in enumerate(schema.questions) if not q.alone]
    groups = ([joint] if joint else []) + [[(i, q)] for i, q in enumerate(schema.questions) if q.alone]
    prompts = tuple(_prompt(schema, tokenizer, style, group, canvas_length) for group in groups)
    taken = max(len(p.prefix_ids) + len(p.suffix_ids) + max(len(canvas.ids) for canvas in p.canvases) for p in prompts)
    budget = max_model_len - taken
    if budget < 1:
        raise EngineNotCapable(
            f"decision schema {schema.name!r} takes {taken} tokens before any record text and the engine serves "
            f"{max_model_len}; raise engine.max_model_len or shorten the questions"
        )
    asked = [[p.prefix_ids, p.suffix_ids, [(c.ids, c.positions, c.mark_ids) for c in p.canvases]] for p in prompts]
    return ReadPlan(
        schema=schema,
        style=style,
        prompts=prompts,
        state_budget=budget,
        vocab_size=vocab_size,
        hash=plan_hash(schema, style),
        prompt_hash=hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16],
        _tokenizer=tokenizer,
    )


def _prompt(
    schema: DecisionSchema,
    tokenizer: PlanTokenizer,
    style: Style,
    group: Sequence[tuple[int, Question]],
    canvas_length: int,
) -> Prompt:
    numbered = []
    for number, (_, question) in enumerate(group, start=1):
        lead = line_lead(number)
        numbered.append((number, question, choose_marks(question, tokenizer, lead, tokenizer.encode(lead))))
    text = preamble(schema, style, numbered)
    prefix_ids = (*_ids(tokenizer, BEGIN), *tokenizer.encode(text))
    return Prompt(
        prefix_ids=prefix_ids,
        suffix_ids=_ids(tokenizer, BETWEEN),
        canvases=_canvases(
            tokenizer, [(i, n, m) for (i, _), (n, _, m) in zip(group, numbered, strict=True)], canvas_length
        ),
        prefix_bytes=array("I", prefix_ids).tobytes(),
    )


def _ids(tokenizer: PlanTokenizer, pieces: Sequence[str]) -> tuple[int, ...]:
    ids: list[int] = []
    for piece in pieces:
        ids += [tokenizer.control(piece)] if piece.startswith("<") else tokenizer.encode(piece)
    return tuple(ids)


def _canvases(
    tokenizer: PlanTokenizer, lines: Sequence[tuple[int, int, Marks]], canvas_length: int
) -> tuple[Canvas, ...]:
    """Pack the lines (question index, number, marks) into as few canvases as the served width allows, in order."""
    pad, end = tokenizer.control(PAD), tokenizer.control(END_OF_TURN)
    room = canvas_length - canvas_length % CANVAS_STEP or canvas_length
    canvases: list[Canvas] = []
    ids: list[int] = []
    slots: list[Slot] = []

    def close() -> None:
        width = min(room, -(-(len(ids) + 1) // CANVAS_STEP) * CANVAS_STEP)
        canvases.append(
            Canvas(
                ids=(*ids, end, *[pad] * (width - len(ids) - 1)),
                slots=tuple(slots),
                positions=tuple(slot.position for slot in slots),
                mark_ids=tuple(tuple(token_id for _, token_id in slot.marks) for slot in slots),
            )
        )

    for index, number, marks in lines:
        lead = tokenizer.encode(line_lead(number))
        if slots and len(ids) + len(lead) + 2 > room:
            close()
            ids, slots = [], []
        if len(lead) + 2 > room:
            raise EngineNotCapable(
                f"one canvas line takes {len(lead) + 2} tokens and the engine serves a canvas of {canvas_length}; "
                "raise engine.canvas_length"
            )
        ids += lead
        slots.append(Slot(index, len(ids), marks))
        ids.append(pad)
    close()
    return tuple(canvases)
