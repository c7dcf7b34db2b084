"""What an engine is told of the GPU that it runs on: pure but for `served_gpu`, which asks vLLM."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotstream.operators.engines.quantization import Quantization
from slotstream.schemas.errors import EngineNotCapable

__all__ = ["TILES", "TUNED_FOLDER", "Gpu", "GpuSettings", "capture_sizes", "gpu_settings", "served_gpu"]

_LOG = logging.getLogger(__name__)

TILES = Path(__file__).parent / "tiles"
"""Tile sizes of vLLM's expert kernels, one file for a shape and a GPU, under the names that vLLM looks for.

Measured on an H200 with 8,192 tokens (a layer's experts: 1.37 ms; 1.86 with vLLM's default, 1.65 with CUTLASS). Sizes
below 4,096 tokens are vLLM's defaults, written down because the nearest entry of a file serves every size.
"""

TUNED_FOLDER = "VLLM_TUNED_CONFIG_FOLDER"
"""Environment variable by which vLLM finds such files."""

_SMALL = (1, 2, 4, 8, 16, 32, 64, 128, 160, 320, 480, 640, 960, 1280, 1600, 2048)
_LARGE_EVERY = 1024


@dataclass(frozen=True, slots=True)
class Gpu:
    """name: as the driver calls it.  capability: CUDA's, major and minor; None: the driver does not say."""

    name: str
    capability: tuple[int, int] | None

    @property
    def has_nvfp4(self) -> bool:
        """Whether it has units for 4-bit floats: Blackwell and what comes after it."""
        return self.capability is not None and self.capability >= (10, 0)


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """arguments: for vLLM's AsyncEngineArgs.  environment: variables.  reasons: what the log says, a setting each."""

    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


def capture_sizes(budget: int) -> list[int]:
    """Batch sizes, in tokens, whose kernels are captured as a graph: up to all that one step may hold.

    vLLM's own list ends at 512. A larger step then runs kernel by kernel, and the thread that starts them is slower
    than the GPU: 123-136 ms a step of 8,192 tokens against 80-94 ms of FP8 kernels (H200).
    """
    sizes = [size for size in _SMALL if size <= budget]
    sizes += range(_SMALL[-1] + _LARGE_EVERY, budget + 1, _LARGE_EVERY)
    return sizes if sizes[-1] == budget else [*sizes, budget]


def gpu_settings(
    gpu: Gpu,
    quantization: Quantization,
    *,
    experts: tuple[int, int] | None,
    budget: int,
    eager: bool,
    slot_path: bool,
    tuned_folder: str | None = None,
) -> GpuSettings:
    """What makes reads faster on this GPU; of what is computed nothing changes but the order of sums.

    Args:
        experts: the model's number of experts and their width; None: it has none.
        budget: tokens of one engine step.
        eager: nothing is compiled or captured.
        tuned_folder: what `TUNED_FOLDER` says already; its owner knows better.

    Raises:
        EngineNotCapable: the model's format needs another GPU.
    """
    if quantization.scheme == "nvfp4" and not gpu.has_nvfp4:
        shown = "unknown" if gpu.capability is None else "{}.{}".format(*gpu.capability)
        raise EngineNotCapable(
            f"the model is quantized to NVFP4, which needs a Blackwell GPU (CUDA capability 10.0 or more), and this "
            f"one is {gpu.name} ({shown}); serve the unquantized checkpoint with engine.quantization: fp8_per_channel"
        )
    arguments: dict[str, Any] = {}
    environment: dict[str, str] = {}
    reasons = []
    if slot_path and not eager:
        sizes = capture_sizes(budget)
        arguments["compilation_config"] = {"cudagraph_capture_sizes": sizes}
        reasons.append(
            f"graphs of {len(sizes)} batch sizes up to {budget} tokens (engine.enforce_eager: true for none)"
        )
    if quantization.scheme == "fp8_per_channel" and experts and (tiles := _tiles(gpu, experts)):
        arguments["moe_backend"] = "triton"
        if tuned_folder in (None, str(TILES)):
            environment[TUNED_FOLDER] = str(TILES)
            reasons.append(f"experts by Triton with the tiles of {tiles.name}")
        else:
            reasons.append(f"experts by Triton with tiles from {TUNED_FOLDER} as it is set")
    return GpuSettings(arguments, environment, tuple(reasons))


def _tiles(gpu: Gpu, experts: tuple[int, int]) -> Path | None:
    """The file for this GPU and shape; vLLM takes the whole H200 family for one."""
    if "H200" not in gpu.name.replace("_", " ").split():
        return None
    path = TILES / f"E={experts[0]},N={experts[1]},device_name=NVIDIA_H200,dtype=fp8_w8a8.json"
    return path if path.is_file() else None


def served_gpu() -> Gpu:
    """The first GPU that this process sees, by the driver's management library: no CUDA context is made."""
    from vllm.platforms import current_platform  # noqa: PLC0415

    try:
        capability = current_platform.get_device_capability()
        name = str(current_platform.get_device_name())
    except Exception as error:
        # The library has its own classes for a missing driver, a lost device, no permission; vLLM tells them better.
        _LOG.warning("vllm: the GPU's name cannot be read (%s: %s)", type(error).__name__, error)
        return Gpu("unknown", None)
    return Gpu(name, None if capability is None else (capability.major, capability.minor))
