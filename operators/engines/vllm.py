"""The engine for work: one vLLM AsyncLLM, created, used and closed on one event-loop thread."""

import itertools
import logging
import signal
import time
from collections.abc import Sequence
from multiprocessing import resource_tracker
from typing import Any

from slotstream.operators.engines.capability import ModelFacts, model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.environment import installed_vllm, prepare_environment
from slotstream.operators.engines.probe import PROBE_READS, check_probe, default_probe
from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.read_loop import ReadLoop
from slotstream.operators.engines.slot_read import check_request, mark_groups, read_result, sampling_arguments
from slotstream.schemas.errors import EngineError, EngineNotCapable

__all__ = ["VllmEngine", "engine_arguments"]

_LOG = logging.getLogger(__name__)
_CPU_CACHE_MIB = 512


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
        info = facts.engine_info(name="vllm", version=vllm_version, path="stock")
        prepare_environment(on_cpu=on_cpu, offline=facts.local, start_timeout_s=config.start_timeout_s)
        arguments = engine_arguments(config, facts, on_cpu=on_cpu)
        super().__init__(lambda: _open(arguments, info), info)
        self.start(config.start_timeout_s)


def engine_arguments(config: EngineConfig, facts: ModelFacts, *, on_cpu: bool) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs under which stock vLLM reads every canvas whole.

    The scheduler serves running requests first and cuts the one that its token budget does not cover: a cut canvas is
    read in two parts, with wrong values and no error. Without chunked prefill a running request needs exactly one
    canvas, so a budget of `max_num_seqs` canvases cuts none; one whole prompt on top lets a waiting record in while all
    others read. A prompt is never split either, which is what makes a replay repeat to the last bit on a CPU.
    """
    budget = config.max_num_seqs * facts.canvas_length + facts.max_model_len
    kv_cache_mib = config.kv_cache_mib or (_CPU_CACHE_MIB if on_cpu else None)
    arguments: dict[str, Any] = {
        "model": facts.location,
        "dtype": "float32" if on_cpu and config.dtype == "auto" else config.dtype,
        "max_model_len": facts.max_model_len,
        "max_num_seqs": config.max_num_seqs,
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
    if on_cpu:
        # One block table for all kinds of attention: each costs interpreted kernels a request, a fifth of a read.
        arguments["disable_hybrid_kv_cache_manager"] = True
    if kv_cache_mib is not None:
        arguments["kv_cache_memory_bytes"] = kv_cache_mib << 20
    if config.attention_backend is not None and not on_cpu:
        arguments["attention_backend"] = config.attention_backend
    return arguments


async def _open(arguments: dict[str, Any], info: EngineInfo) -> "_VllmReader":
    if tuple(map(int, info.version.split(".")[:2])) < (0, 32):
        raise EngineNotCapable(f"vLLM {info.version} has no slot reads; install 0.32, as slotstream[cpu] and [gpu] do")
    _keep_interrupts_from_children()
    started = time.monotonic()
    _LOG.info("vllm %s: importing (about 20 s)", info.version)
    from vllm import AsyncEngineArgs  # noqa: PLC0415 (twenty seconds, and only after the environment is set)
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

    imported = time.monotonic()
    _LOG.info("vllm: imported in %.1f s; loading %s", imported - started, info.model)
    try:
        reader = _VllmReader(AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments)), info)
    except RuntimeError as error:
        raise EngineError(
            f"vLLM's engine process did not start ({error}); its messages on stderr say why. A script that starts an "
            "engine needs an `if __name__ == '__main__':` guard, because that process imports the script again"
        ) from error
    try:
        reader.check_settings(arguments)
        loaded = time.monotonic()
        _LOG.info("vllm: loaded %s in %.1f s; probing", info.model, loaded - imported)
        asked = default_probe(info)
        check_probe([await reader.read(asked) for _ in range(PROBE_READS)], info)
    except BaseException:
        reader.close()
        raise
    _LOG.info(
        "vllm: ready, probed in %.1f s (model %s, at most %d tokens, canvas at most %d, %d reads a step)",
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


class _VllmReader:
    """The `Reader` over one AsyncLLM."""

    def __init__(self, llm: Any, info: EngineInfo) -> None:
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.inputs import tokens_input  # noqa: PLC0415
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        self._llm = llm
        self._info = info
        self._names = map(str, itertools.count())
        self._params = SamplingParams
        self._prompt = tokens_input
        self._final_only = RequestOutputKind.FINAL_ONLY

    async def read(self, request: ReadRequest) -> ReadResult:
        check_request(request, self._info)
        groups = mark_groups(request)
        return read_result(request, [await self._answer(request, marks) for marks in groups])

    async def _answer(self, request: ReadRequest, marks: Sequence[int]) -> Any:
        params = self._params(**sampling_arguments(request, marks), output_kind=self._final_only, skip_clone=True)
        answer = None
        async for output in self._llm.generate(self._prompt(list(request.prompt_ids)), params, next(self._names)):
            answer = output.outputs[0].logprobs if output.outputs else None
        if answer is None:
            raise EngineError("vLLM ended a read without log-probabilities")
        return answer

    def check_settings(self, arguments: dict[str, Any]) -> None:
        """Compare the running engine with what was asked: vLLM's model hooks change settings without a word.

        Raises:
            EngineNotCapable: a setting that reads depend on was changed.
        """
        config = self._llm.vllm_config
        running = {
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "enable_chunked_prefill": config.scheduler_config.enable_chunked_prefill,
            "max_model_len": config.model_config.max_model_len,
            "diffusion_config": {"canvas_length": config.diffusion_config.canvas_length},
        }
        changed = [
            f"{name} from {arguments[name]} to {value}" for name, value in running.items() if value != arguments[name]
        ]
        if changed:
            raise EngineNotCapable(
                f"vLLM changed {', '.join(changed)}; slot reads are only safe with the settings asked for"
            )
        if config.model_config.get_vocab_size() != self._info.vocab_size:
            raise EngineNotCapable(
                f"vLLM serves a vocabulary of {config.model_config.get_vocab_size()} and the checkpoint says "
                f"{self._info.vocab_size}"
            )

    def failure(self) -> str | None:
        return "vLLM's engine process ended; its own log says why" if self._llm.errored else None

    def close(self) -> None:
        if self._llm.output_handler is not None:
            self._llm.output_handler.cancel()  # or it logs the end of the engine process as a failure
        self._llm.shutdown()
        self._llm = None  # its __del__ must run now: at interpreter exit it prints a TypeError
