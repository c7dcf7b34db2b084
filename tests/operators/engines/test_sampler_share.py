"""The clock inside vLLM. Loads an engine of its own."""

from pathlib import Path

import pytest

from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.sampler_share import sampler_share
from tests.operators.engines.conftest import RequestMaker

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_the_kernels_are_a_part_of_the_sampler_and_the_sampler_of_the_whole(
    tiny_checkpoint: Path, make_request: RequestMaker
) -> None:
    requests = [make_request(40, 16, 2, 10) for _ in range(8)]
    share = sampler_share(EngineConfig(model=str(tiny_checkpoint), max_model_len=128, kv_cache_mib=32), requests)
    assert share.reads == 8
    assert share.seconds > 0
    assert 0.05 < share.log_probs <= share.sampler < 1
