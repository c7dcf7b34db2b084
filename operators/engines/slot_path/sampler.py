"""The sampler of the slot path: slot reads are answered from the plan, all other requests by vLLM's own sampler."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import pad
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from slotstream.operators.engines.slot_path.plan import ReadTable, StepPlan, StepPlans

__all__ = ["SlotReadSampler"]


@dataclass(frozen=True, slots=True)
class _OtherRequests:
    """The part of a batch that is not slot reads, with those fields of vLLM's InputBatch that its sampler looks at."""

    num_reqs: int
    num_draft_tokens: int
    idx_mapping: torch.Tensor
    idx_mapping_np: NDArray[np.int64]
    cu_num_logits_np: NDArray[np.int64]
    query_start_loc: torch.Tensor
    query_start_loc_np: NDArray[np.int64]
    num_scheduled_tokens: NDArray[np.int32]
    num_computed_prefill_tokens_np: NDArray[np.int32]
    prefill_len_np: NDArray[np.int32]


class SlotReadSampler:
    """Stands where vLLM's runner expects its sampler.

    Args:
        stock: vLLM's DiffusionSampler.
    """

    def __init__(self, stock: Any, table: ReadTable, plans: StepPlans) -> None:
        self._stock = stock
        self._table = table
        self._plans = plans
        self.sampling_states = stock.sampling_states
        self.logprob_token_ids_state = stock.logprob_token_ids_state
        self.req_states = stock.req_states

    @property
    def penalties_state(self) -> Any:
        return self._stock.penalties_state

    def add_request(self, req_idx: int, sampling_params: Any) -> None:
        """The model state has seen the request before and knows whether it is a slot read, which needs nothing here.

        What the row's former owner left in vLLM's sampling states stays: vLLM's sampler is only asked for the rows of
        other requests.
        """
        if not self._table.is_read[req_idx]:
            self._stock.add_request(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        self._stock.apply_staged_writes()

    def __call__(self, logits: torch.Tensor, input_batch: Any, draft_logits: torch.Tensor | None = None) -> Any:
        """Logits hold the rows of other requests only."""
        plan = self._plans.take_for_sampler()
        if plan is None:
            return self._stock(logits, input_batch, draft_logits)
        if len(plan.finishing):
            # Their prompt is complete: vLLM's attention treats them as canvases, both ways, from the next step on.
            self._stock.diffusion_states.is_encoder_phase.index_fill_(0, plan.finishing, False)
        mine = _output(plan, input_batch.num_reqs)
        if not len(plan.others):
            return mine
        return _merge(mine, self._stock(logits, _other_requests(plan, input_batch)), plan)


def _output(plan: StepPlan, requests: int) -> Any:
    """What the slot reads of the step give, with the rows of other requests left at zero.

    New tensors at every step: vLLM copies them to the host on another stream while the next step runs.
    """
    device = plan.sampled.device
    tokens = torch.zeros((requests, plan.widest), dtype=torch.int32, device=device)
    log_probs = None
    if plan.slot_rows:
        assert plan.likely is not None
        assert plan.log_probs is not None
        tokens.view(-1)[plan.targets] = plan.likely[:, 0].to(torch.int32)
        log_probs = LogprobsTensors(
            logprob_token_ids=torch.cat((plan.likely, plan.marks), dim=1).to(torch.int32),
            logprobs=plan.log_probs,
            selected_token_ranks=torch.ones(plan.slot_rows, dtype=torch.int64, device=device),
            cu_num_generated_tokens=plan.first_row,
        )
    return SamplerOutput(
        sampled_token_ids=tokens,
        logprobs_tensors=log_probs,
        num_nans=None,
        num_sampled=plan.sampled.to(torch.int32),
        num_rejected=plan.rejected.to(torch.int32),
    )


def _other_requests(plan: StepPlan, batch: Any) -> _OtherRequests:
    others, count = plan.others, batch.num_reqs
    logits = np.diff(batch.cu_num_logits_np[: count + 1])[others]
    queries = np.diff(batch.query_start_loc_np[: count + 1])[others]
    return _OtherRequests(
        num_reqs=len(others),
        num_draft_tokens=int(logits.sum()),
        idx_mapping=batch.idx_mapping[plan.others_at],
        idx_mapping_np=batch.idx_mapping_np[others],
        cu_num_logits_np=np.concatenate(([0], np.cumsum(logits))),
        query_start_loc=plan.others_start.to(torch.int32),
        query_start_loc_np=np.concatenate(([0], np.cumsum(queries))),
        num_scheduled_tokens=batch.num_scheduled_tokens[others],
        num_computed_prefill_tokens_np=batch.num_computed_prefill_tokens_np[others],
        prefill_len_np=batch.prefill_len_np[others],
    )


def _merge(mine: Any, theirs: Any, plan: StepPlan) -> Any:
    """Both outputs in the order of the batch."""
    at = plan.others_at
    width = max(mine.sampled_token_ids.shape[1], theirs.sampled_token_ids.shape[1])
    tokens = pad(mine.sampled_token_ids, (0, width - mine.sampled_token_ids.shape[1]))
    tokens[at, : theirs.sampled_token_ids.shape[1]] = theirs.sampled_token_ids.to(tokens.dtype)
    mine.num_sampled[at] = theirs.num_sampled.to(torch.int32)
    mine.num_rejected[at] = theirs.num_rejected.to(torch.int32)
    return SamplerOutput(
        sampled_token_ids=tokens,
        logprobs_tensors=_merge_log_probs(mine.logprobs_tensors, theirs.logprobs_tensors, plan),
        num_nans=None,
        num_sampled=mine.num_sampled,
        num_rejected=mine.num_rejected,
    )


def _merge_log_probs(mine: Any, theirs: Any, plan: StepPlan) -> Any:
    """The slots' rows first, then vLLM's; narrow rows are padded as vLLM pads them, with token 0 at minus infinity."""
    if theirs is None:
        return mine
    first = list(plan.first_row)
    for number, start in zip(plan.others.tolist(), theirs.cu_num_generated_tokens, strict=True):
        first[number] = plan.slot_rows + start
    if mine is None:
        return theirs._replace(cu_num_generated_tokens=first)
    width = max(mine.logprobs.shape[1], theirs.logprobs.shape[1])

    def joined(name: str, value: float) -> torch.Tensor:
        parts = (getattr(mine, name), getattr(theirs, name))
        kind = parts[0].dtype
        return torch.cat([pad(part.to(kind), (0, width - part.shape[1]), value=value) for part in parts])

    return LogprobsTensors(
        logprob_token_ids=joined("logprob_token_ids", 0),
        logprobs=joined("logprobs", float("-inf")),
        selected_token_ranks=torch.cat((mine.selected_token_ranks, theirs.selected_token_ranks)),
        cu_num_generated_tokens=first,
    )
