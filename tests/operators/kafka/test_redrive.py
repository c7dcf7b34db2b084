"""What is put back on a real redrive topic is the record as it was, and a redrive that was cut short goes on."""

from collections.abc import Iterator
from typing import Any

import pytest

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.dead_letter import dead_letter
from slotstream.operators.kafka.dead_topic import letters_of
from slotstream.operators.kafka.header_keys import RawHeaderKey
from slotstream.operators.kafka.headers import Stamp, redriven
from slotstream.operators.kafka.letter import Letter, LetterFilter
from slotstream.operators.kafka.partition import partition_for
from slotstream.operators.kafka.producers import Producers
from slotstream.operators.kafka.redrive import choice_of, redrive
from slotstream.operators.kafka.rows import records_of
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.topics import create_topics, topic_settings
from slotstream.operators.kafka.writer import BatchWriter
from slotstream.schemas.errors import BrokerError, DecodeError
from slotstream.schemas.record import Message, Origin
from tests.conftest import TopicFactory

pytestmark = pytest.mark.broker

STAMP = Stamp("cafe", "labels", "0.1.0")
ERROR = DecodeError("no JSON", code="json_invalid")


class Place:
    """Topics of their own, with the redrive topic; `write` makes letters as the pipeline does."""

    def __init__(self, kafka: KafkaConfig, topic: TopicFactory, *, partitions: int = 2, back: int = 2) -> None:
        kept = {"retention.ms": "-1"}  # the records are from 1970
        names = {name: topic(name, partitions=partitions, configs=kept) for name in ("in", "decided", "review", "dead")}
        self.kafka = kafka
        self.source = SourceConfig(topic=names["in"], group="g")
        self.sink = SinkConfig(decided=names["decided"], review=names["review"], dead=names["dead"])
        create_topics(kafka, {self.source.redrive_topic: back}, configs=kept)
        self.found = topic_settings(kafka, [*names.values(), self.source.redrive_topic])

    def message(self, offset: int, **parts: Any) -> Message:
        origin = Origin(self.source.topic, "uuid", parts.pop("partition", 0), offset)
        given: dict[str, Any] = {"timestamp_ms": 1_000, "key": b"k%d" % offset, "value": b"{"} | parts
        return Message(origin, given.pop("timestamp_ms"), 0, **given)

    def write(self, messages: list[Message]) -> None:
        producers = Producers(self.kafka, self.sink)
        writer = BatchWriter(producers, self.sink, STAMP, self.source.topic)
        for message in messages:
            writer.send(dead_letter(message, STAMP, ERROR, time_ms=1))
        writer.flush()
        producers.close(timeout_s=1)

    def chosen(self) -> Iterator[tuple[Letter, int]]:
        choice = choice_of(self.kafka, self.source, self.sink, self.found, LetterFilter())
        for letter in letters_of(self.kafka, self.sink.dead):
            attempt = choice.attempt(letter)
            if attempt is not None:
                yield letter, attempt

    def redrive(self, chosen: Iterator[tuple[Letter, int]]) -> dict[str, int]:
        return dict(redrive(self.kafka, self.source, self.sink, found=self.found, chosen=chosen))

    def back(self) -> list[Any]:
        return list(records_of(self.kafka, self.source.redrive_topic))


def test_what_is_put_back_is_the_record_as_it_was_and_reads_as_its_next_attempt(
    kafka: KafkaConfig, topic: TopicFactory, apache_kafka: None
) -> None:
    place = Place(kafka, topic)
    sent = [
        place.message(1, headers=(("trace", b"\xff"), ("trace", b""), (RawHeaderKey(b"\xffk"), b"v"))),
        place.message(2, key=None, value=None, partition=1),
        place.message(3, key=b"", value=b"", attempt=4),
    ]
    place.write(sent)
    assert place.redrive(place.chosen()) == {"written": 3}
    for record, message in zip(place.back(), [sent[0], sent[2], sent[1]], strict=True):
        assert (record.key, record.value, record.timestamp, record.partition) == (
            message.key,
            message.value,
            message.timestamp_ms,
            message.origin.partition,
        )
        lying = Message(
            Origin(record.topic, "other", record.partition, record.offset),
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            tuple(record.headers),
        )
        again = redriven(lying)
        assert (again.origin, again.attempt, again.headers) == (message.origin, message.attempt + 1, message.headers)
    assert place.redrive(place.chosen()) == {}


def test_with_another_number_of_partitions_records_are_placed_by_key(
    kafka: KafkaConfig, topic: TopicFactory, apache_kafka: None
) -> None:
    place = Place(kafka, topic, partitions=2, back=3)
    place.write([place.message(n, partition=n % 2) for n in range(12)])
    assert place.redrive(place.chosen()) == {"written": 12}
    assert all(record.partition == partition_for(record.key, 0, 2, 3) for record in place.back())


def test_a_redrive_that_was_cut_short_goes_on_behind_what_is_written(
    kafka: KafkaConfig, topic: TopicFactory, apache_kafka: None
) -> None:  # noida-db's end offsets lag behind what it has acknowledged
    place = Place(kafka, topic)
    place.write([place.message(n, partition=n % 2) for n in range(700)])

    def broken() -> Iterator[tuple[Letter, int]]:
        for number, each in enumerate(place.chosen()):
            if number == 600:
                raise BrokerError("the broker is gone")
            yield each

    with pytest.raises(BrokerError, match=r"the broker is gone. 500 letters are on .*\.redrive for certain"):
        place.redrive(broken())
    assert len(place.back()) == 500
    assert place.redrive(place.chosen()) == {"written": 200}
    keys = [record.key for record in place.back()]
    assert len(keys) == len(set(keys)) == 700
