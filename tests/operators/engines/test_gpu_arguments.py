"""The installed vLLM takes what a GPU adds to an engine's settings, by the names and from the files that we write."""

import json
import subprocess
import sys

import pytest

from slotstream.operators.engines.config import PACKAGED_CHECKPOINT
from slotstream.operators.engines.gpu import TILES, TUNED_FOLDER, Gpu, gpu_settings
from slotstream.operators.engines.quantization import Quantization

pytestmark = [pytest.mark.engine, pytest.mark.slow]

IN_VLLM = """
import json, sys
from slotstream.operators.engines.environment import prepare_environment
prepare_environment(on_cpu=True, offline=True, start_timeout_s=60)
from vllm import AsyncEngineArgs
from vllm.model_executor.layers.fused_moe import fused_moe
args = AsyncEngineArgs(model=sys.argv[1], quantization="fp8_per_channel", **json.loads(sys.argv[2]))
fused_moe.get_device_name_as_file_name = lambda: "NVIDIA_H200"
print(json.dumps([
    args.compilation_config.cudagraph_capture_sizes,
    args.moe_backend,
    str(args.quantization_config.moe),
    fused_moe.get_moe_configs(128, 704, "fp8_w8a8")[8192],
]))
"""


def test_vllm_knows_every_name_and_finds_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = gpu_settings(
        Gpu("NVIDIA H200", (9, 0)),
        Quantization("fp8_per_channel"),
        experts=(128, 704),
        budget=8192,
        eager=False,
        slot_path=True,
    )
    assert settings.environment == {TUNED_FOLDER: str(TILES)}
    monkeypatch.setenv(TUNED_FOLDER, str(TILES))
    command = [sys.executable, "-c", IN_VLLM, str(PACKAGED_CHECKPOINT), json.dumps(settings.arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    sizes, backend, weights, tile = json.loads(done.stdout.splitlines()[-1])
    assert sizes[-1] == 8192
    assert (backend, weights) == ("triton", "fp8_per_channel_static")
    assert (tile["BLOCK_SIZE_M"], tile["BLOCK_SIZE_N"], tile["num_stages"]) == (128, 256, 3)
