"""Larger tiles for vLLM's Triton attention on Hopper, where stock vLLM takes 16 query rows a block for every shape.

vLLM has tuned tiles for this model's heads on Blackwell only. On an H200 those below make attention several times
faster for what slot reads are: many query rows a sequence, prompts and canvases. The kernel is vLLM's own and so are
its results, but for the order in which it adds up; only what it is launched with changes. The grid is a bound, computed
as vLLM computes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["HOPPER_TILES", "Tile", "install_tiles"]


@dataclass(frozen=True, slots=True)
class Tile:
    """rows: query rows times heads of a block.  keys: keys that it takes at a time.  warps, stages: of the launch."""

    rows: int
    keys: int
    warps: int
    stages: int


HOPPER_TILES = {256: Tile(128, 64, 8, 2), 512: Tile(64, 32, 8, 2)}
"""Head size -> tile; measured on an H200 in bfloat16."""


class _TiledKernel:
    """Stands where vLLM's kernel stood: `kernel[grid](...)` launches it with this GPU's tile for the head size."""

    def __init__(self, kernel: Any, tiles: dict[int, Tile]) -> None:
        self.kernel = kernel
        self.tiles = tiles

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def launch(**arguments: Any) -> Any:
            query = arguments["query_ptr"]
            tile = self.tiles.get(arguments["HEAD_SIZE"])
            group = arguments["num_queries_per_kv"]
            # Only the kernel for many queries a sequence (its grid has two axes) and only 16-bit numbers: the tiles
            # were measured for nothing else.
            other = len(grid) != 2 or query.element_size() != 2 or arguments["KV_QUANT_MODE"]
            if tile is None or other or tile.rows % group:
                return self.kernel[grid](**arguments)
            queries = tile.rows // group
            blocks = query.shape[0] // queries + arguments["num_seqs"]
            arguments |= {
                "BLOCK_M": tile.rows, "BLOCK_Q": queries, "TILE_SIZE": tile.keys,
                "num_warps": tile.warps, "num_stages": tile.stages,
            }  # fmt: skip
            return self.kernel[blocks, grid[1]](**arguments)

        return launch


def install_tiles() -> bool:
    """Replace the kernel in this process where the GPU is a Hopper; whether it did. Idempotent."""
    from vllm.platforms import current_platform  # noqa: PLC0415
    from vllm.v1.attention.ops import triton_unified_attention  # noqa: PLC0415

    if not current_platform.is_cuda() or not current_platform.is_device_capability_family(90):
        return False
    if not isinstance(triton_unified_attention.kernel_unified_attention, _TiledKernel):
        triton_unified_attention.kernel_unified_attention = _TiledKernel(
            triton_unified_attention.kernel_unified_attention, HOPPER_TILES
        )
    return True
