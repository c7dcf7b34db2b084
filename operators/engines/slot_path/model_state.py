"""The model state of the slot path: what the worker keeps of each request, and the hooks of a step."""

# ruff: noqa: PLR0917 (the hooks have vLLM's signatures)
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.config.compilation import CUDAGraphMode
from vllm.model_executor.models.diffusion_gemma import DiffusionGemmaModelState
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.attn_utils import build_attn_metadata

from slotstream.operators.engines.slot_path.attention_tiles import install_tiles
from slotstream.operators.engines.slot_path.eligible import slot_read
from slotstream.operators.engines.slot_path.host_kernels import install
from slotstream.operators.engines.slot_path.plan import ReadTable, StepPlans
from slotstream.operators.engines.slot_path.sampler import SlotReadSampler

__all__ = ["SlotReadModelState"]

_ONE_THREAD_BELOW = 1024
# Hidden size. A smaller model's products are so short that a second thread only waits: on a machine that also runs a
# broker, two threads for the packaged checkpoint were 20 times slower than one.


class SlotReadModelState(DiffusionGemmaModelState):  # type: ignore[misc]
    """vLLM's model state; slot reads live in a table on the host, and nothing is done request by request on the device.

    Raises:
        ValueError: the engine is spread over several GPUs, which the slot path does not support.
    """

    def __init__(self, vllm_config: Any, model: Any, encoder_cache: Any, device: torch.device) -> None:
        parallel = vllm_config.parallel_config
        if parallel.tensor_parallel_size != 1 or parallel.pipeline_parallel_size != 1:
            raise ValueError("the slot path reads on one GPU; set engine.slot_path: off for an engine that is spread")
        super().__init__(vllm_config, model, encoder_cache, device)
        states = self.diffusion_states
        self.table = ReadTable(states.max_num_reqs, states.canvas_length)
        self.plans = StepPlans()
        self._seeds: list[tuple[int, Any]] = []
        self._drafts: torch.Tensor | None = None  # the runner's tokens of every request's canvas; set with the sampler
        model.step_plans = self.plans
        if device.type == "cuda":
            install_tiles()
        if device.type == "cpu":
            install()
            if "OMP_NUM_THREADS" not in os.environ and model.config.get_text_config().hidden_size < _ONE_THREAD_BELOW:
                # vLLM has made torch.set_num_threads do nothing in this process; this is what stood behind that name.
                torch._C.set_num_threads(1)

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any] | None:
        stock, rejection = super().custom_sampler(sampler)
        self._drafts = sampler.req_states.draft_tokens
        return SlotReadSampler(stock, self.table, self.plans), rejection

    def add_request(self, req_index: int, new_req_data: Any) -> None:
        """A slot read's canvas is staged; any other request is vLLM's, which resets the row's device state."""
        read = slot_read(new_req_data.sampling_params)
        if read is None:
            super().add_request(req_index, new_req_data)
            return
        self._req_id_to_index[new_req_data.req_id] = req_index
        self.table.add(req_index, read)
        self._seeds.append((req_index, read.canvas))

    def remove_request(self, req_id: str) -> None:
        row = self._req_id_to_index.get(req_id)
        if row is None or not self.table.is_read[row]:
            super().remove_request(req_id)
            return
        del self._req_id_to_index[req_id]
        self.table.remove(row)

    def apply_staged_writes(self) -> None:
        """Seed the canvases of all new slot reads in one copy, and let them begin with their prompts (causally).

        The runner has cleared the rows before; nothing writes to them until the read is done, because vLLM's sampler,
        which copies canvases here, is only shown the other requests.
        """
        super().apply_staged_writes()
        if not self._seeds:
            return
        assert self._drafts is not None
        staged = np.zeros((len(self._seeds), 1 + self.table.canvas_length), np.int64)
        for at, (row, canvas) in enumerate(self._seeds):
            staged[at, 0] = row
            staged[at, 1 : 1 + len(canvas)] = canvas
        self._seeds.clear()
        on_device = async_tensor_h2d(staged, device=self.device)
        rows = on_device[:, 0]
        self._drafts[rows, : self.table.canvas_length] = on_device[:, 1:]
        self.diffusion_states.is_encoder_phase.index_fill_(0, rows, True)

    def preprocess_state(
        self, input_batch: Any, block_tables: Any, kv_cache_config: Any, num_computed_tokens: torch.Tensor
    ) -> None:
        """Plan the step. The one hook that dummy and capture runs skip, after the batch is laid out and before all else
        of the step, so that the rows whose hidden states are wanted can still be chosen here."""
        super().preprocess_state(input_batch, block_tables, kv_cache_config, num_computed_tokens)
        plan = self.table.plan(input_batch, self.device)
        self.plans.put(plan)
        if plan is not None:
            input_batch.logits_indices = plan.logits_indices

    def prepare_attn(
        self,
        input_batch: Any,
        cudagraph_mode: Any,
        block_tables: tuple[torch.Tensor, ...],
        slot_mappings: torch.Tensor,
        attn_groups: Any,
        kv_cache_config: Any,
        for_capture: bool = False,
        ubatch_idx: int = 0,
    ) -> dict[str, Any]:
        """A fused step has more sequences than requests; any other is vLLM's."""
        plan = self.plans.current
        if plan is None or plan.sequences is None:
            return super().prepare_attn(  # type: ignore[no-any-return]
                input_batch,
                cudagraph_mode,
                block_tables,
                slot_mappings,
                attn_groups,
                kv_cache_config,
                for_capture,
                ubatch_idx,
            )
        # A full graph replays batches of canvases alone; a step with a prompt in it never is one.
        assert cudagraph_mode != CUDAGraphMode.FULL
        rows = input_batch.idx_mapping[: input_batch.num_reqs]
        causal = self.diffusion_states.is_encoder_phase[rows].to(torch.int32)
        request = plan.sequences_on_device[0]
        return build_attn_metadata(  # type: ignore[no-any-return]
            attn_groups=attn_groups,
            num_tokens=input_batch.num_tokens,
            max_seq_len=self.max_model_len,
            block_tables=tuple(table[request] for table in block_tables),
            slot_mappings=slot_mappings,
            kv_cache_config=kv_cache_config,
            **plan.sequences.attention(plan.sequences_on_device, input_batch, causal),
        )

    def _apply_self_conditioning(
        self,
        decode_slots_np: NDArray[np.int64],
        decode_idx_np: NDArray[np.int64],
        query_start_loc_np: NDArray[np.int32],
        inputs_embeds: torch.Tensor,
        sc_embeds: torch.Tensor,
    ) -> None:
        """Before its first step a canvas has no prediction to condition on: vLLM feeds zeros through the block.

        The block is post_norm(embeds + down(gelu(gate(x)) * up(x))) with x = pre_norm(0) = 0, so that the whole sum is
        `embeds` itself: one normalisation over the canvases of all slot reads does the same.
        """
        plan = self.plans.current
        if plan is not None:
            if plan.slot_rows:
                rows = plan.canvas_rows
                inputs_embeds[rows] = self.model.self_conditioning.post_norm(inputs_embeds[rows])
            others = ~self.table.is_read[decode_slots_np]
            decode_slots_np, decode_idx_np = decode_slots_np[others], decode_idx_np[others]
        if len(decode_slots_np):
            super()._apply_self_conditioning(
                decode_slots_np, decode_idx_np, query_start_loc_np, inputs_embeds, sc_embeds
            )
