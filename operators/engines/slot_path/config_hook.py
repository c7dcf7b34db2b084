"""What vLLM does to an engine's settings for this model, without its silent cap and with our scheduler."""

from typing import Any

from vllm.model_executor.models.config import DiffusionGemmaModelForBlockDiffusionConfig

__all__ = ["SlotReadConfig"]

_SCHEDULER = "slotstream.operators.engines.slot_path.scheduler.slot_read_scheduler"


class SlotReadConfig(DiffusionGemmaModelForBlockDiffusionConfig):  # type: ignore[misc]
    """Keeps `max_num_seqs`, and names the scheduler.

    vLLM turns 128 and more into 8, because its sampler holds float32 copies of canvas x vocabulary for every request.
    The slot path holds a bounded chunk of slot rows. A canvas that is generated or constrained still costs what it
    costs in vLLM's sampler, which tiles it by the memory that is free.
    """

    @classmethod
    def verify_and_update_config(cls, vllm_config: Any) -> None:
        asked = vllm_config.scheduler_config.max_num_seqs
        super().verify_and_update_config(vllm_config)
        vllm_config.scheduler_config.max_num_seqs = asked
        vllm_config.scheduler_config.scheduler_cls = _SCHEDULER
