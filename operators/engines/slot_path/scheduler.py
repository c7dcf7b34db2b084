"""The scheduler of the slot path: a canvas is read whole or not in this step.

vLLM's scheduler serves running requests in order and gives the last one what is left of the step's token budget. Half
a canvas is computed without the other half, and what it gives is wrong, without an error. Here such a canvas waits for
the next step, so that the budget may be smaller than all canvases together, and prompts may be split.
"""

from typing import Any

from vllm.v1.core.sched.diffusion_scheduler import DiffusionAsyncScheduler, DiffusionScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

__all__ = ["slot_read_scheduler"]


class _WholeCanvases(Scheduler):  # type: ignore[misc]
    """Stands between vLLM's diffusion schedulers, which set every canvas to its request's width, and its base."""

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        self._defer_cut_canvases()
        return super().schedule(throttle_prefills)

    def _defer_cut_canvases(self) -> None:
        """Walk the running requests as the base class is about to, and hold back those canvases that it would cut.

        `next_decode_eligible_step` is the base class's own way to leave a request out: it counts the step up before it
        looks, so that two ahead of now means not this time. Preemption in between only makes room.
        """
        left = self.max_num_scheduled_tokens
        for request in self.running:
            if left <= 0:
                return
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


class _SyncScheduler(DiffusionScheduler, _WholeCanvases):  # type: ignore[misc]
    pass


class _AsyncScheduler(DiffusionAsyncScheduler, _WholeCanvases):  # type: ignore[misc]
    pass


def slot_read_scheduler(*, vllm_config: Any, **rest: Any) -> Scheduler:
    """Called by the engine's process as if it were a class: only there is it settled whether scheduling is
    asynchronous."""
    chosen = _AsyncScheduler if vllm_config.scheduler_config.async_scheduling else _SyncScheduler
    return chosen(vllm_config=vllm_config, **rest)
