"""One tiny checkpoint and one engine of each kind for the whole session: vLLM takes most of a minute to start."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import Engine, ReadRequest
from tests.operators.engines.tiny_checkpoint import SLIDING_WINDOW, VOCAB_SIZE, write_tiny_checkpoint

__all__ = ["MAX_MODEL_LEN", "MAX_NUM_SEQS", "RequestMaker"]

MAX_MODEL_LEN = 512
MAX_NUM_SEQS = 16


class RequestMaker:
    """Random requests, the same in every run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(
        self, prompt: int, canvas: int, slots: int, marks: int, *, prefix: tuple[int, ...] = ()
    ) -> ReadRequest:
        """Lengths of prompt and canvas in tokens, number of slots, number of marks a slot."""
        draw = self._random
        return ReadRequest(
            prompt_ids=(*prefix, *(draw.randrange(VOCAB_SIZE) for _ in range(prompt - len(prefix)))),
            canvas_ids=tuple(draw.randrange(VOCAB_SIZE) for _ in range(canvas)),
            slots=tuple(sorted(draw.sample(range(canvas), slots))),
            mark_ids=tuple(tuple(draw.sample(range(VOCAB_SIZE), marks)) for _ in range(slots)),
        )

    def inside_window(self) -> ReadRequest:
        """Of any shape whose prompt and canvas fit into the model's sliding window."""
        draw = self._random
        canvas = draw.randint(1, 32)
        return self(
            draw.randint(1, SLIDING_WINDOW - canvas),
            canvas,
            draw.randint(1, min(8, canvas)),
            draw.choice((2, 3, 10, 60, 128, 129, 200)),
        )


@pytest.fixture
def make_request(request: pytest.FixtureRequest) -> RequestMaker:
    """Seeded by the test's name."""
    return RequestMaker(sum(request.node.name.encode()))


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("engine") / "tiny")


@pytest.fixture(scope="session")
def vllm_engine(tiny_checkpoint: Path) -> Iterator[Engine]:
    pytest.importorskip("vllm.version", reason="vLLM is not installed")
    from slotstream.operators.engines.vllm import VllmEngine

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the model is tiny: more threads only wait for each other
    engine = VllmEngine(
        EngineConfig(
            model=str(tiny_checkpoint), max_model_len=MAX_MODEL_LEN, max_num_seqs=MAX_NUM_SEQS, kv_cache_mib=64
        )
    )
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def reference_engine(tiny_checkpoint: Path) -> Iterator[Engine]:
    pytest.importorskip("transformers")
    from slotstream.operators.engines.transformers import TransformersEngine

    engine = TransformersEngine(
        EngineConfig(kind="transformers", model=str(tiny_checkpoint), max_model_len=MAX_MODEL_LEN)
    )
    yield engine
    engine.close()
