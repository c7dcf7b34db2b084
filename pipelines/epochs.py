"""The epoch loop: wait for records outside Beam, run one bounded pipeline over them, commit; again and again."""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Set
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from slotstream.operators.decode import condemn_latest
from slotstream.pipelines.blame import Blame
from slotstream.schemas.errors import BrokerError, EngineError, RecordError, RegistryUnavailable, SlotstreamError

__all__ = ["EpochLoop", "RunConfig", "Session", "told_by"]

_log = logging.getLogger(__name__)

WAIT_MS = 500
"""How long one wait for records lasts: a signal is seen no later."""

Positions = Mapping[Hashable, int]


class RunConfig(BaseModel):
    """How the local runner works."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch_max_records: int = Field(5_000, ge=1, description="Records between two commits, at most.")
    epoch_max_ms: int = Field(
        2_000,
        ge=10,
        le=2_000,
        description="How long an epoch takes records; partitions can move to another replica only between epochs.",
    )
    engine_restarts: int = Field(
        8, ge=0, description="How often a dead engine is started again without a record decided in between."
    )
    retry_max_wait_s: float = Field(
        30.0, gt=0, description="Longest pause while the broker or the registry does not answer; pauses start at 1 s."
    )
    shutdown_timeout_s: float = Field(
        30.0, gt=0, description="How long records in flight may take to finish after SIGTERM; then they are read again."
    )
    progress_s: float = Field(5.0, gt=0, description="Time between two progress lines.")


class Session(Protocol):
    """What the loop needs of `ConsumerSession`."""

    @property
    def assigned(self) -> Set[Hashable]: ...
    def wait(self, max_wait_ms: int) -> int: ...
    def positions(self) -> Positions: ...
    def commit(self, positions: Positions) -> None: ...
    def rewind(self) -> None: ...
    def end_offsets(self) -> Positions: ...
    def caught_up(self, targets: Positions) -> bool: ...
    def engine_deaths(self) -> int: ...
    def count_engine_death(self) -> int: ...


class EpochLoop:
    """Drives epochs until it is told to stop, or has caught up.

    Args:
        session: this process's membership of the group; the loop is the only one that polls and commits.
        run_epoch: decides at most so many ready records and writes them; returns its counters when all is flushed.
        start_engine: has the engine warm and proven when it returns.
        each_turn: called after every wait with the counters of what was committed (none); may raise to end the loop.
        in_flight: records that the engine holds at once.
        stop: set it to end the loop after the current epoch.
    """

    def __init__(
        self,
        config: RunConfig,
        session: Session,
        *,
        run_epoch: Callable[[int], Mapping[str, int]],
        start_engine: Callable[[], object],
        each_turn: Callable[[Mapping[str, int]], object],
        in_flight: int,
        stop: threading.Event,
        condemn: Callable[[], object] = condemn_latest,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._session = session
        self._run_epoch = run_epoch
        self._start_engine = start_engine
        self._each_turn = each_turn
        self._in_flight = in_flight
        self._stop = stop
        self._condemn = condemn
        self._clock = clock
        self._blame: Blame | None = None
        self._committed: dict[Hashable, int] = {}
        self._deaths = 0  # of the engine, since a record was last decided
        self._failures = 0  # of broker or registry, in a row
        self._failed_at = 0.0

    def run(self, *, until_caught_up: bool = False) -> None:
        """Returns when `stop` is set or, with `until_caught_up`, the ends seen at start are committed.

        Raises:
            SlotstreamError: what a retry cannot mend, or the engine died too often.
        """
        targets: Positions | None = None
        while not self._stop.is_set():
            try:
                if until_caught_up and targets is None:
                    targets = self._session.end_offsets()
                committed = self._epoch() if self._session.wait(WAIT_MS) else {}
                self._each_turn(committed)
                if targets is not None and self._session.caught_up(targets):
                    return
            except (BrokerError, RegistryUnavailable) as error:
                self._pause(error)

    def lag(self) -> int:
        """Records (and transaction markers) that wait in this member's partitions, as far as it has read them yet.

        Raises:
            BrokerError: Kafka does not answer.
        """
        mine, ends = self._session.assigned, self._session.end_offsets()
        return sum(max(0, ends.get(at, 0) - offset) for at, offset in self._committed.items() if at in mine)

    def _epoch(self) -> Mapping[str, int]:
        """Run and commit one epoch; its counters, none when nothing could be committed."""
        if self._blame is None:  # known only when partitions are assigned
            deaths = self._session.engine_deaths()
            self._blame = Blame(self._config.epoch_max_records, self._in_flight, deaths=deaths)
        blame = self._blame
        blame.keep(self._session.assigned)
        try:
            counted = self._run_epoch(blame.epoch_records)
        except Exception as error:
            cause = told_by(error)
            if cause is None:
                raise
            if self._stop.is_set():
                _log.warning("records in flight are dropped and will be read again: %s", cause)
            elif isinstance(cause, EngineError):
                self._engine_died(cause)
            else:
                raise cause from error
            return {}
        positions = self._session.positions()
        self._session.commit(positions)
        self._committed |= positions
        blame.passed(positions)
        self._deaths = self._failures = 0
        return counted

    def _engine_died(self, error: EngineError) -> None:
        assert self._blame is not None
        if self._blame.alone:
            culprit = self._condemn()
            _log.error("%s killed the engine when it was alone: it goes to dead as engine_crash", culprit)
        else:
            positions, deaths = self._session.positions(), self._count_death()
            self._blame.died(positions, deaths)
        self._session.rewind()
        self._deaths += 1
        while not self._stop.is_set():
            if self._deaths > self._config.engine_restarts:
                raise EngineError(f"the engine died {self._deaths} times without a record decided in between: {error}")
            _log.error("the engine died (%d since the last decided record), starting it again: %s", self._deaths, error)
            try:
                self._start_engine()
                return
            except EngineError as again:
                error = again
                self._deaths += 1
                self._stop.wait(min(2.0 ** min(self._deaths, 10), self._config.retry_max_wait_s))

    def _count_death(self) -> int:
        try:
            return max(self._session.count_engine_death(), self._deaths + 1)
        except BrokerError as error:
            _log.warning("the engine's death could not be noted in the group's commits: %s", error)
            return self._deaths + 1

    def _pause(self, error: SlotstreamError) -> None:
        self._session.rewind()
        longest_s = self._config.retry_max_wait_s
        if self._clock() - self._failed_at > 2 * longest_s:
            self._failures = 0
        wait_s = min(2.0 ** min(self._failures, 10), longest_s)
        self._failures, self._failed_at = self._failures + 1, self._clock() + wait_s
        _log.warning("paused for %g s, nothing is lost or dead-lettered: %s", wait_s, error)
        self._stop.wait(wait_s)


def told_by(error: BaseException) -> SlotstreamError | None:
    """The error of ours behind what a Beam run raised; None when there is none (a defect).

    Beam raises a copy with the step's name in its message, or a RuntimeError, while it handles the original.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, SlotstreamError) and not isinstance(current, RecordError):
            original = current.__context__
            return original if hasattr(current, "_tagged_with_step") and type(original) is type(current) else current
        current = current.__cause__ or current.__context__
    return None
