"""The drain: records in flight in the engine, settled in the order in which they came."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.outcome import Dead, Decided, Forwarded, Outcome
from slotstream.operators.plan import ReadPlan
from slotstream.operators.reading import is_finite, labels_from_reads
from slotstream.operators.route import review_reasons
from slotstream.schemas.errors import EngineError, ReadNotFinite, ReadTimeout, RecordError, StateTooLong
from slotstream.schemas.label import Decision
from slotstream.schemas.record import Record

__all__ = ["Decider", "probe_reads"]


@dataclass(slots=True)
class _InFlight:
    """A record whose reads run or will start soon, or (without reads) an outcome that waits for its turn."""

    outcome: Outcome | None
    size: int = 1  # how much of `max_in_flight` it takes
    record: Record | None = None
    state: str = ""
    requests: tuple[ReadRequest, ...] = ()
    futures: Sequence["Future[ReadResult]"] = ()
    truncated: bool = False


class Decider:
    """Turns records into outcomes, many at a time, in order, each with its own error.

    Call `add` for every record and `drain` at the end of a bundle; both yield outcomes that are ready, oldest first.
    Back-pressure: with `max_in_flight` reads in flight, `add` first waits for the oldest record. The reads of
    `together` records start at once; those of fewer start when the oldest of them is waited for.

    A slow read is blamed on its record only when the engine finished other reads meanwhile; the time counts from when
    the record became the oldest in flight, so that a long queue before a slow engine is nobody's fault.

    Args:
        max_in_flight: reads in flight; a record has one a canvas and draw (and counts as one when it needs none).
        read_timeout_s: how long the oldest record may take.
        together: records that are tokenized and handed to the engine in one go: that costs half of one by one.
        clock: Unix seconds, for `decided_at_ms`.
        monotonic: seconds, to see that the process itself was stopped while it waited.
    """

    def __init__(
        self,
        plan: ReadPlan,
        engine: Engine,
        *,
        max_in_flight: int,
        read_timeout_s: float,
        together: int = 1,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._schema_hash = plan.schema.hash  # computed anew each time: not once a record
        self._engine = engine
        self._engine_name = f"{engine.info.name} {engine.info.version}"
        self._max_in_flight = max_in_flight
        self._read_timeout_s = read_timeout_s
        self._together = together
        self._reads_a_record = plan.reads_a_record
        self._clock = clock
        self._monotonic = monotonic
        self._queue: deque[_InFlight] = deque()
        self._not_started: list[_InFlight] = []  # the youngest of the queue
        self._in_flight = 0

    def add(self, item: Record | Dead | Forwarded) -> Iterator[Outcome]:
        """Start the reads of one record; a message that needs none keeps its place in the order.

        Raises:
            EngineError: the engine failed; nothing that is still in flight has been lost or blamed.
        """
        while self._in_flight >= self._max_in_flight:
            yield self._settle_oldest()
        entry = self._entered(item)
        self._queue.append(entry)
        self._in_flight += entry.size
        if entry.record is not None:
            self._not_started.append(entry)
            if len(self._not_started) >= self._together:
                self._start()
        while self._queue and self._is_ready(self._queue[0]):
            yield self._settle_oldest()

    def drain(self) -> Iterator[Outcome]:
        """Wait for everything in flight.

        Raises:
            EngineError: as `add`.
        """
        while self._queue:
            yield self._settle_oldest()

    def abandon(self) -> None:
        """Cancel what is in flight: the bundle failed and its records will be read again."""
        for entry in self._queue:
            for future in entry.futures:
                future.cancel()
        self._queue.clear()
        self._not_started.clear()
        self._in_flight = 0

    def _entered(self, item: Record | Dead | Forwarded) -> _InFlight:
        if not isinstance(item, Record):
            return _InFlight(item)
        try:
            state = self._plan.schema.state.render(item.fields)
        except RecordError as error:
            return _InFlight(Dead(item.message, error))
        return _InFlight(None, self._reads_a_record, item, state)

    def _start(self) -> None:
        """Start the reads of all that were not started yet."""
        requests: list[ReadRequest] = []
        for entry, planned in zip(
            self._not_started, self._plan.reads_of_all([entry.state for entry in self._not_started]), strict=True
        ):
            if isinstance(planned, StateTooLong):
                assert entry.record is not None
                entry.outcome = Dead(entry.record.message, planned)
            else:
                entry.requests, entry.truncated = planned.requests, planned.truncated
                requests += planned.requests
        futures = iter(self._engine.submit(requests))
        for entry in self._not_started:
            entry.futures = list(islice(futures, len(entry.requests)))
        self._not_started.clear()

    @staticmethod
    def _is_ready(entry: _InFlight) -> bool:
        if entry.outcome is not None:
            return True
        futures = entry.futures
        if len(futures) == 1:
            return futures[0].done()
        return bool(futures) and all(future.done() for future in futures)

    def _settle_oldest(self) -> Outcome:
        entry = self._queue[0]
        if entry.outcome is None and not entry.futures:
            self._start()
        outcome = entry.outcome or self._settle(entry)
        self._in_flight -= self._queue.popleft().size
        return outcome

    def _settle(self, entry: _InFlight) -> Outcome:
        record = entry.record
        assert record is not None
        try:
            results = self._wait(entry.futures)
            try:
                labels = labels_from_reads(self._plan, results)
            except ReadNotFinite:
                labels = labels_from_reads(self._plan, self._read_again_alone(entry))
        except RecordError as error:
            return Dead(record.message, error)
        reasons = review_reasons(self._plan.schema, labels)
        schema = self._plan.schema
        decision = Decision(
            id=record.message.origin.decision_id(self._schema_hash),
            route="review" if reasons else "decided",
            reasons=reasons,
            labels=labels,
            schema_name=schema.name,
            schema_version=schema.version,
            schema_hash=self._schema_hash,
            model=self._engine.info.model,
            engine=self._engine_name,
            prompt_hash=self._plan.prompt_hash,
            draws=schema.draws,
            truncated=entry.truncated,
            decided_at_ms=int(self._clock() * 1000),
        )
        return Decided(record, decision)

    def _wait(self, futures: Sequence["Future[ReadResult]"]) -> list[ReadResult]:
        if all(future.done() for future in futures):
            return [future.result() for future in futures]
        finished_before = self._engine.finished
        late = {future for future in futures if not future.done()}
        own = len(late)
        while late:
            started = self._monotonic()
            _, late = wait(futures, self._read_timeout_s, FIRST_EXCEPTION)
            if self._monotonic() - started < 2 * self._read_timeout_s:
                break  # else the process was stopped and woken: the engine has had no time either
        results = [future.result() for future in futures if future not in late]
        if late:
            for future in late:
                future.cancel()
            self._blame(self._engine.finished - finished_before - (own - len(late)))
        return results

    def _blame(self, others: int) -> NoReturn:
        if others <= 0:
            raise EngineError(f"the engine finished no read within {self._read_timeout_s:g} s (engine.read_timeout_s)")
        raise ReadTimeout(
            f"its read did not finish within {self._read_timeout_s:g} s although the engine finished {others} others "
            "meanwhile"
        )

    def _read_again_alone(self, entry: _InFlight) -> list[ReadResult]:
        """NaN may come from a neighbour or from the engine: read once more with nothing else in flight."""
        others = [future for other in self._queue if other is not entry for future in other.futures]
        wait(others, self._read_timeout_s)  # whatever comes of them is looked at when their own record is settled
        results = self._wait(self._engine.submit(entry.requests))
        if is_finite(results):
            return results
        if not is_finite(self._wait(self._engine.submit(probe_reads(self._plan)))):
            raise EngineError("the engine reads NaN for its probe: its weights or its numerics are broken")
        raise ReadNotFinite("two reads of this record, the second alone, are NaN while the engine's probe is sound")


def probe_reads(plan: ReadPlan) -> tuple[ReadRequest, ...]:
    """The reads of a fixed text: proves that the engine is capable and warms the prefix before the first record."""
    return plan.reads("This is a probe.").requests
