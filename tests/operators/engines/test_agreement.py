"""vLLM against the model's own transformers code, same file, same requests, float32."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from tests.operators.engines.conftest import MAX_MODEL_LEN, RequestMaker
from tests.operators.engines.tiny_checkpoint import SLIDING_WINDOW

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WAIT_S = 300.0
CLOSE = 1e-5  # in probability; measured: 2e-7. The project promises 1e-3.


def read(engine: Engine, requests: Sequence[ReadRequest]) -> list[ReadResult]:
    return [future.result(WAIT_S) for future in engine.submit(requests)]


def changes(a: Sequence[ReadResult], b: Sequence[ReadResult]) -> list[float]:
    """Largest change of a probability, per request."""
    return [
        max(
            abs(math.exp(x) - math.exp(y))
            for row, other_row in zip(one.log_probs, other.log_probs, strict=True)
            for x, y in zip(row, other_row, strict=True)
        )
        for one, other in zip(a, b, strict=True)
    ]


@pytest.fixture
def _informative(reference_engine: Engine) -> None:
    """The comparison would mean nothing on flat distributions."""
    row = read(reference_engine, [RequestMaker(1)(40, 16, 1, 640)])[0].log_probs[0]
    assert max(row) > math.log(20 / 640)


@pytest.mark.usefixtures("_informative")
def test_the_engines_agree_on_requests_of_every_shape(
    vllm_engine: Engine, reference_engine: Engine, make_request: RequestMaker
) -> None:
    requests = [make_request.inside_window() for _ in range(40)]
    assert max(changes(read(vllm_engine, requests), read(reference_engine, requests))) <= CLOSE


def test_the_engines_agree_on_eight_slots_and_two_hundred_marks(
    vllm_engine: Engine, reference_engine: Engine, make_request: RequestMaker
) -> None:
    requests = [make_request(60, 32, 8, 200) for _ in range(3)]
    assert max(changes(read(vllm_engine, requests), read(reference_engine, requests))) <= CLOSE


def test_beyond_the_sliding_window_they_differ_by_the_window_alone(
    vllm_engine: Engine, reference_engine: Engine, tiny_checkpoint: Path, make_request: RequestMaker
) -> None:
    """A known difference: in layers with a sliding window, transformers lets every canvas position see the whole window
    before the canvas, vLLM counts the window from each position. With vLLM's mask the model's own code agrees again."""
    requests = [make_request(n, 32, 3, 20) for n in (SLIDING_WINDOW, 150, 300, MAX_MODEL_LEN - 32)]
    served = read(vllm_engine, requests)
    assert min(changes(served, read(reference_engine, requests))) > CLOSE
    assert max(changes(served, [_with_vllms_window(tiny_checkpoint, request) for request in requests])) <= CLOSE


def _with_vllms_window(checkpoint: Path, request: ReadRequest) -> ReadResult:
    import torch
    from transformers import DiffusionGemmaForBlockDiffusion

    model = DiffusionGemmaForBlockDiffusion.from_pretrained(checkpoint, dtype=torch.float32).eval()
    prompt, canvas = len(request.prompt_ids), len(request.canvas_ids)
    query = torch.arange(prompt, prompt + canvas)[:, None]
    key = torch.arange(max(0, prompt - (SLIDING_WINDOW - 1)), prompt + canvas)[
        None
    ]  # what the cache keeps, then the canvas
    mask = ((query - key).abs() < SLIDING_WINDOW)[None, None]
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor([request.prompt_ids]),
            decoder_input_ids=torch.tensor([request.canvas_ids]),
            decoder_attention_mask={"full_attention": None, "sliding_attention": mask},
        ).logits[0]
    rows = torch.log_softmax(logits.double(), dim=-1)
    return ReadResult(
        tuple(
            tuple(rows[slot][list(marks)].tolist()) for slot, marks in zip(request.slots, request.mark_ids, strict=True)
        )
    )
