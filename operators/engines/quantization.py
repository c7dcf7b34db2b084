"""Which number formats a model is served in, and which are refused because of what they do to a record's answer.

An activation has to be scaled into the format's range. With one scale a token, or a block of a token, a read's values
depend on the read. With one scale for the whole tensor they depend on every other read of the step, and on how far the
batch was padded: the same record gets other answers among other neighbours, and a replay other labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slotstream.schemas.errors import ConfigError, EngineNotCapable

__all__ = ["PER_TENSOR_REASON", "Quantization", "choose_quantization"]

_Scheme = Literal["none", "fp8_per_channel", "fp8_per_block", "mxfp8", "nvfp4", "weights only"]

PER_TENSOR_REASON = (
    "one activation scale covers the whole batch, so a record's answer would depend on its neighbours, and a replay "
    "would give other labels"
)
_STATIC_REASON = (
    "its activations share one scale a tensor that was fixed when it was made: what exceeds it is cut off, and how "
    "much that moves an answer is not tested"
)
_ADVICE = "serve the unquantized checkpoint with engine.quantization: fp8_per_channel"

_WEIGHTS_ONLY = {"awq", "gptq"}  # activations stay in 16 bits
_MODELOPT: Mapping[str, _Scheme] = {
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_per_channel",
    "FP8_PB_WO": "fp8_per_block",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
}
_BY_DEMAND: tuple[_Scheme, ...] = ("nvfp4", "fp8_per_channel", "mxfp8", "fp8_per_block", "weights only")


@dataclass(frozen=True, slots=True)
class Quantization:
    """scheme: what the model computes in.  of_checkpoint: its weights are so already, else vLLM makes them so."""

    scheme: _Scheme
    of_checkpoint: bool = False

    @property
    def online(self) -> str | None:
        """vLLM's `quantization` argument; None when it has nothing to make."""
        return None if self.of_checkpoint or self.scheme == "none" else self.scheme

    def __str__(self) -> str:
        if self.scheme == "none":
            return "not quantized"
        return f"{self.scheme} ({'the checkpoint' if self.of_checkpoint else 'made at loading'})"


def choose_quantization(
    setting: Literal["none", "fp8_per_channel"], checkpoint: Mapping[str, Any] | None, *, model: str, on_cpu: bool
) -> Quantization:
    """What `engine.quantization` and a checkpoint's own `quantization_config` come to.

    Args:
        checkpoint: config.json's `quantization_config`; None when it has none.
        model: how messages call it.

    Raises:
        ConfigError: both quantize, or there is no GPU.
        EngineNotCapable: the checkpoint's format is refused; the message says why.
    """
    if checkpoint is None:
        if setting == "none":
            return Quantization("none")
        if on_cpu:
            raise ConfigError(f"engine.quantization is {setting}, which needs a GPU; vLLM's CPU build is installed")
        return Quantization(setting)
    found = _of_checkpoint(checkpoint, model)
    if setting != "none":
        raise ConfigError(
            f"engine.quantization is {setting} and model {model!r} is quantized already ({found.scheme}); set it to "
            "none"
        )
    if on_cpu:
        raise ConfigError(f"model {model!r} is quantized ({found.scheme}), which needs a GPU")
    return found


def _of_checkpoint(config: Mapping[str, Any], model: str) -> Quantization:
    method = str(config.get("quant_method") or "").lower()
    if method in _WEIGHTS_ONLY:
        return Quantization("weights only", of_checkpoint=True)
    if method == "fp8":
        if config.get("weight_block_size"):
            return Quantization("fp8_per_block", of_checkpoint=True)
        raise _per_tensor(model, static=config.get("activation_scheme") == "static")
    if method == "compressed-tensors":
        return _of_compressed_tensors(config, model)
    if method.startswith("modelopt"):
        return _of_modelopt(config, model)
    raise EngineNotCapable(
        f"model {model!r} is quantized by {method or 'an unnamed method'!r}, and slotstream cannot tell whether its "
        f"activations share one scale a batch; {_ADVICE}"
    )


def _of_compressed_tensors(config: Mapping[str, Any], model: str) -> Quantization:
    """llm-compressor's format: groups of layers, each with what its weights and its inputs are scaled by."""
    groups = [group for group in (config.get("config_groups") or {}).values() if isinstance(group, Mapping)]
    schemes = {_of_group(group, model) for group in groups}
    if not schemes:
        raise EngineNotCapable(f"model {model!r}: its quantization_config has no config_groups; {_ADVICE}")
    # With several, the one that asks most of the GPU is told; each of them is allowed.
    return Quantization(min(schemes, key=_BY_DEMAND.index), of_checkpoint=True)


def _of_group(group: Mapping[str, Any], model: str) -> _Scheme:
    weights, inputs = group.get("weights") or {}, group.get("input_activations") or {}
    if weights.get("type") == "float" and weights.get("num_bits") == 4:
        return "nvfp4"  # a scale for each 16 values, under one of the tensor that was fixed when it was made
    if not inputs:
        return "weights only"
    strategy, dynamic = inputs.get("strategy"), inputs.get("dynamic")
    if strategy in (None, "tensor"):
        raise _per_tensor(model, static=not dynamic)
    if inputs.get("type") == "float" and inputs.get("num_bits") == 8:
        if strategy == "token":
            return "fp8_per_channel"
        return "mxfp8" if inputs.get("group_size") == 32 else "fp8_per_block"
    if strategy == "token":
        return "weights only"  # 8-bit whole numbers with a scale a token: neighbours do not matter either
    raise EngineNotCapable(
        f"model {model!r}: its activations are quantized by the strategy {strategy!r}, which slotstream does not know; "
        f"{_ADVICE}"
    )


def _of_modelopt(config: Mapping[str, Any], model: str) -> Quantization:
    inner = config.get("quantization")
    algorithm = str((inner if isinstance(inner, Mapping) else config).get("quant_algo") or "").upper()
    if algorithm == "FP8":
        raise _per_tensor(model, static=True)
    if algorithm in _MODELOPT:
        return Quantization(_MODELOPT[algorithm], of_checkpoint=True)
    raise EngineNotCapable(
        f"model {model!r} is quantized by ModelOpt's {algorithm or 'unnamed algorithm'!r}, and slotstream cannot tell "
        f"whether its activations share one scale a batch; {_ADVICE}"
    )


def _per_tensor(model: str, *, static: bool) -> EngineNotCapable:
    reason = _STATIC_REASON if static else PER_TENSOR_REASON
    return EngineNotCapable(f"model {model!r} is quantized per tensor, which is refused: {reason}; {_ADVICE}")
