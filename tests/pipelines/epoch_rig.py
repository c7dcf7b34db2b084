"""A scripted session and an epoch loop around it: what a test of the loop needs, without Kafka and without Beam."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from slotstream.pipelines.epochs import EpochLoop, RunConfig
from slotstream.schemas.errors import EngineError, SlotstreamError

__all__ = ["IN_FLIGHT", "QUICK", "Rig", "ScriptedSession"]

IN_FLIGHT = 4
QUICK = RunConfig(retry_max_wait_s=1e-6, engine_restarts=6)


class ScriptedSession:
    """One partition of `records` records, and a group that remembers; nothing is read twice but after a rewind.

    waits: what the next `wait`s do: an error to raise. commits: the same for `commit`.
    """

    def __init__(self, records: int) -> None:
        self.records = records
        self.committed = 0
        self.taken = 0
        self.deaths = 0
        self.rewinds = 0
        self.waits: list[SlotstreamError] = []
        self.commits: list[SlotstreamError] = []
        self.assigned: frozenset[str] = frozenset({"p0"})
        self.on_wait: Callable[[], None] = lambda: None

    def take(self, most: int) -> range:
        taken = range(self.taken, min(self.records, self.taken + most))
        self.taken = taken.stop
        return taken

    def wait(self, max_wait_ms: int) -> int:
        self.on_wait()
        if self.waits:
            raise self.waits.pop(0)
        return self.records - self.taken

    def positions(self) -> dict[Any, int]:
        return {"p0": self.taken} if self.taken > self.committed else {}

    def commit(self, positions: Mapping[Any, int]) -> None:
        if self.commits:
            raise self.commits.pop(0)
        self.committed = positions.get("p0", self.committed)
        self.deaths = 0

    def rewind(self) -> None:
        self.taken = self.committed
        self.rewinds += 1

    def end_offsets(self) -> dict[Any, int]:
        return {"p0": self.records}

    def caught_up(self, targets: Mapping[Any, int]) -> bool:
        return self.committed >= targets["p0"]

    def engine_deaths(self) -> int:
        return self.deaths

    def count_engine_death(self) -> int:
        self.deaths += 1
        return self.deaths


class Rig:
    """A loop over a scripted session; `written` and `dead` are what a consumer of the outputs would see."""

    def __init__(self, records: int, config: RunConfig = QUICK, poison: set[int] | None = None) -> None:
        self.session = ScriptedSession(records)
        self.stop = threading.Event()
        self.written: list[int] = []
        self.dead: list[int] = []
        self.epochs: list[int] = []
        self.failures: list[BaseException] = []  # of the next epochs
        self.starts: list[SlotstreamError | None] = []  # of the next engine starts
        self.started = 0
        self.turns: list[Mapping[str, int]] = []
        self._poison = poison or set()
        self._condemned: set[int] = set()
        self._latest = -1
        self.loop = EpochLoop(
            config,
            self.session,
            run_epoch=self._epoch,
            start_engine=self._start,
            each_turn=self.turns.append,
            in_flight=IN_FLIGHT,
            stop=self.stop,
            condemn=lambda: self._condemned.add(self._latest),
        )

    def _epoch(self, most: int) -> Mapping[str, int]:
        offsets = self.session.take(most)
        self.epochs.append(len(offsets))
        self._latest = offsets[-1]
        if self.failures:
            self._latest = offsets[-1]
            raise self.failures.pop(0)
        if self._poison - self._condemned & set(offsets):
            raise EngineError("killed")
        self.written += offsets
        self.dead += [offset for offset in offsets if offset in self._condemned]
        return {"written_decided": len(offsets)}

    def _start(self) -> None:
        self.started += 1
        if self.starts and (error := self.starts.pop(0)) is not None:
            raise error
