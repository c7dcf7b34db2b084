"""The plan of a step: which rows of the batch are slots. Made on the host, copied to the device in one piece."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.utils.torch_utils import async_tensor_h2d

from slotstream.operators.engines.slot_path.eligible import SlotRead
from slotstream.operators.engines.slot_path.sequences import Sequences, split_sequences

__all__ = ["ReadTable", "StepPlan", "StepPlans"]

Ints = NDArray[np.int64]


@dataclass(slots=True)
class StepPlan:
    """One step that holds at least one slot read, in whatever phase. Tensors lie on the device, int64.

    others: batch numbers of the requests that vLLM's own sampler serves.
    slot_rows: how many slots are read, over all reads.  first_row: per request, where its slots begin among them.
    widest: slots of the read that has most.
    logits_indices: rows of the batch whose logits are wanted: slots first, then the canvases of others.
    canvas_rows: rows of the batch that hold the canvases of slot reads.
    marks: [slot_rows, widest set].  targets: where each slot's token goes in a flat [requests, width] output.
    finishing: request rows whose prompt this step completes: from the next step on they attend both ways.
    sequences: of a step in which reads are fused with the end of their prompts, else None.
    sampled, rejected: per request, as vLLM counts them; 0 for others.
    likely, log_probs: filled in by `compute_logits`: [slot_rows, 1] and [slot_rows, 1 + widest set].
    """

    others: Ints
    slot_rows: int
    first_row: list[int]
    widest: int
    logits_indices: torch.Tensor
    canvas_rows: torch.Tensor
    marks: torch.Tensor
    targets: torch.Tensor
    finishing: torch.Tensor
    sampled: torch.Tensor
    rejected: torch.Tensor
    others_at: torch.Tensor
    others_start: torch.Tensor
    sequences: Sequences | None = None
    sequences_on_device: tuple[torch.Tensor, ...] = ()
    likely: torch.Tensor | None = None
    log_probs: torch.Tensor | None = None


@dataclass(slots=True)
class StepPlans:
    """The plan of the step in progress, handed from hook to hook; each takes it once.

    A runner's step is one call after the other on one thread, also with asynchronous scheduling. Dummy and capture runs
    make no plan, so that what they meet here is None.
    """

    _logits: StepPlan | None = None
    _sampler: StepPlan | None = None
    current: StepPlan | None = None

    def put(self, plan: StepPlan | None) -> None:
        self.current = self._logits = self._sampler = plan

    def take_for_logits(self) -> StepPlan | None:
        plan, self._logits = self._logits, None
        return plan

    def take_for_sampler(self) -> StepPlan | None:
        plan, self._sampler = self._sampler, None
        self.current = None
        return plan


@dataclass(slots=True)
class ReadTable:
    """The slot reads that the worker holds, by vLLM's request row; all of it on the host."""

    max_requests: int
    canvas_length: int
    is_read: NDArray[np.bool_] = field(init=False)
    widths: Ints = field(init=False)
    counts: Ints = field(init=False)
    slots: Ints = field(init=False)
    marks: dict[int, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.is_read = np.zeros(self.max_requests, np.bool_)
        self.widths = np.zeros(self.max_requests, np.int64)
        self.counts = np.zeros(self.max_requests, np.int64)
        self.slots = np.zeros((self.max_requests, self.canvas_length), np.int64)

    def add(self, row: int, read: SlotRead) -> None:
        count = len(read.slots)
        self.is_read[row] = True
        self.widths[row] = len(read.canvas)
        self.counts[row] = count
        self.slots[row, :count] = read.slots
        marks = np.zeros((count, read.widest), np.int64)  # padded with token 0, whose value nobody reads
        for number, ids in enumerate(read.marks):
            marks[number, : len(ids)] = ids
        self.marks[row] = marks

    def remove(self, row: int) -> None:
        self.is_read[row] = False
        self.marks.pop(row, None)

    def plan(self, batch: Any, device: torch.device) -> StepPlan | None:
        """The plan for vLLM's InputBatch; None when it holds no slot read.

        Raises:
            RuntimeError: the scheduler cut a canvas, which would be read wrongly.
        """
        count = batch.num_reqs
        rows: Ints = batch.idx_mapping_np[:count]
        mine = self.is_read[rows]
        if not mine.any():
            return None
        starts = batch.query_start_loc_np[: count + 1].astype(np.int64)
        logits: Ints = np.diff(batch.cu_num_logits_np[: count + 1]).astype(np.int64)
        reading = np.flatnonzero(mine & (logits > 0))
        others = np.flatnonzero(~mine)
        read_rows = rows[reading]
        if (logits[reading] != self.widths[read_rows]).any():
            raise RuntimeError("the token budget cut the canvas of a slot read; it would be read wrongly")
        done = batch.num_computed_prefill_tokens_np + batch.num_scheduled_tokens >= batch.prefill_len_np
        finishing = rows[mine & (logits == 0) & done[:count]]

        counts = self.counts[read_rows]
        canvas_start = starts[reading + 1] - logits[reading]
        taken = np.arange(self.slots.shape[1]) < counts[:, None]
        slot_rows = (canvas_start[:, None] + self.slots[read_rows])[taken]
        fused = np.zeros(count, np.bool_)
        fused[reading] = canvas_start > starts[reading]
        sequences = split_sequences(starts, logits, fused) if fused.any() else None
        other_rows = _spans(starts[others + 1] - logits[others], logits[others])
        widest = int(counts.max(initial=1))
        sampled, rejected = np.zeros(count, np.int64), np.zeros(count, np.int64)
        sampled[reading], rejected[reading] = counts, logits[reading] - counts
        first_row = np.zeros(count, np.int64)
        first_row[reading] = np.cumsum(counts) - counts
        marks = self._marks(read_rows)
        targets = (reading[:, None] * widest + np.arange(self.slots.shape[1]))[taken]
        others_start = np.concatenate(([0], np.cumsum(np.diff(starts)[others])))
        pieces = (
            np.concatenate((slot_rows, other_rows)),
            _spans(canvas_start, logits[reading]),
            marks.reshape(-1),
            targets,
            finishing,
            sampled,
            rejected,
            others,
            others_start,
            *(sequences.pieces() if sequences is not None else ()),
        )
        # One copy to the device for all of it.
        split = async_tensor_h2d(np.concatenate(pieces).astype(np.int64), device=device).split(
            [len(piece) for piece in pieces]
        )
        targets_at, finishing_at, sampled_at, rejected_at, others_at, others_start_at = split[3:9]
        return StepPlan(
            others=others,
            slot_rows=len(slot_rows),
            first_row=first_row.tolist(),
            widest=widest,
            logits_indices=split[0],
            canvas_rows=split[1],
            marks=split[2].view(marks.shape),
            targets=targets_at,
            finishing=finishing_at,
            sampled=sampled_at,
            rejected=rejected_at,
            others_at=others_at,
            others_start=others_start_at,
            sequences=sequences,
            sequences_on_device=tuple(split[9:]),
        )

    def _marks(self, rows: Ints) -> Ints:
        sets = [self.marks[row] for row in rows.tolist()]
        if not sets:
            return np.zeros((0, 1), np.int64)
        widest = max(marks.shape[1] for marks in sets)
        if all(marks.shape[1] == widest for marks in sets):
            return np.concatenate(sets)
        return np.concatenate([np.pad(marks, ((0, 0), (0, widest - marks.shape[1]))) for marks in sets])


def _spans(starts: Ints, lengths: Ints) -> Ints:
    """The numbers of the ranges [start, start + length), one after the other."""
    before = np.cumsum(lengths) - lengths
    numbers: Ints = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return numbers
