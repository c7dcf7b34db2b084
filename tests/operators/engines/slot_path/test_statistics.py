"""Log-probabilities of marks in plain torch, against the definition in double precision."""

import math

import pytest
import torch

from slotstream.operators.engines.slot_path.statistics import chunk_rows, mark_log_probs

pytestmark = pytest.mark.slow  # torch takes seconds to import


@pytest.mark.parametrize("scale", [0.1, 10.0, 1000.0])
def test_they_are_those_of_a_softmax_over_the_whole_row(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((6, 500), generator=generator) * scale
    marks = torch.randint(0, 500, (6, 9), generator=generator)
    expected = torch.log_softmax(logits.double(), dim=1).gather(1, marks)
    found, denominators = mark_log_probs(logits, marks)
    assert found.dtype == denominators.dtype == torch.float32
    assert torch.allclose(found.double(), expected, rtol=1e-6, atol=1e-5)


def test_half_precision_is_widened_first() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.bfloat16)
    found, _ = mark_log_probs(logits, torch.tensor([[2]]))
    assert found.item() == pytest.approx(3 - math.log(math.exp(1) + math.exp(2) + math.exp(3)), abs=1e-6)


def test_a_row_that_is_no_number_stays_so_and_harms_no_other() -> None:
    logits = torch.tensor([[float("nan"), 0.0], [0.0, 0.0]])
    found, _ = mark_log_probs(logits, torch.tensor([[1], [1]]))
    assert math.isnan(found[0].item())
    assert found[1].item() == pytest.approx(-math.log(2))


@pytest.mark.parametrize(("vocabulary", "rows"), [(262_144, 128), (3200, 10_485), (10**9, 1)])
def test_the_rows_that_exist_at_once_are_bounded(vocabulary: int, rows: int) -> None:
    assert chunk_rows(vocabulary) == rows
