"""What vLLM's attention kernel is launched with on a Hopper; the kernel itself needs one."""

from types import SimpleNamespace
from typing import Any

import pytest

from slotstream.operators.engines.slot_path.attention_tiles import HOPPER_TILES, _TiledKernel


class Kernel:
    """Remembers its launches."""

    def __init__(self) -> None:
        self.launches: list[tuple[tuple[int, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda **arguments: self.launches.append((grid, arguments))


def launch(grid: tuple[int, ...] = (900, 2), **changes: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
    kernel = Kernel()
    query = SimpleNamespace(shape=(1600, 16, 256), element_size=lambda: changes.get("bytes", 2))
    asked = {"HEAD_SIZE": 256, "num_queries_per_kv": 8, "KV_QUANT_MODE": 0, "num_seqs": 10, "BLOCK_M": 16}
    arguments = {**asked, **{name: value for name, value in changes.items() if name != "bytes"}}
    _TiledKernel(kernel, HOPPER_TILES)[grid](query_ptr=query, **arguments)
    return kernel.launches[0]


def test_many_queries_take_the_large_tile_and_a_grid_that_covers_them() -> None:
    grid, arguments = launch()
    assert (arguments["BLOCK_M"], arguments["BLOCK_Q"], arguments["TILE_SIZE"]) == (128, 16, 64)
    assert grid == (1600 // 16 + 10, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"grid": (900, 2, 16)},  # few queries a sequence
        {"bytes": 4},
        {"KV_QUANT_MODE": 1},
        {"HEAD_SIZE": 128},
        {"num_queries_per_kv": 3},
    ],
)
def test_anything_else_is_launched_as_vllm_launches_it(change: dict[str, Any]) -> None:
    grid, arguments = launch(**change)
    assert grid == change.get("grid", (900, 2))
    assert arguments["BLOCK_M"] == 16
