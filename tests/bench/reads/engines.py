"""The engines that are compared: stock vLLM as it sets itself up, stock set up by slotstream, slotstream's own path."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from slotstream.operators.engines import vllm as hosted
from slotstream.operators.engines.capability import ModelFacts, model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.environment import installed_vllm, prepare_environment
from slotstream.operators.engines.protocol import Engine, EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.read_loop import ReadLoop
from slotstream.operators.engines.slot_read import mark_groups, read_result, sampling_arguments
from slotstream.operators.engines.vllm import VllmEngine, engine_arguments

__all__ = ["ENGINES", "PLUGIN_OFF", "kind", "open_engine"]

_LOG = logging.getLogger(__name__)

ENGINES = {
    "default": "stock vLLM as it configures itself for this model: 8 requests a step, chunked prefill",
    "stock": "stock vLLM as slotstream sets it up: 127 requests a step, no canvas cut; slotstream's own path off",
    "ours": "slotstream's own path",
}

PLUGIN_OFF: Mapping[str, Any] = {"slot_path": "off"}
"""Fields of EngineConfig that turn slotstream's own path off."""

# What vLLM is told of our own accord; all else of `engine_arguments` is tuning that "default" does without.
_NEEDED = (
    "model", "dtype", "max_model_len", "diffusion_config", "limit_mm_per_prompt", "skip_tokenizer_init",
    "enforce_eager", "gpu_memory_utilization", "load_format", "attention_backend", "kv_cache_memory_bytes",
    "disable_hybrid_kv_cache_manager", "disable_log_stats", "use_tqdm_on_load", "quantization",
)  # fmt: skip


def kind(name: str) -> str:
    """Which of `ENGINES` a name like ours-fp8 means."""
    return name.partition("-")[0]


def open_engine(name: str, config: EngineConfig, extra: Mapping[str, Any]) -> Engine:
    """Load one of `ENGINES`, with or without a suffix.

    Args:
        extra: arguments of vLLM's AsyncEngineArgs that EngineConfig has no field for; they replace slotstream's.
    """
    if kind(name) != "ours":
        config = config.model_copy(update=dict(PLUGIN_OFF))
    if kind(name) == "default":
        return _DefaultEngine(config, extra)
    if extra:
        # The one seam there is: the product itself takes no argument that it does not know.
        hosted.engine_arguments = _with_extra(engine_arguments, extra)
    return VllmEngine(config)


def _with_extra(make: Callable[..., dict[str, Any]], extra: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
    def arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**make(*args, **kwargs), **extra}

    return arguments


class _DefaultEngine(ReadLoop):
    """vLLM with its own settings for everything that may be left to it. Its reads may be wrong: that is measured."""

    def __init__(self, config: EngineConfig, extra: Mapping[str, Any]) -> None:
        facts = model_facts(config)
        version, on_cpu = installed_vllm()
        prepare_environment(on_cpu=on_cpu, offline=facts.local, start_timeout_s=config.start_timeout_s)
        every = engine_arguments(config, facts, on_cpu=on_cpu)
        arguments = {name: every[name] for name in _NEEDED if name in every} | dict(extra)
        info = _info(facts, version)
        super().__init__(lambda: _open(arguments, info), info)
        self.start(config.start_timeout_s)


def _info(facts: ModelFacts, version: str) -> EngineInfo:
    return facts.engine_info(name="vllm", version=version, path="stock, vLLM's own settings")


async def _open(arguments: dict[str, Any], info: EngineInfo) -> "_DefaultReader":
    started = time.monotonic()
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    scheduler = llm.vllm_config.scheduler_config
    _LOG.info(
        "vllm: loaded in %.1f s with its own settings: %d requests and %d tokens a step",
        time.monotonic() - started,
        scheduler.max_num_seqs,
        scheduler.max_num_batched_tokens,
    )
    return _DefaultReader(llm)


class _DefaultReader:
    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._names = map(str, itertools.count())

    async def read(self, request: ReadRequest) -> ReadResult:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        answers = []
        for marks in mark_groups(request):
            params = SamplingParams(
                **sampling_arguments(request, marks), output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True
            )
            async for output in self._llm.generate(tokens_input(list(request.prompt_ids)), params, next(self._names)):
                answers.append(output.outputs[0].logprobs)
        return read_result(request, answers)

    def failure(self) -> str | None:
        return "vLLM's engine process ended" if self._llm.errored else None

    def close(self) -> None:
        if self._llm.output_handler is not None:
            self._llm.output_handler.cancel()
        self._llm.shutdown()
        self._llm = None
