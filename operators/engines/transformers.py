"""The reference engine: the model's own transformers code, one read at a time, float32, nothing clever.

It answers the same requests as vLLM, so that a disagreement shows that one of the two is wrong. One denoise step by the
model's API: the encoder runs over the prompt (causal) and fills a key-value cache; the decoder runs over the canvas
(bidirectional, positions after the prompt, no self-conditioning yet, as at the first step of generation); soft-capped
logits become log-probabilities at temperature 1.
"""

import asyncio
import logging
import time
from importlib.metadata import version
from typing import Any

from slotstream.operators.engines.capability import ModelFacts, model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.read_loop import ReadLoop
from slotstream.operators.engines.slot_read import check_request

__all__ = ["TransformersEngine"]

_LOG = logging.getLogger(__name__)


class TransformersEngine(ReadLoop):
    """`Engine` over `DiffusionGemmaForBlockDiffusion` on the CPU. Raises as `VllmEngine` does."""

    def __init__(self, config: EngineConfig) -> None:
        facts = model_facts(config)
        info = facts.engine_info(name="transformers", version=version("transformers"), path="reference")
        super().__init__(lambda: _open(facts, info), info)
        self.start(config.start_timeout_s)


async def _open(facts: ModelFacts, info: EngineInfo) -> "_TransformersReader":
    started = time.monotonic()
    import torch  # noqa: PLC0415 (seconds, and only where this engine is used)
    from transformers import DiffusionGemmaForBlockDiffusion  # noqa: PLC0415

    model = DiffusionGemmaForBlockDiffusion.from_pretrained(
        facts.location, dtype=torch.float32, local_files_only=facts.local
    )
    _LOG.info("transformers %s: loaded %s in %.1f s", info.version, info.model, time.monotonic() - started)
    return _TransformersReader(model.eval(), info)


class _TransformersReader:
    """The `Reader` over one model; a read holds the loop, so that it needs no thread."""

    def __init__(self, model: Any, info: EngineInfo) -> None:
        self._model = model
        self._info = info
        self._turn = asyncio.Lock()

    async def read(self, request: ReadRequest) -> ReadResult:
        check_request(request, self._info)
        async with self._turn:
            await asyncio.sleep(0)  # lets an abort or a close in between two reads
            return self._read(request)

    def _read(self, request: ReadRequest) -> ReadResult:
        import torch  # noqa: PLC0415

        with torch.inference_mode():
            logits = self._model(
                input_ids=torch.tensor([request.prompt_ids]), decoder_input_ids=torch.tensor([request.canvas_ids])
            ).logits[0]
            log_probs = torch.log_softmax(logits[list(request.slots)].double(), dim=-1)
        return ReadResult(
            tuple(tuple(row[list(marks)].tolist()) for row, marks in zip(log_probs, request.mark_ids, strict=True))
        )

    def failure(self) -> str | None:
        return None

    def close(self) -> None:
        self._model = None
