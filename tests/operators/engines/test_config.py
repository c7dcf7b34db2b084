"""Engine configuration: what is refused, and which configurations share one engine."""

import pytest
from pydantic import ValidationError

from slotstream.operators.engines.config import EngineConfig


def test_every_field_says_what_it_is() -> None:
    assert all(field.description for field in EngineConfig.model_fields.values())


@pytest.mark.parametrize(
    "setting",
    [
        {"kind": "openai"},
        {"max_num_seqs": 1025},
        {"max_num_seqs": 0},
        {"canvas_length": 512},
        {"max_model_len": 10},
        {"gpu_memory_utilization": 1.0},
        {"attention_backend": "FLASHINFER"},
        {"quantization": "fp8"},
        {"quantization": "fp8_per_channel", "kind": "transformers"},
        {"quantization": "fp8_per_channel", "kind": "instant"},
        {"read_timeout_s": 0},
        {"model": ""},
    ],
)
def test_a_setting_that_cannot_work_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        EngineConfig.model_validate(setting)


def test_what_yaml_makes_of_off_and_of_nothing_is_understood() -> None:
    config = EngineConfig.model_validate({"slot_path": False, "warm_up": False, "quantization": None})
    assert (config.slot_path, config.warm_up, config.quantization) == ("off", "off", "none")
    with pytest.raises(ValidationError, match="slot_path"):
        EngineConfig.model_validate({"slot_path": True})


@pytest.mark.parametrize("name", ["fp8", "fp8_per_tensor"])
def test_one_scale_a_tensor_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValidationError, match=rf"{name} has one scale a tensor .* would depend on its neighbours"):
        EngineConfig.model_validate({"quantization": name})


def test_it_is_frozen() -> None:
    with pytest.raises(ValidationError):
        EngineConfig().max_num_seqs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "setting", [{"max_in_flight": 3}, {"read_timeout_s": 5.0}, {"start_timeout_s": 5.0}], ids=lambda s: next(iter(s))
)
def test_settings_of_the_operator_share_one_engine(setting: dict[str, object]) -> None:
    assert EngineConfig.model_validate(setting).config_hash == EngineConfig().config_hash


@pytest.mark.parametrize(
    "setting",
    [
        {"kind": "instant"},
        {"model": "x"},
        {"dtype": "bfloat16"},
        {"max_model_len": 64},
        {"max_num_seqs": 8},
        {"quantization": "fp8_per_channel"},
    ],
    ids=lambda s: next(iter(s)),
)
def test_settings_of_the_engine_ask_for_another_engine(setting: dict[str, object]) -> None:
    assert EngineConfig.model_validate(setting).config_hash != EngineConfig().config_hash
