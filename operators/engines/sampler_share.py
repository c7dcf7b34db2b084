"""Where stock vLLM's time goes: the share of a read that its sampler takes, and the log-probability kernels within.

On a CPU those kernels run in Triton's interpreter, once for every canvas position, and take most of the time: `make
accuracy` prints the share, because it is what a slot-read patch would save.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from slotstream.operators.engines.capability import model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.environment import installed_vllm, prepare_environment
from slotstream.operators.engines.protocol import ReadRequest
from slotstream.operators.engines.slot_read import mark_groups, sampling_arguments
from slotstream.operators.engines.vllm import engine_arguments

__all__ = ["SamplerShare", "sampler_share"]

_WARM_UP = 4  # reads before the clock starts: first calls build what later ones reuse


@dataclass(frozen=True, slots=True)
class SamplerShare:
    """reads: how many were timed, after warming up.  seconds: what they took together, without loading.

    sampler: share of `seconds` in vLLM's DiffusionSampler, 0 to 1.  log_probs: share in its log-probability kernels.
    """

    reads: int
    seconds: float
    sampler: float
    log_probs: float


def sampler_share(config: EngineConfig, requests: Sequence[ReadRequest], *, in_flight: int = 32) -> SamplerShare:
    """Read `requests` in a fresh process that holds engine and clock, so that the engine can be timed from within.

    Loads a second engine (about a minute). The calling script needs an `if __name__ == "__main__":` guard.

    Args:
        requests: real reads, at least 64 for a steady figure; of their marks, the first 128 are read.
    """
    facts = model_facts(config)
    _, on_cpu = installed_vllm()
    # Set before the process starts: it imports the caller's script first, and with it perhaps Triton, which looks once.
    prepare_environment(on_cpu=on_cpu, offline=facts.local, start_timeout_s=config.start_timeout_s)
    arguments = engine_arguments(config, facts, on_cpu=on_cpu)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure, arguments, tuple(requests), in_flight).result()


def _measure(arguments: dict[str, Any], requests: Sequence[ReadRequest], in_flight: int) -> SamplerShare:
    from vllm import EngineArgs  # noqa: PLC0415 (in the process that has the environment)
    from vllm.model_executor.models import diffusion_gemma  # noqa: PLC0415
    from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415

    spent = {"sampler": 0.0, "log_probs": 0.0}
    _time_calls(diffusion_gemma.DiffusionSampler, "__call__", spent, "sampler")
    _time_calls(diffusion_gemma, "compute_topk_scores", spent, "log_probs")
    engine = LLMEngine.from_engine_args(EngineArgs(**arguments), enable_multiprocessing=False)
    _read(engine, requests[:_WARM_UP], in_flight)
    spent.update(dict.fromkeys(spent, 0.0))
    started = time.perf_counter()
    _read(engine, requests, in_flight)
    seconds = time.perf_counter() - started
    return SamplerShare(len(requests), seconds, spent["sampler"] / seconds, spent["log_probs"] / seconds)


def _time_calls(owner: Any, name: str, spent: dict[str, float], key: str) -> None:
    call: Callable[..., Any] = getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            spent[key] += time.perf_counter() - started

    setattr(owner, name, timed)


def _read(engine: Any, requests: Sequence[ReadRequest], in_flight: int) -> None:
    from vllm import SamplingParams  # noqa: PLC0415
    from vllm.inputs import tokens_input  # noqa: PLC0415
    from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

    waiting: Iterator[tuple[int, ReadRequest]] = iter(enumerate(requests))
    reading = 0
    while True:
        while reading < in_flight and (following := next(waiting, None)) is not None:
            number, request = following
            params = SamplingParams(
                **sampling_arguments(request, mark_groups(request)[0]), output_kind=RequestOutputKind.FINAL_ONLY
            )
            engine.add_request(f"{time.monotonic_ns()}-{number}", tokens_input(list(request.prompt_ids)), params)
            reading += 1
        if not reading:
            return
        reading -= sum(output.finished for output in engine.step())
