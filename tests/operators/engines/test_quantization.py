"""Which quantized models are served and which are refused, by what their config.json says."""

from typing import Any, Literal

import pytest

from slotstream.operators.engines.quantization import PER_TENSOR_REASON, Quantization, choose_quantization
from slotstream.schemas.errors import ConfigError, EngineNotCapable

FLOAT8 = {"type": "float", "num_bits": 8}


def groups(inputs: dict[str, Any] | None, weights: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {
        "targets": ["Linear"],
        "weights": weights or {**FLOAT8, "strategy": "channel"},
        "input_activations": inputs,
    }
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


def choose(
    checkpoint: dict[str, Any] | None, setting: Literal["none", "fp8_per_channel"] = "none", *, on_cpu: bool = False
) -> Quantization:
    return choose_quantization(setting, checkpoint, model="m", on_cpu=on_cpu)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_nothing_is_quantized_unless_asked(on_cpu: bool) -> None:
    found = choose(None, on_cpu=on_cpu)
    assert (found.scheme, found.online, str(found)) == ("none", None, "not quantized")


def test_fp8_per_channel_is_made_by_vllm_as_it_loads() -> None:
    found = choose(None, "fp8_per_channel")
    assert (found.online, str(found)) == ("fp8_per_channel", "fp8_per_channel (made at loading)")


@pytest.mark.parametrize(
    ("checkpoint", "scheme"),
    [
        (groups({**FLOAT8, "strategy": "token", "dynamic": True}), "fp8_per_channel"),
        (groups({**FLOAT8, "strategy": "group", "group_size": 128, "dynamic": True}), "fp8_per_block"),
        (groups({**FLOAT8, "strategy": "group", "group_size": 32, "dynamic": True}), "mxfp8"),
        (groups({"type": "int", "num_bits": 8, "strategy": "token", "dynamic": True}), "weights only"),
        (groups(None), "weights only"),
        (groups(None, {"type": "int", "num_bits": 4, "strategy": "group"}), "weights only"),
        (groups({"type": "float", "num_bits": 4, "strategy": "tensor_group", "dynamic": "local"},
                {"type": "float", "num_bits": 4, "strategy": "tensor_group"}), "nvfp4"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "fp8_per_block"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, "fp8_per_channel"),
        ({"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"}, "fp8_per_block"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt_fp4", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "awq", "bits": 4}, "weights only"),
        ({"quant_method": "gptq", "bits": 4}, "weights only"),
    ],
    ids=str,
)  # fmt: skip
def test_a_quantized_checkpoint_is_served_as_it_is(checkpoint: dict[str, Any], scheme: str) -> None:
    found = choose(checkpoint)
    assert (found.scheme, found.online) == (scheme, None)
    assert str(found) == f"{scheme} (the checkpoint)"
    with pytest.raises(ConfigError, match="needs a GPU"):
        choose(checkpoint, on_cpu=True)
    with pytest.raises(ConfigError, match="is quantized already"):
        choose(checkpoint, "fp8_per_channel")


def test_of_several_groups_the_most_demanding_is_told() -> None:
    mixed = groups({**FLOAT8, "strategy": "token", "dynamic": True})
    mixed["config_groups"]["group_1"] = {"weights": {"type": "float", "num_bits": 4}, "input_activations": None}
    assert choose(mixed).scheme == "nvfp4"


@pytest.mark.parametrize(
    "checkpoint",
    [
        {"quant_method": "fp8", "activation_scheme": "dynamic"},
        {"quant_method": "fp8"},
        groups({**FLOAT8, "strategy": "tensor", "dynamic": True}),
        groups({**FLOAT8, "dynamic": True}),
        groups({"type": "int", "num_bits": 8, "strategy": "tensor", "dynamic": True}),
    ],
    ids=str,
)
def test_one_activation_scale_for_the_batch_is_refused_with_the_reason(checkpoint: dict[str, Any]) -> None:
    with pytest.raises(EngineNotCapable, match=PER_TENSOR_REASON):
        choose(checkpoint)


@pytest.mark.parametrize(
    "checkpoint",
    [
        {"quant_method": "fp8", "activation_scheme": "static"},
        {"quant_method": "modelopt", "quant_algo": "FP8"},
        groups({**FLOAT8, "strategy": "tensor", "dynamic": False}),
    ],
    ids=str,
)
def test_one_fixed_activation_scale_is_refused_with_another_reason(checkpoint: dict[str, Any]) -> None:
    with pytest.raises(EngineNotCapable, match=r"per tensor, which is refused: .* was fixed when it was made"):
        choose(checkpoint)


@pytest.mark.parametrize(
    "checkpoint",
    [
        {"quant_method": "quark"},
        {},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "modelopt"},
        {"quant_method": "compressed-tensors"},
        groups({"type": "int", "num_bits": 4, "strategy": "rows"}),
    ],
    ids=str,
)
def test_what_is_not_understood_is_refused_with_what_to_do(checkpoint: dict[str, Any]) -> None:
    with pytest.raises(EngineNotCapable, match=r"engine.quantization: fp8_per_channel"):
        choose(checkpoint)


def test_a_cpu_makes_no_fp8() -> None:
    with pytest.raises(ConfigError, match="needs a GPU"):
        choose(None, "fp8_per_channel", on_cpu=True)
