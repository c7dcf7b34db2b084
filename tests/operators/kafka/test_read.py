"""Reading and writing in a Beam pipeline: bounded epochs over a warm session, fused, and committed after the write."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from deploy.local.broker import LocalBroker
from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.headers import decision_headers
from slotstream.operators.kafka.producers import close_producers
from slotstream.operators.kafka.read import ReadTopic, _WholeTracker, stopping
from slotstream.operators.kafka.rows import audit_topics
from slotstream.operators.kafka.session import ConsumerSession, close_sessions, session_for
from slotstream.operators.kafka.sink import Outgoing, SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.write import WriteTopic
from slotstream.schemas.record import Message
from tests.conftest import TopicFactory
from tests.operators.kafka.traffic import STAMP, fill, read_all

PARTITIONS = 3


@pytest.fixture
def source(topic: TopicFactory) -> SourceConfig:
    return SourceConfig(topic=topic("in", partitions=PARTITIONS), group="copies", max_buffered_records=100)


@pytest.fixture
def sink(topic: TopicFactory) -> SinkConfig:
    return SinkConfig(decided=topic("decided", partitions=PARTITIONS), review=topic("review"), dead=topic("dead"))


@pytest.fixture
def session(kafka: KafkaConfig, source: SourceConfig) -> Iterator[ConsumerSession]:
    yield session_for(kafka, source)
    stopping.clear()
    close_sessions()
    close_producers()


def as_decided(message: Message) -> Outgoing:
    return Outgoing("decided", message, message.value, decision_headers(message, STAMP))


class Breaking(beam.DoFn):  # type: ignore[misc]
    """Fails the bundle in its middle, once a process."""

    armed = False

    def process(self, element: Outgoing) -> Iterator[Outgoing]:
        if Breaking.armed and element.message.origin.offset == 20:
            Breaking.armed = False
            raise ValueError("as told")
        yield element


def run_epoch(kafka: KafkaConfig, source: SourceConfig, sink: SinkConfig, **bounds: int) -> dict[str, int]:
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    (
        pipeline
        | ReadTopic(kafka, source, **bounds)
        | beam.Map(as_decided)
        | beam.ParDo(Breaking())
        | WriteTopic(kafka, source, sink, STAMP)
    )
    result = pipeline.run()
    result.wait_until_finish()
    return {counter.key.metric.name: counter.committed for counter in result.metrics().query()["counters"]}


@pytest.mark.broker
def test_epochs_copy_a_topic_whole_and_in_order(
    *, kafka: KafkaConfig, source: SourceConfig, sink: SinkConfig, session: ConsumerSession, producer: Any
) -> None:
    fill(producer, source.topic, 250, partitions=PARTITIONS)
    ends, counted = session.end_offsets(), 0
    while not session.caught_up(ends):
        if session.wait(500):
            counted += run_epoch(kafka, source, sink)["written_decided"]
            session.commit(session.positions())
    assert counted == 250
    copies = read_all(kafka, sink.decided)
    assert [(record.partition, record.value) for record in copies] == [
        (partition, b"%d" % n) for partition in range(PARTITIONS) for n in range(partition, 250, PARTITIONS)
    ]


@pytest.mark.broker
def test_a_failed_epoch_is_read_again_and_nothing_is_lost(
    *, kafka: KafkaConfig, source: SourceConfig, sink: SinkConfig, session: ConsumerSession, producer: Any
) -> None:
    fill(producer, source.topic, 150, partitions=PARTITIONS)
    ends, failures, Breaking.armed = session.end_offsets(), 0, True
    while not session.caught_up(ends):
        if not session.wait(500):
            continue
        try:
            run_epoch(kafka, source, sink)
        except ValueError:
            failures += 1
            session.rewind()
        else:
            session.commit(session.positions())
    found = audit_topics(kafka, source, sink)
    assert (failures, found.read, found.folded, found.sound) == (1, 150, 150, True)


@pytest.mark.broker
def test_an_epoch_ends_at_its_bounds_and_leaves_the_rest_ready(
    *, kafka: KafkaConfig, source: SourceConfig, sink: SinkConfig, session: ConsumerSession, producer: Any
) -> None:
    fill(producer, source.topic, 90, partitions=PARTITIONS)
    while session.wait(500) < 90:
        pass
    assert run_epoch(kafka, source, sink, max_records=40)["written_decided"] == 40
    session.commit(session.positions())
    assert session.wait(0) == 50
    assert run_epoch(kafka, source, sink, max_ms=0) == {}
    stopping.set()
    assert run_epoch(kafka, source, sink) == {}
    stopping.clear()
    assert run_epoch(kafka, source, sink)["written_decided"] == 50
    session.commit(session.positions())
    assert session.caught_up(session.end_offsets())


@pytest.mark.broker
def test_a_pipeline_travels_by_pickle_and_finds_the_session_of_its_process(
    kafka: KafkaConfig, source: SourceConfig, kafka_broker: LocalBroker
) -> None:
    same = KafkaConfig.model_validate_json(kafka.model_dump_json())
    assert session_for(same, source.model_copy()) is session_for(kafka, source)
    assert session_for(kafka, source.model_copy(update={"group": "other"})) is not session_for(kafka, source)
    close_sessions()


@pytest.mark.parametrize("fraction", [0.5, 0.001, 1.0])
def test_a_read_is_never_split(fraction: float) -> None:
    tracker = _WholeTracker(OffsetRange(0, 1 << 62))
    assert tracker.try_claim(0)
    assert tracker.try_split(fraction) is None
    assert tracker.current_restriction() == OffsetRange(0, 1 << 62)


def test_a_read_can_be_told_to_checkpoint_now() -> None:
    tracker = _WholeTracker(OffsetRange(0, 100))
    assert tracker.try_claim(7)
    assert tracker.try_split(0) == (OffsetRange(0, 8), OffsetRange(8, 100))
