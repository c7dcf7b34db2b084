"""Which engine runs the reads, and how it is set up. The pipeline's configuration file holds this as `engine:`."""

import hashlib
import json
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from slotstream.operators.engines.quantization import PER_TENSOR_REASON

__all__ = ["PACKAGED_CHECKPOINT", "EngineConfig"]

PACKAGED_CHECKPOINT = Path(__file__).parent / "checkpoints" / "tickets"

_NOT_THE_ENGINES = {"max_in_flight", "read_timeout_s", "start_timeout_s"}
# What the operator does with the engine: two configurations that differ only here share one warm engine.


class EngineConfig(BaseModel):
    """One engine. The defaults are safe for stock vLLM 0.32; nothing here is read from the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["vllm", "transformers", "instant"] = Field(
        default="vllm",
        description="vllm: the engine for work. transformers: a slow reference for comparison. instant: a fake whose "
        "answers come from a hash, for load tests.",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of a DiffusionGemma checkpoint, or its hub id. Unset: the small checkpoint that ships with "
        "slotstream, which knows only the demo's decision schema.",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Number format of weights and activations. auto: float32 on a CPU, else the checkpoint's.",
    )
    quantization: Literal["none", "fp8_per_channel"] = Field(
        default="none",
        description="What the weights are made into as they are loaded; needs a GPU. fp8_per_channel: half the memory, "
        "on an H200 1.4 times the reads; check its answers against none on your own records. none: as the checkpoint "
        "is, which may be quantized itself: FP8 a channel or a block, NVFP4 on a Blackwell GPU, 4-bit weights. FP8 "
        "per tensor is refused: a record's answer would depend on its neighbours.",
    )
    max_model_len: int | None = Field(
        default=None,
        ge=64,
        description="Tokens that prompt and canvas may take together. Unset: what the checkpoint allows, at most 4096.",
    )
    canvas_length: int | None = Field(
        default=None,
        ge=4,
        le=256,
        description="Widest canvas that is served, tokens. Unset: the checkpoint's own, at most 64. A read takes only "
        "the width that its questions need.",
    )
    slot_path: Literal["auto", "two_steps", "off"] = Field(
        default="auto",
        description="Whether reads are computed at their slots alone, several times faster than by vLLM's own code and "
        "with the same answers. auto: yes, with the vLLM versions that it was tested with (0.32); with any other, "
        "vLLM's own code and a warning. two_steps: the same, but a prompt and its canvas never share a step of the "
        "engine. off: always vLLM's own code.",
    )
    max_num_seqs: int = Field(
        default=127,
        ge=1,
        le=1024,
        description="Reads that may share one engine step. Without the slot path at most 127 do: vLLM would silently "
        "turn 128 and more into 8 for this model.",
    )
    max_num_batched_tokens: int | None = Field(
        default=None,
        ge=64,
        description="Tokens of one engine step: at least one whole prompt, and without the slot path one prompt beside "
        "the canvases of all reads. Unset: just that, with the slot path at most 8192 and no less than a prompt.",
    )
    max_in_flight: int = Field(
        default=256,
        ge=1,
        description="Reads that the operator keeps in the engine at once; at the bound it waits for the oldest.",
    )
    gpu_memory_utilization: float = Field(
        default=0.65,
        gt=0,
        lt=1,
        description="Share of GPU memory for weights and cache. The rest is needed: stock vLLM keeps several float32 "
        "copies of canvas x vocabulary.",
    )
    kv_cache_mib: int | None = Field(
        default=None,
        ge=16,
        description="Size of the key-value cache, MiB. Unset: 512 on a CPU; on a GPU the rest of its share.",
    )
    attention_backend: Literal["FLASH_ATTN", "TRITON_ATTN"] | None = Field(
        default=None,
        description="vLLM's attention kernels on a GPU. Unset: TRITON_ATTN with the slot path, without it vLLM "
        "chooses. FlashInfer cannot serve this model.",
    )
    load_format: Literal["auto", "safetensors", "dummy"] = Field(
        default="auto", description="How weights are loaded. dummy: random weights, for benchmarks only."
    )
    enforce_eager: bool = Field(
        default=False,
        description="Skip compilation and graph capture on a GPU: starts minutes sooner, reads more slowly. A CPU is "
        "always eager.",
    )
    warm_up: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether batches of every shape are read before the first record. auto: on a GPU, at most three "
        "minutes, so that no record waits for a kernel to be compiled; a CPU compiles nothing. off: never.",
    )
    read_timeout_s: float = Field(
        default=60.0, gt=0, description="How long one read may take once it is the oldest in flight, seconds."
    )
    start_timeout_s: float = Field(
        default=900.0, gt=0, description="How long loading, compiling and the first read may take together, seconds."
    )

    @field_validator("slot_path", "warm_up", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: object) -> object:
        return "off" if value is False else value  # YAML reads a bare off as false

    @field_validator("quantization", mode="before")
    @classmethod
    def _not_per_tensor(cls, value: object) -> object:
        if value is None:
            return "none"
        if value in ("fp8", "fp8_per_tensor"):
            raise ValueError(f"{value} has one scale a tensor and is refused: {PER_TENSOR_REASON}; use fp8_per_channel")
        return value

    @model_validator(mode="after")
    def _only_vllm_quantizes(self) -> Self:
        if self.quantization != "none" and self.kind != "vllm":
            raise ValueError(f"quantization {self.quantization} is for kind vllm; kind {self.kind} has none")
        return self

    @property
    def model_folder(self) -> str:
        """The checkpoint's folder or hub id; the packaged checkpoint's folder when `model` is unset."""
        return self.model or str(PACKAGED_CHECKPOINT)

    @property
    def config_hash(self) -> str:
        """Key of the process's engine registry: equal for configurations that one engine can serve, 16 hex digits."""
        settings = self.model_dump(mode="json", exclude=_NOT_THE_ENGINES)
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
