"""The probe read: what makes an engine ready, and what proves that it cannot read."""

import math

import pytest

from slotstream.operators.engines.probe import default_probe, probe
from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.slot_read import check_request
from slotstream.operators.testing import HeldEngine, InstantEngine
from slotstream.schemas.errors import EngineError, EngineNotCapable


def info(max_model_len: int = 4096, canvas_length: int = 64, vocab_size: int = 262_144) -> EngineInfo:
    return EngineInfo("vllm", "0.32.0", "stock", "m", max_model_len, canvas_length, vocab_size)


@pytest.mark.parametrize("limits", [(4096, 64, 262_144), (64, 32, 640), (64, 4, 3), (20, 16, 5), (2, 1, 1)], ids=str)
def test_the_default_probe_suits_any_engine(limits: tuple[int, int, int]) -> None:
    check_request(default_probe(info(*limits)), info(*limits))


def test_a_sound_engine_passes() -> None:
    engine = InstantEngine()
    probe(engine)
    assert engine.finished == 3


@pytest.mark.parametrize("value", [math.nan, 0.5, math.inf])
def test_a_value_that_is_no_log_probability_is_the_engines_fault(value: float) -> None:
    with pytest.raises(EngineError, match="no log-probability"):
        probe(InstantEngine(read=lambda r: ReadResult(tuple((value,) * len(m) for m in r.mark_ids))))


def test_reads_that_do_not_repeat_are_refused() -> None:
    reads = 0

    def drifting(request: ReadRequest) -> ReadResult:
        nonlocal reads
        reads += 1
        return ReadResult(tuple((math.log(0.1 * reads),) * len(m) for m in request.mark_ids))

    with pytest.raises(EngineNotCapable, match="does not take a seeded canvas"):
        probe(InstantEngine(read=drifting))


def test_a_probe_that_never_finishes_is_the_engines_fault() -> None:
    engine = HeldEngine()
    with pytest.raises(EngineError, match="did not finish within"):
        probe(engine, timeout_s=0.01)
    assert engine.held[0][1].cancelled()
