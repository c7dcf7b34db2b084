"""The entry point that vLLM calls in each of its processes (group `vllm.general_plugins`, see setup.py)."""

import os

from slotstream.operators.engines.lifetime import PARENT_VARIABLE
from slotstream.operators.engines.slot_path.names import ARCHITECTURE

__all__ = ["register"]


def register() -> None:
    """Tell vLLM of the slot path's architecture; nothing of vLLM's own is changed.

    Does nothing but in the process that slotstream named in the environment and in its children.
    """
    if os.environ.get(PARENT_VARIABLE) not in {str(os.getpid()), str(os.getppid())}:
        return
    from vllm.model_executor.models import ModelRegistry  # noqa: PLC0415 (only where a vLLM runs)
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP  # noqa: PLC0415

    from slotstream.operators.engines.slot_path.config_hook import SlotReadConfig  # noqa: PLC0415

    # By name, so that the front end imports no model code; the engine's process does.
    ModelRegistry.register_model(ARCHITECTURE, "slotstream.operators.engines.slot_path.model:SlotReadDiffusionGemma")
    MODELS_CONFIG_MAP[ARCHITECTURE] = SlotReadConfig
