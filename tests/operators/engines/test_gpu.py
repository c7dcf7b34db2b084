"""What a GPU adds to an engine's settings. Pure: no GPU and no vLLM here."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.engines.gpu import TILES, TUNED_FOLDER, Gpu, GpuSettings, capture_sizes, gpu_settings
from slotstream.operators.engines.quantization import Quantization
from slotstream.schemas.errors import EngineNotCapable

H200 = Gpu("NVIDIA H200", (9, 0))
B200 = Gpu("NVIDIA B200", (10, 0))
REAL = (128, 704)  # experts of DiffusionGemma-26B-A4B and their width
FP8 = Quantization("fp8_per_channel")


def settings(
    gpu: Gpu = H200,
    quantization: Quantization = FP8,
    *,
    experts: tuple[int, int] | None = REAL,
    budget: int = 8192,
    eager: bool = False,
    slot_path: bool = True,
    tuned_folder: str | None = None,
) -> GpuSettings:
    return gpu_settings(
        gpu,
        quantization,
        experts=experts,
        budget=budget,
        eager=eager,
        slot_path=slot_path,
        tuned_folder=tuned_folder,
    )


def test_the_budget_of_the_measured_engine_has_the_measured_sizes() -> None:
    assert capture_sizes(8192) == [
        *(1, 2, 4, 8, 16, 32, 64, 128, 160, 320, 480, 640, 960, 1280, 1600, 2048),
        *(3072, 4096, 5120, 6144, 7168, 8192),
    ]


@given(st.integers(1, 65_536))
def test_captured_sizes_ascend_and_end_at_the_budget(budget: int) -> None:
    sizes = capture_sizes(budget)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == budget


@pytest.mark.parametrize(
    ("eager", "slot_path", "captured"),
    [(False, True, True), (True, True, False), (False, False, False), (True, False, False)],
)
def test_graphs_are_captured_up_to_the_budget_on_the_slot_path_alone(
    eager: bool, slot_path: bool, captured: bool
) -> None:
    found = settings(eager=eager, slot_path=slot_path)
    assert ("compilation_config" in found.arguments) is captured
    assert any("graphs of 22 batch sizes" in reason for reason in found.reasons) is captured


@pytest.mark.parametrize(
    ("gpu", "quantization", "experts", "tuned"),
    [
        (H200, FP8, REAL, True),
        (Gpu("NVIDIA H200 NVL", (9, 0)), FP8, REAL, True),
        (Gpu("NVIDIA_H200", (9, 0)), Quantization("fp8_per_channel", of_checkpoint=True), REAL, True),
        (H200, Quantization("none"), REAL, False),
        (H200, Quantization("fp8_per_block", of_checkpoint=True), REAL, False),
        (H200, FP8, (128, 768), False),
        (H200, FP8, None, False),
        (Gpu("NVIDIA H100 80GB HBM3", (9, 0)), FP8, REAL, False),
        (B200, FP8, REAL, False),
        (Gpu("unknown", None), FP8, REAL, False),
    ],
    ids=str,
)
def test_tuned_tiles_go_with_fp8_on_the_gpu_and_the_shape_that_they_were_measured_for(
    gpu: Gpu, quantization: Quantization, experts: tuple[int, int] | None, tuned: bool
) -> None:
    found = settings(gpu, quantization, experts=experts)
    assert found.arguments.get("moe_backend") == ("triton" if tuned else None)
    assert found.environment == ({TUNED_FOLDER: str(TILES)} if tuned else {})
    assert any("experts by Triton" in reason for reason in found.reasons) is tuned


def test_a_folder_of_tiles_that_the_user_named_stays() -> None:
    found = settings(tuned_folder="/mine")
    assert found.environment == {}
    assert found.arguments["moe_backend"] == "triton"
    assert found.reasons[-1] == "experts by Triton with tiles from VLLM_TUNED_CONFIG_FOLDER as it is set"


def test_a_second_engine_of_the_process_has_the_same_tiles() -> None:
    assert settings(tuned_folder=str(TILES)) == settings()


@pytest.mark.parametrize("gpu", [H200, Gpu("NVIDIA A100", (8, 0)), Gpu("unknown", None)], ids=lambda g: g.name)
def test_four_bit_floats_are_refused_without_a_blackwell_gpu(gpu: Gpu) -> None:
    with pytest.raises(EngineNotCapable, match=rf"NVFP4, which needs a Blackwell GPU .* {gpu.name} \("):
        settings(gpu, Quantization("nvfp4", of_checkpoint=True))


@pytest.mark.parametrize("gpu", [B200, Gpu("NVIDIA RTX PRO 6000", (12, 0))], ids=lambda g: g.name)
def test_four_bit_floats_are_served_by_a_blackwell_gpu(gpu: Gpu) -> None:
    assert "moe_backend" not in settings(gpu, Quantization("nvfp4", of_checkpoint=True)).arguments


@pytest.mark.parametrize("path", sorted(TILES.glob("*.json")), ids=lambda path: path.name)
def test_a_tile_file_is_what_vllm_reads(path: object) -> None:
    assert isinstance(path, type(TILES))
    tiles = json.loads(path.read_text(encoding="utf-8"))
    wanted = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"}
    assert tiles
    assert all(size.isdigit() and set(tile) == wanted for size, tile in tiles.items())


def test_there_is_a_tile_file_for_the_real_model() -> None:
    assert (TILES / "E=128,N=704,device_name=NVIDIA_H200,dtype=fp8_w8a8.json").is_file()
