"""What a running vLLM is compared with before it is trusted. A plain object stands for vLLM's configuration."""

from types import SimpleNamespace
from typing import Any

import pytest

from slotstream.operators.engines.protocol import EngineInfo
from slotstream.operators.engines.vllm_reader import VllmReader
from slotstream.schemas.errors import EngineNotCapable

ASKED: dict[str, Any] = {
    "max_num_seqs": 127,
    "max_num_batched_tokens": 8192,
    "enable_chunked_prefill": False,
    "max_model_len": 4096,
    "diffusion_config": {"canvas_length": 64},
}


class Unopened(VllmReader):
    """A reader over a configuration alone: the real one imports vLLM."""

    def __init__(self, *, quantization: str | None = None, vocab_size: int = 1000, **changed: Any) -> None:
        running = {**ASKED, **changed}
        config = SimpleNamespace(
            scheduler_config=SimpleNamespace(**running),
            model_config=SimpleNamespace(
                max_model_len=running["max_model_len"], quantization=quantization, get_vocab_size=lambda: vocab_size
            ),
            diffusion_config=SimpleNamespace(**running["diffusion_config"]),
        )
        self._llm = SimpleNamespace(vllm_config=config)
        self._info = EngineInfo("vllm", "0.32.0", "slot path", "m", 4096, 64, 1000)


def test_an_engine_that_runs_as_asked_is_trusted() -> None:
    Unopened().check_settings(ASKED, quantized=False)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"max_num_seqs": 8}, "max_num_seqs from 127 to 8"),
        ({"max_num_batched_tokens": 2048}, "max_num_batched_tokens from 8192 to 2048"),
        ({"enable_chunked_prefill": True}, "enable_chunked_prefill from False to True"),
        ({"max_model_len": 64}, "max_model_len from 4096 to 64"),
        ({"diffusion_config": {"canvas_length": 256}}, "'canvas_length': 256"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_setting_that_vllm_changed_is_named(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(EngineNotCapable, match=f"vLLM changed .*{told}"):
        Unopened(**changed).check_settings(ASKED, quantized=False)


def test_another_vocabulary_is_refused() -> None:
    with pytest.raises(EngineNotCapable, match="vocabulary of 1024 and the checkpoint says 1000"):
        Unopened(vocab_size=1024).check_settings(ASKED, quantized=False)


def test_a_model_that_is_quantized_unseen_is_refused() -> None:
    """vLLM also looks into a file beside config.json, which nothing has checked."""
    with pytest.raises(EngineNotCapable, match=r"quantized \(modelopt\) where its config.json says nothing"):
        Unopened(quantization="modelopt").check_settings(ASKED, quantized=False)


@pytest.mark.parametrize(("quantized", "asked"), [(True, {}), (False, {"quantization": "fp8_per_channel"})], ids=str)
def test_a_model_that_is_quantized_as_known_is_trusted(quantized: bool, asked: dict[str, str]) -> None:
    Unopened(quantization="fp8_per_channel").check_settings({**ASKED, **asked}, quantized=quantized)
