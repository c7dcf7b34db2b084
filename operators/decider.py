"""The drain: records in flight in the engine, settled in the order in which they came."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field

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


class Decider:
    """Turns records into outcomes, many at a time, in order, each with its own error.

    Call `add` for every record and `drain` at the end of a bundle; both yield outcomes that are ready, oldest first.
    Back-pressure: with `max_in_flight` records in flight, `add` first waits for the oldest.

    A slow read is blamed on its record only when the engine finished other reads meanwhile; the time counts from when
    the record became the oldest in flight, so that a long queue before a slow engine is nobody's fault.

    Args:
        read_timeout_s: how long the oldest record may take.
        clock: Unix seconds, for `decided_at_ms`.
    """

    def __init__(
        self,
        plan: ReadPlan,
        engine: Engine,
        *,
        max_in_flight: int,
        read_timeout_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._max_in_flight = max_in_flight
        self._read_timeout_s = read_timeout_s
        self._clock = clock
        self._queue: deque[_InFlight] = deque()

    def add(self, item: Record | Dead | Forwarded) -> Iterator[Outcome]:
        """Start the reads of one record; a message that needs none keeps its place in the order.

        Raises:
            EngineError: the engine failed; nothing that is still in flight has been lost or blamed.
        """
        while len(self._queue) >= self._max_in_flight:
            yield self._settle_oldest()
        self._queue.append(self._start(item))
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
        self._queue.popleft()
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
            id=record.message.origin.decision_id(schema.hash),
            route="review" if reasons else "decided",
            reasons=reasons,
            labels=labels,
            schema_name=schema.name,
            schema_version=schema.version,
            schema_hash=schema.hash,
            model=info.model,
            engine=f"{info.name} {info.version}",
            prompt_hash=self._plan.prompt_hash,
            draws=schema.draws,
            truncated=entry.truncated,
            decided_at_ms=int(self._clock() * 1000),
        )
        return Decided(record, decision)

    def _wait(self, futures: list["Future[ReadResult]"]) -> list[ReadResult]:
        deadline = time.monotonic() + self._read_timeout_s
        finished_before = self._engine.finished
        results = []
        for future in futures:
            try:
                results.append(future.result(timeout=max(0.0, deadline - time.monotonic())))
            except FutureTimeout:
                others = self._engine.finished - finished_before - len(results)
                for late in futures:
                    late.cancel()
                if others <= 0:
                    raise EngineError(
                        f"the engine finished no read within {self._read_timeout_s:g} s (engine.read_timeout_s)"
                    ) from None
                raise ReadTimeout(
                    f"its read did not finish within {self._read_timeout_s:g} s although the engine finished "
                    f"{others} others meanwhile"
                ) from None
        return results

    def _read_again_alone(self, entry: _InFlight) -> list[ReadResult]:
        """NaN may come from a neighbour or from the engine: read once more with nothing else in flight."""
        for other in self._queue:
            if other is not entry:
                for future in other.futures:
                    _let_finish(future, self._read_timeout_s)
        results = self._wait(self._engine.submit(entry.requests))
        if is_finite(results):
            return results
        if not is_finite(self._wait(self._engine.submit(probe_reads(self._plan)))):
            raise EngineError("the engine reads NaN for its probe: its weights or its numerics are broken")
        raise ReadNotFinite("two reads of this record, the second alone, are NaN while the engine's probe is sound")


def _let_finish(future: "Future[ReadResult]", timeout_s: float) -> None:
    # Whatever comes of it is looked at when its own record is settled.
    future.exception(timeout=timeout_s)


def probe_reads(plan: ReadPlan) -> tuple[ReadRequest, ...]:
    """The reads of a fixed text: proves that the engine is capable and warms the prefix before the first record."""
    return plan.reads("This is a probe.").requests
