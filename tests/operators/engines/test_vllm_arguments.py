"""The settings under which stock vLLM reads every canvas whole; no engine is started here."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.engines.capability import ModelFacts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.slot_path.gate import ReadPath
from slotstream.operators.engines.vllm import engine_arguments
from slotstream.schemas.errors import ConfigError, EngineNotCapable

FACTS = ModelFacts("/models/m", "m", local=True, max_model_len=4096, canvas_length=64, vocab_size=262_144)


def test_importing_the_module_does_not_import_vllm() -> None:
    code = "import sys, slotstream.operators.engines.vllm; print({'vllm', 'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"


@given(st.integers(1, 127), st.integers(4, 256), st.integers(64, 131_072))
def test_the_token_budget_holds_every_running_canvas_and_a_whole_prompt(seqs: int, canvas: int, length: int) -> None:
    facts = ModelFacts("m", "m", local=False, max_model_len=length, canvas_length=canvas, vocab_size=9)
    arguments = engine_arguments(EngineConfig(max_num_seqs=seqs), facts, on_cpu=False)
    assert arguments["max_num_batched_tokens"] - seqs * canvas >= length
    assert arguments["max_num_seqs"] == seqs
    assert arguments["enable_chunked_prefill"] is False


SLOT_PATH = ReadPath("slot", "a test", fused=True)


@pytest.mark.parametrize(
    ("seqs", "asked", "path", "budget"),
    [
        (8, None, SLOT_PATH, 8 * 64 + 4096),
        (256, None, SLOT_PATH, 8192),
        (256, 5000, SLOT_PATH, 5000),
        (100, None, None, 100 * 64 + 4096),
        (100, 20_000, None, 20_000),
    ],
)
def test_the_slot_path_needs_no_step_that_holds_every_canvas(
    seqs: int, asked: int | None, path: ReadPath | None, budget: int
) -> None:
    config = EngineConfig(max_num_seqs=seqs, max_num_batched_tokens=asked)
    assert engine_arguments(config, FACTS, on_cpu=False, path=path)["max_num_batched_tokens"] == budget


@pytest.mark.parametrize(("asked", "path"), [(4000, SLOT_PATH), (10_000, None)])
def test_a_step_that_is_too_small_is_refused(asked: int, path: ReadPath | None) -> None:
    config = EngineConfig(max_num_seqs=127, max_num_batched_tokens=asked)
    with pytest.raises(ConfigError, match=f"max_num_batched_tokens is {asked} and the engine needs"):
        engine_arguments(config, FACTS, on_cpu=False, path=path)


@pytest.mark.parametrize(("path", "seqs"), [(SLOT_PATH, 300), (None, 127)])
def test_only_the_slot_path_takes_more_reads_than_vllm_caps(path: ReadPath | None, seqs: int) -> None:
    assert engine_arguments(EngineConfig(max_num_seqs=300), FACTS, on_cpu=False, path=path)["max_num_seqs"] == seqs


@pytest.mark.parametrize(("asked", "backend"), [(None, "TRITON_ATTN"), ("FLASH_ATTN", "FLASH_ATTN")])
def test_the_slot_path_is_an_architecture_of_its_own(asked: Any, backend: str) -> None:
    arguments = engine_arguments(EngineConfig(attention_backend=asked), FACTS, on_cpu=False, path=SLOT_PATH)
    assert arguments["hf_overrides"] == {"architectures": ["SlotReadDiffusionGemmaForBlockDiffusion"]}
    assert arguments["additional_config"] == {"slotstream_fused": True}
    assert arguments["attention_backend"] == backend


@pytest.mark.parametrize(
    ("asked", "on_cpu", "dtype"),
    [("auto", True, "float32"), ("auto", False, "auto"), ("bfloat16", True, "bfloat16"), ("float32", False, "float32")],
)
def test_a_cpu_reads_in_float32_unless_told_otherwise(asked: str, on_cpu: bool, dtype: str) -> None:
    config = EngineConfig.model_validate({"dtype": asked})
    assert engine_arguments(config, FACTS, on_cpu=on_cpu)["dtype"] == dtype


@pytest.mark.parametrize(
    ("kv_cache_mib", "on_cpu", "expected"),
    [(None, True, 512 << 20), (None, False, None), (64, True, 64 << 20), (64, False, 64 << 20)],
)
def test_the_cache_has_a_size_on_a_cpu_and_a_share_on_a_gpu(
    kv_cache_mib: int | None, on_cpu: bool, expected: int | None
) -> None:
    arguments = engine_arguments(EngineConfig(kv_cache_mib=kv_cache_mib), FACTS, on_cpu=on_cpu)
    assert arguments.get("kv_cache_memory_bytes") == expected
    assert arguments["gpu_memory_utilization"] == 0.65


def test_only_a_gpu_compiles_and_chooses_attention_kernels() -> None:
    config = EngineConfig(attention_backend="TRITON_ATTN")
    on_gpu, on_cpu = (engine_arguments(config, FACTS, on_cpu=where) for where in (False, True))
    assert (on_gpu["enforce_eager"], on_gpu["attention_backend"]) == (False, "TRITON_ATTN")
    assert on_cpu["enforce_eager"] is True
    assert "attention_backend" not in on_cpu


def test_the_prefix_is_cached_and_nothing_but_text_is_served() -> None:
    arguments = engine_arguments(EngineConfig(), FACTS, on_cpu=True)
    assert arguments["enable_prefix_caching"] is True
    assert arguments["limit_mm_per_prompt"] == {"image": 0, "video": 0}
    assert arguments["diffusion_config"] == {"canvas_length": 64}
    assert (arguments["model"], arguments["max_model_len"]) == ("/models/m", 4096)


def test_vllm_is_told_what_to_make_of_the_weights_and_nothing_of_what_they_are() -> None:
    plain, online = EngineConfig(), EngineConfig(quantization="fp8_per_channel")
    of_checkpoint = replace(FACTS, quantization={"quant_method": "modelopt", "quant_algo": "NVFP4"})
    assert "quantization" not in engine_arguments(plain, FACTS, on_cpu=False)
    assert engine_arguments(online, FACTS, on_cpu=False)["quantization"] == "fp8_per_channel"
    assert "quantization" not in engine_arguments(plain, of_checkpoint, on_cpu=False)


def test_a_refused_format_is_refused_before_vllm_is_imported() -> None:
    per_tensor = replace(FACTS, quantization={"quant_method": "fp8", "activation_scheme": "dynamic"})
    with pytest.raises(EngineNotCapable, match="would depend on its neighbours"):
        engine_arguments(EngineConfig(), per_tensor, on_cpu=False)
    with pytest.raises(ConfigError, match="needs a GPU"):
        engine_arguments(EngineConfig(quantization="fp8_per_channel"), FACTS, on_cpu=True)
