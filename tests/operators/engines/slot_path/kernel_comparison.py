"""Run in a process of its own: every host kernel against the Triton kernel that it replaces, in the interpreter.

Random inputs, the same in every run. Prints one line a kernel: its name and the largest difference.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

os.environ |= {
    "TRITON_INTERPRET": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}

import numpy as np
import torch

from slotstream.operators.engines.slot_path import host_kernels

__all__: list[str] = []

REQUESTS, MAX_REQUESTS, WIDTH, LENGTH, VOCABULARY = 4, 6, 8, 64, 50
random = np.random.default_rng(0)


def ints(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.from_numpy(random.integers(low, high, shape)).to(dtype)


ROWS = torch.tensor([4, 0, 5, 2])
PREFILL = torch.tensor([20, 3, 9, 3, 30, 12], dtype=torch.int32)
COMPUTED = torch.tensor([20, 0, 9, 0, 0, 8], dtype=torch.int32)  # rows 0 and 2 read a canvas, 4 and 5 a prompt
QUERIES = torch.tensor([30, WIDTH, 4, 5])
START = torch.cat((torch.zeros(1, dtype=torch.int64), QUERIES.cumsum(0))).to(torch.int32)
LOGITS = torch.tensor([0, WIDTH, 0, 5])
CU_LOGITS = torch.cat((torch.zeros(1, dtype=torch.int64), LOGITS.cumsum(0))).to(torch.int32)
TOKENS = int(START[-1])
SEQ_LENS = torch.cat((COMPUTED[ROWS] + QUERIES.to(torch.int32), torch.zeros(2, dtype=torch.int32)))
ALL = ints(0, 1000, MAX_REQUESTS, LENGTH)
COUNT = int(CU_LOGITS[-1])
IDS = ints(0, VOCABULARY, 5, 7, dtype=torch.int64)
ROW_LOGITS = torch.from_numpy(random.normal(0, 3, (5, VOCABULARY))).float()

# kernel -> grid, arguments in order, constants. Every tensor that a kernel may write is compared.
CASES: dict[str, tuple[int, Callable[[], list[Any]], dict[str, int]]] = {
    "_prepare_prefill_inputs_kernel": (
        REQUESTS,
        lambda: [
            ints(0, 9, TOKENS),
            torch.zeros(1, MAX_REQUESTS, dtype=torch.int32),
            MAX_REQUESTS,
            1,
            ROWS,
            START,
            ALL,
            LENGTH,
            PREFILL,
            COMPUTED,
        ],
        {"BLOCK_SIZE": 16, "LOOKAHEAD_BLOCK": 1},
    ),
    "_prepare_pos_seq_lens_kernel": (
        REQUESTS + 1,
        lambda: [
            torch.zeros(TOKENS + 3, dtype=torch.int64),
            ints(0, 9, MAX_REQUESTS),
            ROWS,
            START,
            COMPUTED,
            MAX_REQUESTS,
        ],
        {"BLOCK_SIZE": 16},
    ),
    "_combine_sampled_and_draft_tokens_kernel": (
        REQUESTS,
        lambda: [
            ints(0, 9, TOKENS),
            ROWS,
            ints(0, 9, MAX_REQUESTS, 1, dtype=torch.int64),
            START,
            SEQ_LENS,
            PREFILL,
            ints(0, 99, MAX_REQUESTS, WIDTH, dtype=torch.int64),
            WIDTH,
            CU_LOGITS,
            torch.zeros(COUNT, dtype=torch.int64),
        ],
        {"BLOCK_SIZE": 16, "NUM_NEW_SAMPLED_TOKENS": 0},
    ),
    "_expand_idx_mapping_kernel": (
        REQUESTS,
        lambda: [ROWS, torch.zeros(COUNT, dtype=torch.int64), torch.zeros(COUNT, dtype=torch.int32), CU_LOGITS],
        {"BLOCK_SIZE": 16},
    ),
    "_post_update_kernel": (
        REQUESTS,
        lambda: [
            ROWS,
            COMPUTED.clone(),
            ints(0, 9, MAX_REQUESTS, 1, dtype=torch.int64),
            None,
            0,
            ints(0, 999, REQUESTS, WIDTH),
            WIDTH,
            torch.tensor([0, 3, 0, 5], dtype=torch.int32),
            torch.tensor([0, 5, 0, 0], dtype=torch.int32),
            START,
            ALL.clone(),
            LENGTH,
            PREFILL.clone(),
        ],
        {},
    ),
    "_fill_logprob_token_ids_kernel": (
        5,
        lambda: [
            torch.zeros(5, 8, dtype=torch.int64),
            8,
            torch.zeros(5, 8, dtype=torch.bool),
            8,
            ints(0, 50, 5, dtype=torch.int64),
            ints(0, 50, 5, 3),
            3,
            torch.tensor([4, 4, 0, 2, 1]),
            torch.tensor([0, 7, 5, 2, 1, 0], dtype=torch.int32),
            ints(0, 50, MAX_REQUESTS, 10),
            10,
        ],
        {"NUM_TOPK": 3, "PADDED_COLS": 8},
    ),
    "_topk_log_softmax_kernel": (
        5,
        lambda: [torch.zeros(5, 7), ROW_LOGITS, VOCABULARY, IDS, 7, 7, VOCABULARY],
        {"BLOCK_SIZE": 16, "TOPK_BLOCK_SIZE": 8},
    ),
    "_ranks_kernel": (
        5,
        lambda: [torch.zeros(5, dtype=torch.int64), ROW_LOGITS, VOCABULARY, IDS[:, 0].contiguous(), VOCABULARY],
        {"BLOCK_SIZE": 16},
    ),
}


def main() -> None:
    """Compare all; a kernel without a case is an error."""
    for module, kernels in host_kernels.KERNELS.items():
        for name, function in kernels.items():
            grid, arguments, constants = CASES[name]
            expected = arguments()
            got = [value.clone() if isinstance(value, torch.Tensor) else value for value in expected]
            getattr(importlib.import_module(module), name)[(grid,)](*expected, **constants)
            host_kernels.HostKernel(function)[(grid,)](*got, **constants)
            gaps = [
                float((a.double() - b.double()).abs().max())
                for a, b in zip(expected, got, strict=True)
                if isinstance(a, torch.Tensor)
            ]
            print(name, max(gaps))


if __name__ == "__main__":
    main()
