"""The engine for work: one vLLM AsyncLLM, created, used and closed on one event-loop thread."""

import logging
import os
import signal
import time
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from typing import Any

from slotstream.operators.engines.capability import ModelFacts, model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.environment import installed_vllm, prepare_environment
from slotstream.operators.engines.gpu import TUNED_FOLDER, GpuSettings, gpu_settings, served_gpu
from slotstream.operators.engines.probe import PROBE_READS, check_probe, default_probe
from slotstream.operators.engines.protocol import EngineInfo
from slotstream.operators.engines.quantization import Quantization, choose_quantization
from slotstream.operators.engines.read_loop import ReadLoop
from slotstream.operators.engines.slot_path.gate import FUSED_ATTENTION, ReadPath, choose_path
from slotstream.operators.engines.slot_path.names import ARCHITECTURE, FUSED
from slotstream.operators.engines.slot_path.self_check import check_gap
from slotstream.operators.engines.stats import ReadMeter
from slotstream.operators.engines.vllm_reader import VllmReader
from slotstream.operators.engines.vllm_stats import stat_logger
from slotstream.operators.engines.warm_up import warm_up, warm_up_batches
from slotstream.schemas.errors import ConfigError, EngineError, EngineNotCapable

__all__ = ["VllmEngine", "engine_arguments"]

_LOG = logging.getLogger(__name__)
_CPU_CACHE_MIB = 512
_SLOT_PATH_BUDGET = 8192  # tokens: more gained nothing on an H200, and every token has its share of activations
_STOCK_SEQS = 127  # vLLM's own code turns 128 and more into 8, without a word


class VllmEngine(ReadLoop):
    """A warm vLLM. The constructor returns when a probe read has finished: until then nothing proves that it can read.

    Raises:
        ConfigError: the model cannot be found.
        EngineNotCapable: no DiffusionGemma, generation_config.json lacks the sampler's fields, no vLLM or an old one.
        EngineError: it did not start.
    """

    def __init__(self, config: EngineConfig) -> None:
        facts = model_facts(config)
        vllm_version, on_cpu = installed_vllm()
        path = choose_path(config.slot_path, vllm_version, None if on_cpu else config.attention_backend)
        info = facts.engine_info(name="vllm", version=vllm_version, path=str(path))
        prepare_environment(on_cpu=on_cpu, offline=facts.local, start_timeout_s=config.start_timeout_s)
        arguments = engine_arguments(config, facts, on_cpu=on_cpu, path=path)
        start = _Start(config, facts, info, path, on_cpu)
        super().__init__(lambda: _open(start, arguments), info, start.meter)
        self.start(config.start_timeout_s)


def engine_arguments(
    config: EngineConfig, facts: ModelFacts, *, on_cpu: bool, path: ReadPath | None = None
) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs under which every canvas is read whole.

    Args:
        path: which code reads; unset: vLLM's own.

    The scheduler serves running requests first and cuts the one that its token budget does not cover: a cut canvas is
    read in two parts, with wrong values and no error. Without chunked prefill a running request needs exactly one
    canvas, so a budget of `max_num_seqs` canvases cuts none; one whole prompt on top lets a waiting record in while all
    others read. A prompt is never split either, which is what makes a replay repeat to the last bit on a CPU.
    """
    slot_path = path is not None and path.kind == "slot"
    max_num_seqs = config.max_num_seqs if slot_path else min(config.max_num_seqs, _STOCK_SEQS)
    budget = _token_budget(config, facts, max_num_seqs, slot_path=slot_path)
    kv_cache_mib = config.kv_cache_mib or (_CPU_CACHE_MIB if on_cpu else None)
    arguments: dict[str, Any] = {
        "model": facts.location,
        "dtype": "float32" if on_cpu and config.dtype == "auto" else config.dtype,
        "max_model_len": facts.max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": budget,
        "enable_chunked_prefill": False,
        "enable_prefix_caching": True,
        "diffusion_config": {"canvas_length": facts.canvas_length},
        "limit_mm_per_prompt": {"image": 0, "video": 0},  # text only: no image encoder is warmed or budgeted for
        "skip_tokenizer_init": True,  # the plan has the token ids
        "enforce_eager": on_cpu or config.enforce_eager,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "load_format": config.load_format,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    quantization = choose_quantization(config.quantization, facts.quantization, model=facts.name, on_cpu=on_cpu)
    if quantization.online is not None:
        arguments["quantization"] = quantization.online
    if slot_path:
        arguments["hf_overrides"] = {"architectures": [ARCHITECTURE]}
        arguments["max_logprobs"] = facts.vocab_size  # how many marks a slot may have
        arguments["additional_config"] = {FUSED: path is not None and path.fused}
    if on_cpu:
        # One block table for all kinds of attention: each costs interpreted kernels a request, a fifth of a read.
        arguments["disable_hybrid_kv_cache_manager"] = True
    if kv_cache_mib is not None:
        arguments["kv_cache_memory_bytes"] = kv_cache_mib << 20
    attention_backend = config.attention_backend or (FUSED_ATTENTION if slot_path else None)
    if attention_backend is not None and not on_cpu:
        arguments["attention_backend"] = attention_backend
    return arguments


def _token_budget(config: EngineConfig, facts: ModelFacts, max_num_seqs: int, *, slot_path: bool) -> int:
    """Tokens of one step. The slot path's scheduler never cuts a canvas, so that a step need not hold all of them."""
    all_of_it = max_num_seqs * facts.canvas_length + facts.max_model_len
    least = facts.max_model_len if slot_path else all_of_it
    asked = config.max_num_batched_tokens
    if asked is None:
        return min(all_of_it, max(_SLOT_PATH_BUDGET, facts.max_model_len)) if slot_path else all_of_it
    if asked < least:
        raise ConfigError(
            f"engine.max_num_batched_tokens is {asked} and the engine needs {least}: "
            + ("a whole prompt" if slot_path else "a whole prompt beside the canvases of engine.max_num_seqs reads")
        )
    return asked


@dataclass(frozen=True, slots=True)
class _Start:
    """What an engine is started from, beside vLLM's arguments."""

    config: EngineConfig
    facts: ModelFacts
    info: EngineInfo
    path: ReadPath
    on_cpu: bool
    meter: ReadMeter = field(default_factory=ReadMeter)

    @property
    def quantization(self) -> Quantization:
        facts = self.facts
        return choose_quantization(self.config.quantization, facts.quantization, model=facts.name, on_cpu=self.on_cpu)

    def gpu_settings(self, arguments: dict[str, Any]) -> GpuSettings:
        """What this machine's GPU adds to `arguments`. Imports vLLM."""
        if self.on_cpu:
            return GpuSettings()
        return gpu_settings(
            served_gpu(),
            self.quantization,
            experts=self.facts.experts,
            budget=arguments["max_num_batched_tokens"],
            eager=arguments["enforce_eager"],
            slot_path=self.path.kind == "slot",
            tuned_folder=os.environ.get(TUNED_FOLDER),
        )


async def _open(start: _Start, arguments: dict[str, Any]) -> VllmReader:
    info, path = start.info, start.path
    if tuple(map(int, info.version.split(".")[:2])) < (0, 32):
        raise EngineNotCapable(f"vLLM {info.version} has no slot reads; install 0.32, as slotstream[cpu] and [gpu] do")
    _keep_interrupts_from_children()
    started = time.monotonic()
    _LOG.log(logging.WARNING if path.doubtful else logging.INFO, "vllm %s: reads by the %s", info.version, path)
    _LOG.info("vllm %s: importing (about 20 s)", info.version)
    from vllm import AsyncEngineArgs  # noqa: PLC0415 (twenty seconds, and only after the environment is set)
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

    settings = start.gpu_settings(arguments)
    os.environ.update(settings.environment)  # the engine's process inherits it
    optional = "; ".join((f"weights {start.quantization}", *settings.reasons))
    imported = time.monotonic()
    _LOG.info("vllm: imported in %.1f s; loading %s; %s", imported - started, info.model, optional)
    try:
        given, loggers = AsyncEngineArgs(**{**settings.arguments, **arguments}), [stat_logger(start.meter)]
        # No name of ours but the reader's holds the AsyncLLM: it must be gone when the reader lets it go.
        reader = VllmReader(AsyncLLM.from_engine_args(given, stat_loggers=loggers), info, by_slots=path.kind == "slot")
    except RuntimeError as error:
        raise EngineError(
            f"vLLM's engine process did not start ({error}); its messages on stderr say why (settings that it can "
            f"do without: {optional}). A script that starts an engine needs an `if __name__ == '__main__':` guard, "
            "because that process imports the script again"
        ) from error
    try:
        reader.check_settings(arguments, quantized=start.quantization.scheme != "none")
        loaded = time.monotonic()
        _LOG.info("vllm: loaded %s in %.1f s; probing", info.model, loaded - imported)
        asked = default_probe(info)
        probed = check_probe([await reader.read(asked) for _ in range(PROBE_READS)], info)
        if path.kind == "slot":
            check_gap(probed, await reader.read_stock(asked), exact=reader.in_float32)
        if start.config.warm_up == "auto" and not start.on_cpu:  # a CPU compiles nothing
            in_flight = min(start.config.max_in_flight, arguments["max_num_seqs"])
            budget = arguments["max_num_batched_tokens"]
            await warm_up(reader, info, warm_up_batches(info, in_flight=in_flight, budget=budget))
    except BaseException:
        reader.close()
        raise
    _LOG.info(
        "vllm: ready after %.1f s, %.1f of them probing and warming up (model %s, at most %d tokens, canvas at most "
        "%d, %d reads a step)",
        time.monotonic() - started,
        time.monotonic() - loaded,
        info.model,
        info.max_model_len,
        info.canvas_length,
        arguments["max_num_seqs"],
    )
    return reader


def _keep_interrupts_from_children() -> None:
    """Block SIGINT in this thread, and so in the engine process that it spawns.

    Ctrl-C reaches the whole process group, and vLLM's engine process would stop at once, under the reads that the
    operator is just finishing. The resource tracker unblocks the signal when it first starts, so it starts before.
    """
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
