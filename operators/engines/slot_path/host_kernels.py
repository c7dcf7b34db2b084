"""vLLM's small Triton kernels as plain array code, for an engine on a CPU.

vLLM's CPU build has no compiled form of the V2 runner's kernels: they run in Triton's interpreter, which takes
milliseconds for a few copies of integers and nearly all of a step. Each function below does what the kernel of its name
does, on host memory. A test runs every one of them against the interpreted kernel.

The kernels are replaced where vLLM's functions look them up at each call (module globals); a launch `kernel[grid](...)`
becomes a call. Nothing is replaced in a process whose engine is not on the slot path.
"""

# ruff: noqa: PLR0917 (a kernel's arguments have their order from its launch)
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from slotstream.operators.engines.slot_path.statistics import mark_log_probs

__all__ = ["KERNELS", "HostKernel", "install"]

_PAD_SLOT = -1  # vLLM's PAD_SLOT_ID: a token that is written to no cache slot


class HostKernel:
    """Stands where a Triton kernel stood: `kernel[grid](...)` calls the function; the grid is implied by the arrays."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self.function


def prepare_prefill_inputs(
    input_ids: torch.Tensor,
    next_tokens: torch.Tensor,
    _next_stride: int,
    lookahead: int,
    rows: torch.Tensor,
    query_start: torch.Tensor,
    all_tokens: torch.Tensor,
    _all_stride: int,
    prefill_lens: torch.Tensor,
    computed: torch.Tensor,
    **_blocks: int,
) -> None:
    """Copy the prompt tokens that this step computes, and remember the ones after them."""
    ids, upcoming, tokens = input_ids.numpy(), next_tokens.numpy(), all_tokens.numpy()
    starts = query_start.tolist()
    for at, row in enumerate(rows.tolist()):
        done, length = int(computed[row]), int(prefill_lens[row])
        if done >= length:
            continue
        start, end = starts[at], starts[at + 1]
        after = done + end - start
        ids[start:end] = tokens[row, done:after]
        known = tokens[row, after : min(after + lookahead, length)]
        upcoming[:lookahead, row] = 0
        upcoming[: len(known), row] = known


def prepare_pos_seq_lens(
    positions: torch.Tensor,
    seq_lens: torch.Tensor,
    rows: torch.Tensor,
    query_start: torch.Tensor,
    computed: torch.Tensor,
    _max_rows: int,
    **_blocks: int,
) -> None:
    """Position of every token of the step, and the length of every sequence after it; unused lengths are 0."""
    count = rows.shape[0]
    starts = query_start.numpy()[: count + 1]
    queries = np.diff(starts)
    done = computed.numpy()[rows.numpy()]
    total = int(starts[-1])
    positions.numpy()[:total] = np.arange(total) - np.repeat(starts[:-1] - done, queries)
    lengths = seq_lens.numpy()
    lengths[:count] = done + queries
    lengths[count:] = 0


def combine_sampled_and_draft_tokens(
    input_ids: torch.Tensor,
    rows: torch.Tensor,
    last_sampled: torch.Tensor,
    query_start: torch.Tensor,
    seq_lens: torch.Tensor,
    prefill_lens: torch.Tensor,
    drafts: torch.Tensor,
    _draft_stride: int,
    cu_logits: torch.Tensor,
    logits_indices: torch.Tensor,
    **constants: int,
) -> None:
    """Put sampled and draft tokens (a canvas) among the inputs, and name the rows whose logits are wanted."""
    new = constants.get("NUM_NEW_SAMPLED_TOKENS", 1)
    ids, wanted, canvas = input_ids.numpy(), logits_indices.numpy(), drafts.numpy()
    ends, firsts = query_start.tolist(), cu_logits.tolist()
    for at, row in enumerate(rows.tolist()):
        end, logits = ends[at + 1], firsts[at + 1] - firsts[at]
        wanted[firsts[at] : firsts[at + 1]] = np.arange(end - logits, end)
        length, prompt = int(seq_lens[at]), int(prefill_lens[row])
        if length <= prompt:
            continue
        if new > 0 and length - logits >= prompt:
            ids[end - logits] = last_sampled.view(-1)[row]
        if (tokens := logits - new) > 0:
            ids[end - tokens : end] = canvas[row, :tokens]


def expand_idx_mapping(
    rows: torch.Tensor, expanded: torch.Tensor, local: torch.Tensor, cu_logits: torch.Tensor, **_blocks: int
) -> None:
    """The request of every logits row, and the row's number within its request."""
    counts = np.diff(cu_logits.numpy())
    expanded.numpy()[:] = np.repeat(rows.numpy(), counts)
    local.numpy()[:] = np.arange(local.shape[0]) - np.repeat(cu_logits.numpy()[:-1], counts)


def post_update(
    rows: torch.Tensor,
    computed: torch.Tensor,
    last_sampled: torch.Tensor,
    bin_counts: torch.Tensor | None,
    _bin_stride: int,
    sampled: torch.Tensor,
    _sampled_stride: int,
    num_sampled: torch.Tensor,
    num_rejected: torch.Tensor,
    query_start: torch.Tensor | None,
    all_tokens: torch.Tensor,
    _all_stride: int,
    total_len: torch.Tensor,
    **_warps: int,
) -> None:
    """Append what was sampled, and count the tokens whose cache entries stay."""
    starts = query_start.tolist() if query_start is not None else None
    for at, row in enumerate(rows.tolist()):
        if row < 0:
            continue
        if number := int(num_sampled[at]):
            length, tokens = int(total_len[row]), sampled[at, :number]
            last_sampled.view(-1)[row] = tokens[-1]
            all_tokens[row, length : length + number] = tokens
            total_len[row] = length + number
            if bin_counts is not None:
                bin_counts[row].index_add_(0, tokens.long(), torch.ones_like(tokens, dtype=bin_counts.dtype))
        query = starts[at + 1] - starts[at] if starts is not None else 0
        computed[row] += query - int(num_rejected[at])


def fill_logprob_token_ids(
    out_ids: torch.Tensor,
    _out_stride: int,
    out_valid: torch.Tensor,
    _valid_stride: int,
    sampled: torch.Tensor,
    topk: torch.Tensor,
    _topk_stride: int,
    rows: torch.Tensor,
    num_ids: torch.Tensor,
    ids: torch.Tensor,
    _ids_stride: int,
    **constants: int,
) -> None:
    """Which token ids are reported for a row: the sampled one, then the request's own, or else the most likely."""
    most_likely = constants["NUM_TOPK"]
    out_ids[:, 0] = sampled
    out_valid[:, 0] = True
    for at, row in enumerate(rows.tolist()):
        own = int(num_ids[row])
        source = ids[row, :own] if own else topk[at, :most_likely]
        out_ids[at, 1 : 1 + len(source)] = source
        out_valid[at, 1 : 1 + len(source)] = True


def topk_log_softmax(
    output: torch.Tensor,
    logits: torch.Tensor,
    _logits_stride: int,
    ids: torch.Tensor,
    _ids_stride: int,
    _topk: int,
    _vocab_size: int,
    **_blocks: int,
) -> None:
    """Log-probabilities of chosen ids over the full vocabulary."""
    output.copy_(mark_log_probs(logits, ids)[0])


def ranks(
    output: torch.Tensor,
    logits: torch.Tensor,
    _logits_stride: int,
    ids: torch.Tensor,
    _vocab_size: int,
    **_blocks: int,
) -> None:
    """How many logits of a row are at or above the chosen one's."""
    output.copy_((logits >= logits.gather(1, ids.unsqueeze(1))).sum(dim=1))


def _apply_write(self: Any) -> None:
    """StagedWriteTensor.apply_write: the staged pieces, each into its row."""
    at = 0
    for row, start, end in zip(
        self._staged_write_indices, self._staged_write_starts, self._staged_write_cu_lens, strict=True
    ):
        piece = torch.tensor(self._staged_write_contents[at:end], dtype=self.dtype)
        first = row * self.gpu.stride(0) + start  # as the kernel counts: from the row's first element
        self.gpu.view(-1)[first : first + end - at] = piece
        at = end
    self.clear_staged_writes()


def _apply_fused(_self: Any, tensors: Sequence[Any], _pointers: torch.Tensor, _strides: torch.Tensor) -> None:
    """FusedStagedWriter.apply: several tensors at once."""
    for tensor in tensors:
        _apply_write(tensor)


def _gather_block_tables(
    self: Any,
    idx_mapping: torch.Tensor,
    num_reqs_padded: int,
    out: tuple[torch.Tensor, ...] | None = None,
    out_ptrs: torch.Tensor | None = None,  # noqa: ARG001 (vLLM's signature)
) -> tuple[torch.Tensor, ...]:
    """BlockTables.gather_block_tables: the block tables of the batch's requests; rows of padding are 0."""
    targets = tuple(self.input_block_tables) if out is None else out
    count = idx_mapping.shape[0]
    for source, target in zip(self.block_tables, targets, strict=True):
        # Whole rows: what stands behind a request's own blocks is no part of it, and attention never looks there.
        torch.index_select(source.gpu, 0, idx_mapping, out=target[:count])
        target[count:num_reqs_padded] = 0
    return tuple(target[:num_reqs_padded] for target in targets)


def _compute_slot_mappings(
    self: Any,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    num_tokens_padded: int,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """BlockTables.compute_slot_mappings: the cache slot of every token of the step; -1 behind the last."""
    mappings = self.slot_mappings if out is None else out
    count = idx_mapping.shape[0]
    starts = query_start_loc.numpy()[: count + 1]
    total = int(starts[-1])
    rows = np.repeat(idx_mapping.numpy(), np.diff(starts))
    at = positions.numpy()[:total]
    for group, (table, size, enabled) in enumerate(
        zip(self.block_tables, self.block_sizes, self._slot_mapping_enabled, strict=True)
    ):
        target = mappings[group].numpy()
        if enabled:
            blocks = table.gpu.numpy()[rows, at // size].astype(np.int64)
            target[:total] = np.where(rows >= 0, blocks * size + at % size, _PAD_SLOT)
        else:
            target[:total] = _PAD_SLOT
        target[total:] = _PAD_SLOT
    return mappings[:, :num_tokens_padded]


KERNELS: dict[str, dict[str, Callable[..., None]]] = {
    "vllm.v1.worker.gpu.input_batch": {
        "_prepare_prefill_inputs_kernel": prepare_prefill_inputs,
        "_prepare_pos_seq_lens_kernel": prepare_pos_seq_lens,
        "_combine_sampled_and_draft_tokens_kernel": combine_sampled_and_draft_tokens,
        "_expand_idx_mapping_kernel": expand_idx_mapping,
        "_post_update_kernel": post_update,
    },
    "vllm.v1.worker.gpu.sample.logprob": {
        "_topk_log_softmax_kernel": topk_log_softmax,
        "_ranks_kernel": ranks,
        "_fill_logprob_token_ids_kernel": fill_logprob_token_ids,
    },
}
"""Module -> kernel -> what replaces it."""


def install() -> None:
    """Replace the kernels in this process. Idempotent; for an engine on a CPU without context parallelism only."""
    import importlib  # noqa: PLC0415

    from vllm.v1.worker.gpu import block_table, buffer_utils  # noqa: PLC0415

    for module, kernels in KERNELS.items():
        for name, function in kernels.items():
            setattr(importlib.import_module(module), name, HostKernel(function))
    buffer_utils.StagedWriteTensor.apply_write = _apply_write
    buffer_utils.FusedStagedWriter.apply = _apply_fused
    block_table.BlockTables.gather_block_tables = _gather_block_tables
    block_table.BlockTables.compute_slot_mappings = _compute_slot_mappings
