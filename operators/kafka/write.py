"""From Beam to the three output topics: send in `process`, check every acknowledgement in `finish_bundle`."""

import time
from collections.abc import Callable

import apache_beam as beam
from apache_beam.metrics import Metrics

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.headers import Stamp
from slotstream.operators.kafka.producers import Producers, producers_for
from slotstream.operators.kafka.session import ConsumerSession, session_for
from slotstream.operators.kafka.sink import Outgoing, SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.writer import BatchWriter
from slotstream.schemas.errors import BrokerError

__all__ = ["CHECK_EVERY_S", "WriteFn", "WriteTopic"]

CHECK_EVERY_S = 0.01
"""Far below the shortest session timeout, far above the time between two records."""


class WriteFn(beam.DoFn):  # type: ignore[misc]
    """`Outgoing` in, nothing out. When `finish_bundle` returns, every record of the bundle is acknowledged.

    Before a send and before the last wait it asks the session whether this process is still a member of its group: a
    process that was stopped for longer than the session timeout writes nothing of what it had in flight. It asks when
    the last answer is older than `CHECK_EVERY_S`, which after such a stop it is.
    """

    def __init__(
        self,
        kafka: KafkaConfig,
        source: SourceConfig,
        sink: SinkConfig,
        stamp: Stamp,
        *,
        fenced: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kafka = kafka
        self._source = source
        self._sink = sink
        self._stamp = stamp
        self._fenced = fenced
        self._monotonic = monotonic
        self._check_again_at = 0.0
        self._producers: Producers
        self._session: ConsumerSession | None
        self._writer: BatchWriter | None = None
        self._counters = {
            name: Metrics.counter("slotstream", counter)
            for name, counter in {
                "decided": "written_decided",
                "review": "written_review",
                "dead": "written_dead",
                "refused": "records_refused",
                "shrunk": "dead_letters_shrunk",
                "null_headers": "null_headers_emptied",
            }.items()
        }

    def start_bundle(self) -> None:
        self._producers = producers_for(self._kafka, self._sink)
        self._session = session_for(self._kafka, self._source) if self._fenced else None
        self._writer = BatchWriter(self._producers, self._sink, self._stamp, self._source.topic)
        self._check_again_at = 0.0

    def process(self, element: Outgoing) -> None:
        assert self._writer is not None
        if self._monotonic() >= self._check_again_at:
            self._check_member()
        self._writer.send(element)

    def finish_bundle(self) -> None:
        assert self._writer is not None
        self._check_member()
        writer, self._writer = self._writer, None
        writer.flush()
        for name, count in writer.written.items():
            self._counters[name].inc(count)

    def _check_member(self) -> None:
        if self._session is None:
            return
        try:
            self._session.check_member()
        except BrokerError:
            self._producers.close()  # what is not sent yet stays unsent
            raise
        self._check_again_at = self._monotonic() + CHECK_EVERY_S


class WriteTopic(beam.PTransform):  # type: ignore[misc]
    """Write each `Outgoing` to its route's topic: same key, headers and time stamp; same partition where counts match.

    A record that its topic refuses for good (too large, a time stamp out of range) goes to `dead` as it was read; a
    letter that `dead` refuses goes there without its value; a letter that cannot be written fails the bundle.

    Args:
        kafka: the cluster.
        source: where the records come from: its partitions are kept, and with `fenced` its group is asked.
        sink: the output topics.
        stamp: for the headers of refused records.
        fenced: write only while this process's session is a member of the group. Off where another one reads.
    """

    def __init__(
        self, kafka: KafkaConfig, source: SourceConfig, sink: SinkConfig, stamp: Stamp, *, fenced: bool = True
    ) -> None:
        super().__init__()
        self._fn = WriteFn(kafka, source, sink, stamp, fenced=fenced)

    def expand(self, records: beam.PCollection) -> beam.PCollection:
        return records | "Write" >> beam.ParDo(self._fn)
