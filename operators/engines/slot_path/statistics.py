"""What a read needs of a row of logits, in plain torch: one code for CPU and GPU."""

import torch

__all__ = ["chunk_rows", "mark_log_probs"]

_CHUNK_BYTES = 128 << 20  # of float32 logits at once; with the temporaries of a logsumexp about four times as much


def chunk_rows(vocab_size: int) -> int:
    """How many rows of logits may exist at once: memory stays bounded however many slots a step has."""
    return max(1, _CHUNK_BYTES // (4 * vocab_size))


def mark_log_probs(logits: torch.Tensor, marks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities over the full vocabulary, at temperature 1; NaN is passed on.

    Args:
        logits: [rows, vocabulary], any float type.
        marks: [rows, marks] token ids, int64.

    Returns:
        [rows, marks] float32, natural logarithms; and [rows] float32, the logarithm of each row's denominator.
    """
    wide = logits.float()
    denominators = torch.logsumexp(wide, dim=1)
    return wide.gather(1, marks) - denominators.unsqueeze(1), denominators
