"""What a checkpoint folder says about itself, and what is refused before anything is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from slotstream.operators.engines.capability import ARCHITECTURE, model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.schemas.errors import ConfigError, EngineNotCapable

MODEL: dict[str, Any] = {
    "architectures": [ARCHITECTURE],
    "canvas_length": 256,
    "text_config": {"max_position_embeddings": 131_072, "vocab_size": 1000},
}
GENERATION: dict[str, Any] = {
    "max_denoising_steps": 48,
    "t_min": 0.4,
    "t_max": 0.8,
    "stability_threshold": 1,
    "confidence_threshold": 0.005,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
}


def folder(path: Path, model: dict[str, Any] | None = None, generation: dict[str, Any] | None = None) -> str:
    (path / "config.json").write_text(json.dumps(MODEL if model is None else model))
    (path / "generation_config.json").write_text(json.dumps(GENERATION if generation is None else generation))
    return str(path)


def test_a_large_model_is_served_with_safe_limits(tmp_path: Path) -> None:
    facts = model_facts(EngineConfig(model=folder(tmp_path)))
    assert (facts.max_model_len, facts.canvas_length, facts.vocab_size) == (4096, 64, 1000)
    assert facts.local
    assert facts.name == tmp_path.name


def test_a_small_model_gives_its_own_limits(tmp_path: Path) -> None:
    small = {**MODEL, "canvas_length": 16, "text_config": {"max_position_embeddings": 256, "vocab_size": 9}}
    facts = model_facts(EngineConfig(model=folder(tmp_path, small)))
    assert (facts.max_model_len, facts.canvas_length) == (256, 16)


def test_the_configuration_overrides_the_limits(tmp_path: Path) -> None:
    facts = model_facts(EngineConfig(model=folder(tmp_path), max_model_len=8192, canvas_length=128))
    assert (facts.max_model_len, facts.canvas_length) == (8192, 128)


@pytest.mark.parametrize("field", [*GENERATION])
def test_a_missing_generation_field_is_named(tmp_path: Path, field: str) -> None:
    without = {name: value for name, value in GENERATION.items() if name != field}
    with pytest.raises(EngineNotCapable, match=f"generation_config.json lacks {field}"):
        model_facts(EngineConfig(model=folder(tmp_path, generation=without)))


@pytest.mark.parametrize("entropy_bound", [None, 0, -1])
def test_an_entropy_bound_must_be_positive(tmp_path: Path, entropy_bound: float | None) -> None:
    sampler = {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": entropy_bound}
    with pytest.raises(EngineNotCapable, match="entropy_bound"):
        model_facts(EngineConfig(model=folder(tmp_path, generation={**GENERATION, "sampler_config": sampler})))


@pytest.mark.parametrize("architectures", [["LlamaForCausalLM"], [], None])
def test_another_architecture_is_refused_with_what_to_do(tmp_path: Path, architectures: list[str] | None) -> None:
    with pytest.raises(EngineNotCapable, match=r"set engine.model to a DiffusionGemma"):
        model_facts(EngineConfig(model=folder(tmp_path, {**MODEL, "architectures": architectures})))


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineNotCapable, match=r"config.json cannot be read"):
        model_facts(EngineConfig(model=str(tmp_path)))


@pytest.mark.parametrize("content", ["[]", "{", "1"])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(EngineNotCapable, match=r"config.json"):
        model_facts(EngineConfig(model=str(tmp_path)))


def test_a_model_that_is_neither_folder_nor_fetchable_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"engine.model '/no/such/folder' is no folder"):
        model_facts(EngineConfig(model="/no/such/folder"))


def test_more_tokens_than_the_model_knows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 131072"):
        model_facts(EngineConfig(model=folder(tmp_path), max_model_len=200_000))


def test_a_canvas_that_leaves_no_prompt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leaves no room"):
        model_facts(EngineConfig(model=folder(tmp_path), max_model_len=64, canvas_length=64))


@pytest.mark.parametrize(
    ("text", "experts"),
    [
        ({"num_experts": 128, "moe_intermediate_size": 704}, (128, 704)),
        ({"num_experts": 8}, None),
        ({"num_experts": None, "moe_intermediate_size": 704}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_experts_of_a_model_are_known(
    tmp_path: Path, text: dict[str, int | None], experts: tuple[int, int] | None
) -> None:
    model = {**MODEL, "text_config": {**MODEL.get("text_config", {}), **text}}
    assert model_facts(EngineConfig(model=folder(tmp_path, model))).experts == experts


@pytest.mark.parametrize(
    "told",
    [
        {"quantization_config": {"quant_method": "fp8"}},
        {"compression_config": {"quant_method": "fp8"}},
        {"text_config": {**MODEL["text_config"], "quantization_config": {"quant_method": "fp8"}}},
    ],
    ids=str,
)
def test_a_quantized_checkpoint_says_so(tmp_path: Path, told: dict[str, Any]) -> None:
    facts = model_facts(EngineConfig(model=folder(tmp_path, {**MODEL, **told})))
    assert facts.quantization == {"quant_method": "fp8"}


def test_a_checkpoint_that_is_not_quantized_says_nothing(tmp_path: Path) -> None:
    assert model_facts(EngineConfig(model=folder(tmp_path))).quantization is None
