"""The model class of the slot path: vLLM's DiffusionGemma, which unembeds only the slot rows of slot reads."""

from typing import Any

import torch
from vllm.model_executor.models.diffusion_gemma import DiffusionGemmaForConditionalGeneration

from slotstream.operators.engines.slot_path.statistics import chunk_rows, mark_log_probs

__all__ = ["SlotReadDiffusionGemma"]


class SlotReadDiffusionGemma(DiffusionGemmaForConditionalGeneration):  # type: ignore[misc]
    """Weights, layers and forward pass are vLLM's. `step_plans` is set by the model state."""

    @staticmethod
    def get_model_state_cls() -> type:
        from slotstream.operators.engines.slot_path.model_state import SlotReadModelState  # noqa: PLC0415

        return SlotReadModelState

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Logits of the rows that are not slots; the slots' statistics go into the step's plan.

        The runner hands over the hidden states of the rows that the plan named: first the slots, then the canvases of
        all other requests. Without a pending plan (profiling, prompt log-probabilities) this is vLLM's own method.
        """
        plans: Any = getattr(self, "step_plans", None)
        plan = plans.take_for_logits() if plans is not None else None
        if plan is None:
            return super().compute_logits(hidden_states)  # type: ignore[no-any-return]
        slots, others = hidden_states[: plan.slot_rows], hidden_states[plan.slot_rows :]
        if plan.slot_rows:
            self._read_slots(slots, plan)
        if others.shape[0]:
            return super().compute_logits(others)  # type: ignore[no-any-return]
        return hidden_states.new_empty((0, self.config.get_text_config().vocab_size), dtype=torch.float32)

    def _read_slots(self, hidden_states: torch.Tensor, plan: Any) -> None:
        """Fill in the plan's log-probabilities and most likely tokens, a bounded number of rows at a time.

        Slot reads are unconstrained: always the full vocabulary, whatever allowed set the other requests share.
        """
        rows = chunk_rows(self.config.get_text_config().vocab_size)
        likely, mark_values = [], []
        for start in range(0, plan.slot_rows, rows):
            logits = self._slot_logits(hidden_states[start : start + rows])
            best = logits.argmax(dim=1, keepdim=True)
            likely.append(best)
            columns = torch.cat((best, plan.marks[start : start + rows]), dim=1)
            mark_values.append(mark_log_probs(logits, columns)[0])
        plan.likely = torch.cat(likely)
        plan.log_probs = torch.cat(mark_values)

    def _slot_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """As vLLM computes them: product, then the soft cap in float32. In place, where vLLM's compiled function would
        be compiled anew when a step has a single slot, in the middle of serving."""
        logits: torch.Tensor = self.logits_processor(self.lm_head, hidden_states).float()
        cap = self.final_logit_softcapping
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)
