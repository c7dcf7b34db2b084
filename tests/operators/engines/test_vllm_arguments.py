"""The settings under which stock vLLM reads every canvas whole; no engine is started here."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.engines.capability import ModelFacts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.vllm import engine_arguments

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
