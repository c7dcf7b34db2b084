"""The fused step in the worker: the end of a prompt and its canvas, two sequences for attention over one block table.

To vLLM's runner a fused read is one request that computes tail + canvas tokens, with the canvas as draft tokens:
inputs, positions, cache slots and counts come out right by themselves. Only attention must tell them apart. The tail's
tokens look back (causally) and must not see the canvas; the canvas sees the whole prompt and itself, both ways. The
keys of all tokens are in the cache before a layer's attention, so both halves find what they need there.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Sequences", "split_sequences"]

Ints = NDArray[np.int64]

_AS_THE_REQUEST = -1


@dataclass(frozen=True, slots=True)
class Sequences:
    """A step's sequences as attention sees them; a request that is not fused is one. int64.

    request: batch number of each sequence's request.  shorter: how many tokens it ends before its request does.
    causal: 1, 0, or -1: as the request's own state says.  start: where its queries begin, and behind the last the end.
    """

    request: Ints
    shorter: Ints
    causal: Ints
    start: Ints

    def pieces(self) -> tuple[Ints, ...]:
        """What the device needs, to be copied with the rest of the plan."""
        return self.request, self.shorter, self.causal, self.start

    def attention(self, on_device: tuple[torch.Tensor, ...], batch: Any, causal: torch.Tensor) -> dict[str, Any]:
        """Arguments of vLLM's build_attn_metadata that differ from those of an ordinary step.

        Args:
            on_device: `pieces`, copied.
            causal: int32, of every request of the batch.
        """
        request, shorter, forced, start = on_device
        own = causal[request]
        return {
            "num_reqs": len(self.request),
            "query_start_loc_gpu": start.to(torch.int32),
            "query_start_loc_cpu": torch.from_numpy(self.start.astype(np.int32)),
            "max_query_len": int(np.diff(self.start).max()),
            "seq_lens": batch.seq_lens[request] - shorter.to(batch.seq_lens.dtype),
            "causal": torch.where(forced == _AS_THE_REQUEST, own, forced.to(own.dtype)),
        }


def split_sequences(starts: Ints, logits: Ints, fused: NDArray[np.bool_]) -> Sequences:
    """Sequences of a batch.

    Args:
        starts: where each request's queries begin, and the end.  logits: its canvas's width.  fused: per request.
    """
    count = len(fused)
    request = np.repeat(np.arange(count), 1 + fused)
    tail = np.zeros(len(request), np.bool_)
    tail[np.flatnonzero(fused) + np.arange(int(fused.sum()))] = True  # the first of a fused request's two
    canvas = fused[request] & ~tail
    start = np.append(np.where(canvas, starts[request + 1] - logits[request], starts[request]), starts[-1])
    return Sequences(
        request=request,
        shorter=np.where(tail, logits[request], 0),
        causal=np.where(tail, 1, np.where(canvas, 0, _AS_THE_REQUEST)),
        start=start,
    )
