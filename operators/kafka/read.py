"""From the session to Beam: a splittable DoFn that emits what `ConsumerSession.wait` made ready."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.session import ConsumerSession, session_for
from slotstream.operators.kafka.source import SourceConfig
from slotstream.schemas.record import Message

__all__ = ["ReadTopic", "stopping"]

stopping = threading.Event()
"""Set it to end reading; it lives here, in an imported module, because `__main__` is another module in a worker."""

CHUNK = 32  # records between two looks at the clock


@dataclass(frozen=True, slots=True)
class _Epoch:
    """One bounded read of a session: over after so many records, after so long, or when nothing is ready any more."""

    kafka: KafkaConfig
    source: SourceConfig
    max_records: int
    max_ms: int


class _WholeTracker(OffsetRestrictionTracker):  # type: ignore[misc]
    """Counts records handed out, and is never split: two readers of one session would tear its partitions' order.

    Prism asks for a split at 0.5 after 100 ms without progress; a residual of that would start at nothing that exists.
    Fraction 0, "checkpoint now", is what `defer_remainder` needs in an unbounded read.
    """

    def try_split(self, fraction_of_remainder: float) -> tuple[OffsetRange, OffsetRange] | None:
        if fraction_of_remainder != 0:
            return None
        parts: tuple[OffsetRange, OffsetRange] | None = super().try_split(fraction_of_remainder)
        return parts


class _WholeEpoch(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, element: _Epoch) -> OffsetRange:
        return OffsetRange(0, element.max_records)

    def create_tracker(self, restriction: OffsetRange) -> _WholeTracker:
        return _WholeTracker(restriction)

    def restriction_size(self, element: _Epoch, restriction: OffsetRange) -> int:  # noqa: ARG002
        return int(restriction.size())


class _ReadFn(beam.DoFn):  # type: ignore[misc]
    """Hands on what is ready. The session is the process's own, never this object's: runners keep DoFns alive."""

    def __init__(
        self,
        session: Callable[[KafkaConfig, SourceConfig], ConsumerSession] = session_for,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._clock = clock

    def process(
        self,
        element: _Epoch,
        tracker: Any = beam.DoFn.RestrictionParam(_WholeEpoch()),  # noqa: B008
    ) -> Iterator[Message]:
        session = self._session(element.kafka, element.source)
        until = self._clock() + element.max_ms / 1000
        start, stop = tracker.current_restriction().start, tracker.current_restriction().stop
        while start < stop and self._clock() < until and not stopping.is_set():
            if not tracker.try_claim(start):
                return
            messages = session.take(min(CHUNK, stop - start))
            if not messages:
                break
            yield from messages
            start += len(messages)
        tracker.try_claim(stop)  # the rest of the range is done: this epoch is over


class ReadTopic(beam.PTransform):  # type: ignore[misc]
    """Messages of the input topic that this process's session has ready, each partition in its order.

    One epoch: before the pipeline runs, `session_for(kafka, source).wait(...)` has polled Kafka; the read drains that
    and never polls, so that partitions do not move while records are in flight. The downstream's own pace is the back
    pressure: what `max_ms` leaves over stays ready for the next epoch. Commit after the run succeeded.

    Args:
        kafka: the cluster.
        source: the topic and the group.
        max_records: records an epoch, at most.
        max_ms: how long an epoch takes records, at most 2,000 while partitions are shared with other members.
    """

    def __init__(self, kafka: KafkaConfig, source: SourceConfig, *, max_records: int = 100_000, max_ms: int = 2_000):
        super().__init__()
        self._epoch = _Epoch(kafka, source, max_records, max_ms)

    def expand(self, pbegin: beam.pvalue.PBegin) -> beam.PCollection[Message]:
        return pbegin | "Epoch" >> beam.Create([self._epoch], reshuffle=False) | "Read" >> beam.ParDo(_ReadFn())
