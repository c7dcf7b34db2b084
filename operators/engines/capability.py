"""What a checkpoint folder says about itself, read before anything heavy is imported or loaded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import EngineInfo
from slotstream.schemas.errors import ConfigError, EngineNotCapable

__all__ = ["ARCHITECTURE", "ModelFacts", "model_facts"]

ARCHITECTURE = "DiffusionGemmaForBlockDiffusion"

_GENERATION_FIELDS = ("max_denoising_steps", "t_min", "t_max", "stability_threshold", "confidence_threshold")
_LONGEST_BY_DEFAULT = 4096
_WIDEST_BY_DEFAULT = 64


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A checkpoint and the limits that this configuration gives it.

    location: folder or hub id, as the loaders take it.  name: short, for logs and records.  local: it is a folder.
    max_model_len, canvas_length: tokens, resolved from the configuration and the checkpoint.
    experts: how many a layer has, and their width; None: it has none.
    quantization: config.json's `quantization_config`; None: its weights are not quantized.
    """

    location: str
    name: str
    local: bool
    max_model_len: int
    canvas_length: int
    vocab_size: int
    experts: tuple[int, int] | None = None
    quantization: Mapping[str, Any] | None = None

    def engine_info(self, *, name: str, version: str, path: str) -> EngineInfo:
        """What an engine that serves this checkpoint within these limits says of itself."""
        return EngineInfo(
            name=name,
            version=version,
            path=path,
            model=self.name,
            max_model_len=self.max_model_len,
            canvas_length=self.canvas_length,
            vocab_size=self.vocab_size,
        )


def model_facts(config: EngineConfig) -> ModelFacts:
    """Read and check the checkpoint's config.json and generation_config.json.

    Raises:
        ConfigError: the model is neither a folder nor a hub id that can be fetched.
        EngineNotCapable: it is not a DiffusionGemma, or lacks a field that the engine needs.
    """
    location = config.model_folder
    folder = Path(location)
    model = _read_json(location, "config.json")
    architectures = model.get("architectures") or []
    if ARCHITECTURE not in architectures:
        raise EngineNotCapable(
            f"model {location!r} has architecture {', '.join(architectures) or 'none'} and slot reads need "
            f"{ARCHITECTURE}; set engine.model to a DiffusionGemma checkpoint"
        )
    _check_generation_config(location, _read_json(location, "generation_config.json"))
    text = model.get("text_config") or {}
    longest = int(text.get("max_position_embeddings", _LONGEST_BY_DEFAULT))
    widest = int(model.get("canvas_length") or _WIDEST_BY_DEFAULT)
    if config.max_model_len is not None and config.max_model_len > longest:
        raise ConfigError(
            f"engine.max_model_len is {config.max_model_len} and model {location!r} allows at most {longest} tokens"
        )
    canvas_length = config.canvas_length or min(widest, _WIDEST_BY_DEFAULT)
    max_model_len = config.max_model_len or min(longest, _LONGEST_BY_DEFAULT)
    if canvas_length >= max_model_len:
        raise ConfigError(
            f"engine.canvas_length ({canvas_length}) leaves no room for a prompt in engine.max_model_len "
            f"({max_model_len})"
        )
    return ModelFacts(
        location=location,
        name=folder.resolve().name if folder.is_dir() else location,
        local=folder.is_dir(),
        max_model_len=max_model_len,
        canvas_length=canvas_length,
        vocab_size=int(text.get("vocab_size", 0)),
        experts=_experts(text),
        # vLLM looks in the same places.
        quantization=model.get("quantization_config")
        or text.get("quantization_config")
        or model.get("compression_config"),
    )


def _experts(text: Mapping[str, Any]) -> tuple[int, int] | None:
    count, width = text.get("num_experts"), text.get("moe_intermediate_size")
    return (int(count), int(width)) if count and width else None


def _check_generation_config(location: str, generation: dict[str, Any]) -> None:
    sampler = generation.get("sampler_config") or {}
    missing = [field for field in _GENERATION_FIELDS if generation.get(field) is None]
    if "EntropyBound" not in str(sampler.get("_cls_name")) or not (sampler.get("entropy_bound") or 0) > 0:
        missing.append('sampler_config {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": <above 0>}')
    if missing:
        # vLLM would load everything and then die with a TypeError that names none of this.
        raise EngineNotCapable(
            f"model {location!r}: generation_config.json lacks {', '.join(missing)}; vLLM's diffusion sampler needs "
            "it. Add the field (see the model card of the checkpoint it was made from)"
        )


def _read_json(location: str, name: str) -> dict[str, Any]:
    folder = Path(location)
    path = folder / name if folder.is_dir() else _fetched(location, name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineNotCapable(f"model {location!r}: {name} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise EngineNotCapable(f"model {location!r}: {name} must be a JSON object, got {type(content).__name__}")
    return content


def _fetched(hub_id: str, name: str) -> Path:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 (only for hub ids)

    try:
        return Path(hf_hub_download(hub_id, name))
    except Exception as error:
        # The library raises many unrelated classes: bad id, no network, gated, no such file.
        raise ConfigError(
            f"engine.model {hub_id!r} is no folder, and {name} cannot be fetched from the hub "
            f"({type(error).__name__}); give a checkpoint's folder, or download it first"
        ) from error
