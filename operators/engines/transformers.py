"""The reference engine: the model's own transformers code, one read at a time, float32, nothing clever.

It answers the same requests as vLLM, so that a disagreement shows that one of the two is wrong. One denoise step by the
model's API: the encoder runs over the prompt (causal) and fills a key-value cache; the decoder runs over the canvas
(bidirectional, positions after the prompt, no self-conditioning yet, as at the first step of generation); its soft-capped
logits become log-probabilities at temperature 1.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from slotstream.operators.engines.capability import model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.slot_read import check_request
from slotstream.schemas.errors import EngineError, SlotstreamError

__all__ = ["TransformersEngine"]

_LOG = logging.getLogger(__name__)


class TransformersEngine:
    """`Engine` over `DiffusionGemmaForBlockDiffusion`, on one thread of its own.

    Raises:
        ConfigError, EngineNotCapable: as `model_facts`.
        EngineError: loading failed.
    """

    def __init__(self, config: EngineConfig) -> None:
        facts = model_facts(config)
        self._info = EngineInfo(
            name="transformers",
            version=version("transformers"),
            path="reference",
            model=facts.name,
            max_model_len=facts.max_model_len,
            canvas_length=facts.canvas_length,
            vocab_size=facts.vocab_size,
        )
        self.finished = 0
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="slotstream-transformers")
        started = time.monotonic()
        try:
            self._model = self._thread.submit(_load, facts.location, facts.local).result()
        except SlotstreamError:
            raise
        except Exception as error:
            self._thread.shutdown(wait=False)
            raise EngineError(f"transformers cannot load {facts.name}: {type(error).__name__}: {error}") from error
        _LOG.info("transformers %s: loaded %s in %.1f s", self._info.version, facts.name, time.monotonic() - started)

    @property
    def info(self) -> EngineInfo:
        return self._info

    def submit(self, requests: Sequence[ReadRequest]) -> list["Future[ReadResult]"]:
        if self._closed:
            raise EngineError("the engine takes no reads: it is closed")
        return [self._thread.submit(self._read, request) for request in requests]

    def close(self) -> None:
        self._closed = True
        self._thread.shutdown(cancel_futures=True)
        self._model = None

    def _read(self, request: ReadRequest) -> ReadResult:
        check_request(request, self._info)
        if self._closed:
            raise EngineError("the read was given up: the engine is closed")
        import torch  # noqa: PLC0415

        try:
            with torch.inference_mode():
                logits = self._model(
                    input_ids=torch.tensor([request.prompt_ids]),
                    decoder_input_ids=torch.tensor([request.canvas_ids]),
                ).logits[0]
                log_probs = torch.log_softmax(logits[list(request.slots)].double(), dim=-1)
        except Exception as error:
            raise EngineError(f"transformers failed in a read: {type(error).__name__}: {error}") from error
        self.finished += 1
        return ReadResult(
            tuple(tuple(row[list(marks)].tolist()) for row, marks in zip(log_probs, request.mark_ids, strict=True))
        )


def _load(location: str, local: bool) -> Any:
    import torch  # noqa: PLC0415
    from transformers import DiffusionGemmaForBlockDiffusion  # noqa: PLC0415

    model = DiffusionGemmaForBlockDiffusion.from_pretrained(location, dtype=torch.float32, local_files_only=local)
    return model.eval()
