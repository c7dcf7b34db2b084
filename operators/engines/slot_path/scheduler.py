"""The scheduler of the slot path: a canvas is read whole or not in this step, and with the end of its prompt if it can.

vLLM's scheduler serves running requests in order and gives the last one what is left of the step's token budget. Half
a canvas is computed without the other half, and what it gives is wrong, without an error. Here such a canvas waits for
the next step, so that the budget may be smaller than all canvases together, and prompts may be split.

A slot read needs nothing from its prompt's step but the cache, and its canvas is known from the start: with the fused
step both run in one, and a read costs one step instead of two (`sequences` has the worker's half).
"""

from typing import Any

from vllm.v1.core.sched.diffusion_scheduler import DiffusionAsyncScheduler, DiffusionScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from slotstream.operators.engines.slot_path.eligible import slot_read
from slotstream.operators.engines.slot_path.names import FUSED

__all__ = ["slot_read_scheduler"]

_SHORTEST_TAIL = 2
# Tokens. A single prompt token beside a canvas looks to vLLM's runner like a decoding request, for which it has other
# code; such a read takes two steps.
_MEMORY = 0.95  # how much of the mean of past tails stays at each new one


class _WholeCanvases(Scheduler):  # type: ignore[misc]
    """Stands between vLLM's diffusion schedulers, which set every canvas to its request's width, and its base."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fuses = bool(self.vllm_config.additional_config.get(FUSED))
        config = self.scheduler_config
        self._budget: int = config.max_num_scheduled_tokens or config.max_num_batched_tokens
        self._mean_tail = self._mean_width = float(self.num_spec_tokens)
        if self._fuses:
            # Cache blocks for the canvas are allocated with the prompt's.
            self.num_lookahead_tokens = self.num_spec_tokens

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        left = self._defer_cut_canvases()
        # What the base class may give to prompts: the rest is for the canvases that end those prompts.
        self.max_num_scheduled_tokens = self._budget - self._room_for_canvases(left)
        try:
            return super().schedule(throttle_prefills)
        finally:
            self.max_num_scheduled_tokens = self._budget

    def _defer_cut_canvases(self) -> int:
        """Walk the running requests as the base class is about to, and hold back those canvases that it would cut.

        `next_decode_eligible_step` is the base class's own way to leave a request out: it counts the step up before it
        looks, so that two ahead of now means not this time. Preemption in between only makes room.

        Returns:
            Tokens of the budget that running requests leave.
        """
        left = self._budget
        for request in self.running:
            if left <= 0:
                return 0
            if self.current_step + 1 < request.next_decode_eligible_step:
                continue
            wanted = min(
                request.num_tokens_with_spec + request.num_output_placeholders - request.num_computed_tokens,
                self.max_model_len - request.num_computed_tokens,
            )
            if wanted > left and request.spec_token_ids:
                request.next_decode_eligible_step = self.current_step + 2
                continue
            left -= max(0, min(wanted, left))
        return int(left)

    def _room_for_canvases(self, left: int) -> int:
        """Tokens to keep for fused canvases: their share of what is left, by the tails and widths seen so far.

        The first prompt that waits must fit all the same, or nothing would ever move.
        """
        if not self._fuses or not self.waiting:
            return 0
        seats = min(len(self.waiting), max(0, self.max_num_running_reqs - len(self.running)))
        share = int(left * self._mean_width / (self._mean_tail + self._mean_width))
        first: int = self.waiting.peek_request().num_tokens
        wanted: int = min(share, seats * self.num_spec_tokens, left - first)
        return max(0, wanted)

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """The base class counts here what the step will compute: canvases that join it join before."""
        if self._fuses:
            self._fuse(scheduler_output)
        super()._update_after_schedule(scheduler_output)

    def _fuse(self, output: SchedulerOutput) -> None:
        """Schedule the canvas of every slot read whose prompt this step completes, while the budget lasts."""
        scheduled, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
        for name, tail in list(scheduled.items()):
            request = self.requests[name]
            if name in drafts or request.num_computed_tokens + tail != request.num_prompt_tokens:
                continue
            read = slot_read(request.sampling_params)
            if read is None or tail < _SHORTEST_TAIL or request.num_tokens != request.num_prompt_tokens:
                continue
            width = len(read.canvas)
            self._mean_tail += (1 - _MEMORY) * (tail - self._mean_tail)
            self._mean_width += (1 - _MEMORY) * (width - self._mean_width)
            if output.total_num_scheduled_tokens + width > self._budget:
                continue
            scheduled[name] = tail + width
            drafts[name] = [-1] * width
            output.total_num_scheduled_tokens += width


class _SyncScheduler(DiffusionScheduler, _WholeCanvases):  # type: ignore[misc]
    pass


class _AsyncScheduler(DiffusionAsyncScheduler, _WholeCanvases):  # type: ignore[misc]
    pass


def slot_read_scheduler(*, vllm_config: Any, **rest: Any) -> Scheduler:
    """Called by the engine's process as if it were a class: only there is it settled whether scheduling is
    asynchronous."""
    chosen = _AsyncScheduler if vllm_config.scheduler_config.async_scheduling else _SyncScheduler
    return chosen(vllm_config=vllm_config, **rest)
