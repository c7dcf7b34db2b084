"""The names by which vLLM, the engine's process and the operator know the slot path."""

__all__ = ["ARCHITECTURE", "FUSED", "MARKS_ARG", "SLOTS_ARG"]

ARCHITECTURE = "SlotReadDiffusionGemmaForBlockDiffusion"
"""An engine that asks for this architecture is on the slot path; vLLM's own name stays vLLM's own code."""

FUSED = "slotstream_fused"
"""Key of vLLM's additional_config: a prompt's end and its canvas may run in one step."""

SLOTS_ARG = "slotstream_slots"
"""Key of SamplingParams.extra_args: ascending canvas positions to read."""

MARKS_ARG = "slotstream_marks"
"""Key of SamplingParams.extra_args: for each slot, the token ids whose log-probabilities are wanted; any number."""
