"""What an engine is: something that reads the probability of every mark at the slots of a seeded canvas."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from slotstream.operators.engines.stats import EngineStats

__all__ = ["Engine", "EngineInfo", "ReadRequest", "ReadResult"]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One canvas over one prompt.

    prompt_ids: token ids up to and including the empty thought block.
    canvas_ids: the seeded canvas, one id a position; noise already stands in the slots.
    slots: ascending canvas positions to read.
    mark_ids: for each slot, the token id of each option's mark, in option order; any number of options.
    """

    prompt_ids: tuple[int, ...]
    canvas_ids: tuple[int, ...]
    slots: tuple[int, ...]
    mark_ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """`log_probs[slot][option]`: natural log-probability of the mark over the full vocabulary, at temperature 1.

    Values are as the model gave them: a NaN is passed on, not hidden.
    """

    log_probs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a plan and a record need to know of a running engine.

    name: "vllm", "transformers" or "instant".  version: of that library.  path: which implementation reads, for logs.
    model: a short name of the checkpoint (folder name or hub id).  max_model_len, canvas_length: tokens.
    """

    name: str
    version: str
    path: str
    model: str
    max_model_len: int
    canvas_length: int
    vocab_size: int


@runtime_checkable
class Engine(Protocol):
    """A warm engine. All methods may be called from any thread."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def finished(self) -> int:
        """Reads finished since start: grows while the engine makes progress (who is to blame for a slow read?)."""
        ...

    def submit(self, requests: Sequence[ReadRequest]) -> list["Future[ReadResult]"]:
        """Start reads; returns at once, one future a request, in order.

        A future raises EngineError when the engine failed; cancelling it aborts the read.

        Raises:
            EngineError: the engine is closed or dead.
        """
        ...

    def stats(self) -> EngineStats:
        """Reads, their rate and what the engine knows of its steps; cheap enough to be asked every second."""
        ...

    def close(self) -> None:
        """Stop the engine and free its memory; futures that are not done raise EngineError. Idempotent."""
        ...
