"""The drain: records in flight in the engine, settled in the order in which they came."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field
from typing import NoReturn

from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.outcome import Dead, Decided, Forwarded, Outcome
from slotstream.operators.plan import ReadPlan
from slotstream.operators.reading import is_finite, labels_from_reads
from slotstream.operators.route import review_reasons
from slotstream.schemas.errors import EngineError, ReadNotFinite, ReadTimeout, RecordError
from slotstream.schemas.label import Decision
from slotstream.schemas.record import Record

__all__ = ["Decider", "probe_reads"]


@dataclass(slots=True)
class _InFlight:
    """A record whose reads run, or (without reads) an outcome that waits for its turn."""

    outcome: Outcome | None
    record: Record | None = None
    requests: tuple[ReadRequest, ...] = ()
    futures: list["Future[ReadResult]"] = field(default_factory=list)
    truncated: bool = False

    @property
    def size(self) -> int:
        return len(self.futures) or 1


class Decider:
    """Turns records into outcomes, many at a time, in order, each with its own error.

    Call `add` for every record and `drain` at the end of a bundle; both yield outcomes that are ready, oldest first.
    Back-pressure: with `max_in_flight` reads in flight, `add` first waits for the oldest record.

    A slow read is blamed on its record only when the engine finished other reads meanwhile; the time counts from when
    the record became the oldest in flight, so that a long queue before a slow engine is nobody's fault.

    Args:
        max_in_flight: reads in flight; a record has one a canvas and draw (and counts as one when it needs none).
        read_timeout_s: how long the oldest record may take.
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
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._schema_hash = plan.schema.hash  # computed anew each time: not once a record
        self._engine = engine
        self._max_in_flight = max_in_flight
        self._read_timeout_s = read_timeout_s
        self._clock = clock
        self._monotonic = monotonic
        self._queue: deque[_InFlight] = deque()
        self._in_flight = 0

    def add(self, item: Record | Dead | Forwarded) -> Iterator[Outcome]:
        """Start the reads of one record; a message that needs none keeps its place in the order.

        Raises:
            EngineError: the engine failed; nothing that is still in flight has been lost or blamed.
        """
        while self._in_flight >= self._max_in_flight:
            yield self._settle_oldest()
        entry = self._start(item)
        self._queue.append(entry)
        self._in_flight += entry.size
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
        self._in_flight = 0

    def _start(self, item: Record | Dead | Forwarded) -> _InFlight:
        if not isinstance(item, Record):
            return _InFlight(outcome=item)
        try:
            planned = self._plan.reads(self._plan.schema.state.render(item.fields))
        except RecordError as error:
            return _InFlight(outcome=Dead(item.message, error))
        futures = self._engine.submit(planned.requests)
        return _InFlight(None, item, planned.requests, futures, planned.truncated)

    @staticmethod
    def _is_ready(entry: _InFlight) -> bool:
        return all(future.done() for future in entry.futures)

    def _settle_oldest(self) -> Outcome:
        entry = self._queue[0]
        outcome = entry.outcome or self._settle(entry)
        self._in_flight -= self._queue.popleft().size
        return outcome

    def _settle(self, entry: _InFlight) -> Outcome:
        record = entry.record
        assert record is not None
        try:
            results = self._wait(entry.futures)
            if not is_finite(results):
                results = self._read_again_alone(entry)
            labels = labels_from_reads(self._plan, results)
        except RecordError as error:
            return Dead(record.message, error)
        reasons = review_reasons(self._plan.schema, labels)
        schema, info = self._plan.schema, self._engine.info
        decision = Decision(
            id=record.message.origin.decision_id(self._schema_hash),
            route="review" if reasons else "decided",
            reasons=reasons,
            labels=labels,
            schema_name=schema.name,
            schema_version=schema.version,
            schema_hash=self._schema_hash,
            model=info.model,
            engine=f"{info.name} {info.version}",
            prompt_hash=self._plan.prompt_hash,
            draws=schema.draws,
            truncated=entry.truncated,
            decided_at_ms=int(self._clock() * 1000),
        )
        return Decided(record, decision)

    def _wait(self, futures: list["Future[ReadResult]"]) -> list[ReadResult]:
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
