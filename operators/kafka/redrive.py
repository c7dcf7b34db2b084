"""Putting dead letters back: what lies on the topics decides the choice, and the chosen ones go to `<input>.redrive`.

All is read as a stream; what is held is two numbers a letter (Attempts) and, for a compacted output, a digest a key.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kafka.errors import AuthorizationError, InvalidTimestampError, KafkaError, RetriableError

from slotstream.operators.kafka.connection import KafkaConfig, broker_errors, told
from slotstream.operators.kafka.dead_topic import TELL_EVERY_S, letters_of, told_as_it_goes
from slotstream.operators.kafka.headers import ERROR_PREFIXES, identity_of
from slotstream.operators.kafka.letter import Letter, LetterFilter
from slotstream.operators.kafka.partition import partition_for
from slotstream.operators.kafka.producers import NULL, Producers
from slotstream.operators.kafka.redrive_choice import Attempts, Choice, NewestOfKeys
from slotstream.operators.kafka.rows import records_of
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.topics import TopicSettings
from slotstream.operators.kafka.writer import REFUSED
from slotstream.schemas.errors import BrokerError
from slotstream.schemas.record import Headers

__all__ = ["choice_of", "redrive", "redrive_headers", "redriven_attempts"]

logger = logging.getLogger(__name__)

BATCH_RECORDS, BATCH_BYTES = 500, 16 << 20
"""So much is sent before every acknowledgement is looked at."""


def choice_of(
    kafka: KafkaConfig,
    source: SourceConfig,
    sink: SinkConfig,
    found: dict[str, TopicSettings],
    wanted: LetterFilter,
    *,
    framed: bool = False,
    again: bool = False,
    force: bool = False,
) -> Choice:
    """Read what the choice depends on: the dead and the redrive topic, and the outputs that are compacted.

    Args:
        found: those of the topics that exist, with their settings.
        framed: see letter_of.
        again: also letters that are redriven already.
        force: also letters whose key has a newer record on a compacted output.

    Raises:
        BrokerError: a topic cannot be read to its end.
    """
    latest = Attempts()
    for letter in letters_of(kafka, sink.dead, framed=framed):
        if letter.identity is not None and letter.identity.origin.topic == source.topic:
            latest.add(letter.identity)
    redriven = redriven_attempts(kafka, source) if source.redrive_topic in found else Attempts()
    compacted = [
        name
        for name in (sink.decided, sink.review)
        if name in found and "compact" in found[name].configs.get("cleanup.policy", "")
    ]
    newest = NewestOfKeys() if compacted and not force else None
    if newest is not None:
        choice = Choice(source.topic, wanted, latest=latest, redriven=redriven, again=again)
        for letter in letters_of(kafka, sink.dead, framed=framed):
            if choice.attempt(letter) is not None and letter.key is not None:
                newest.want(letter.key)
        for name in compacted:
            for record in _records(kafka, name):
                identity = identity_of(tuple(record.headers), prefix=kafka.header_prefix)
                newest.add(record.key, identity, record.timestamp)
    return Choice(source.topic, wanted, latest=latest, redriven=redriven, newest=newest, again=again)


def redriven_attempts(kafka: KafkaConfig, source: SourceConfig) -> Attempts:
    """What was put back already: the attempts of the letters that lie on the redrive topic.

    Raises:
        BrokerError: it does not exist, or cannot be read to its end.
    """
    redriven = Attempts()
    for record in _records(kafka, source.redrive_topic):
        identity = identity_of(tuple(record.headers), prefix=kafka.header_prefix)
        if identity is not None:
            redriven.add(identity)
    return redriven


def redrive_headers(letter: Letter, attempt: int, *, prefix: str) -> Headers:
    """The record's own headers in their order, then which record it is; why it was dead stays on the dead topic."""
    assert letter.identity is not None
    origin, schema_hash = letter.identity.origin, letter.identity.schema_hash
    ours = (f"{prefix}.", *ERROR_PREFIXES)
    return (
        *((name, value or b"") for name, value in letter.headers if not name.startswith(ours)),
        (f"{prefix}.decision_id", origin.decision_id(schema_hash).encode()),
        (f"{prefix}.origin", str(origin).encode()),
        (f"{prefix}.attempt", b"%d" % attempt),
    )


def redrive(
    kafka: KafkaConfig,
    source: SourceConfig,
    sink: SinkConfig,
    *,
    found: dict[str, TopicSettings],
    chosen: Iterable[tuple[Letter, int]],
    clock: Callable[[], float] = time.monotonic,
) -> Counter[str]:
    """Write letters with their attempts to the redrive topic, and wait for every acknowledgement.

    Key, value, own headers and time stamp are the record's; its partition is kept where the counts match.

    Args:
        found: settings of the redrive topic, and of the input topic if it exists.
        clock: monotonic seconds.

    Returns:
        How many are `written`; of these `timeless` got the time of writing, for the topic refuses their own; how many
        the topic has `refused` for good, such as too large ones.

    Raises:
        BrokerError: Kafka fails. What is written stays: the same command goes on behind it.
    """
    topic = source.redrive_topic
    counts = (found[source.topic].partitions if source.topic in found else 0, found[topic].partitions)
    writer = _Writer(kafka, sink, topic, counts)
    done: Counter[str] = Counter()
    told_at = clock()
    try:
        for batch in _batches(chosen):
            done.update(writer.write(batch))
            if clock() - told_at >= TELL_EVERY_S:
                logger.info("%s letters written to %s", f"{done['written']:,}", topic)
                told_at = clock()
    except BrokerError as error:
        raise BrokerError(
            f"{error}. {done['written']:,} letters are on {topic} for certain; the same command goes on behind them"
        ) from error
    finally:
        writer.close()
    return done


class _Writer:
    """Writes letters in batches. A batch is refused as a whole, so what failed is tried again alone."""

    def __init__(self, kafka: KafkaConfig, sink: SinkConfig, topic: str, counts: tuple[int, int]) -> None:
        self._producers = Producers(kafka, sink)
        self._prefix = kafka.header_prefix
        self._longest_s = sink.delivery_timeout_ms / 1000
        self._topic = topic
        self._counts = counts

    def write(self, batch: Sequence[tuple[Letter, int]]) -> Counter[str]:
        done: Counter[str] = Counter()
        with broker_errors(f"writing to {self._topic}"):
            sent = [(letter, attempt, self._send(letter, attempt)) for letter, attempt in batch]
            self._producers.flush(self._longest_s)
            for letter, attempt, future in sent:
                error = self._error(future)
                if error is not None:
                    error = self._alone(letter, attempt)
                if isinstance(error, InvalidTimestampError):
                    error = self._alone(letter, attempt, timeless=True)
                    done["timeless"] += error is None
                if error is not None:
                    logger.warning(
                        "%s is not redriven: topic %s refuses it: %s", letter.place, self._topic, told(error)
                    )
                done["written" if error is None else "refused"] += 1
        return done

    def close(self) -> None:
        self._producers.close(timeout_s=1)

    def _alone(self, letter: Letter, attempt: int, *, timeless: bool = False) -> BaseException | None:
        future = self._send(letter, attempt, timeless=timeless)
        self._producers.flush(self._longest_s)
        error = self._error(future)
        if error is not None and not isinstance(error, REFUSED):
            raise error
        return error

    def _send(self, letter: Letter, attempt: int, *, timeless: bool = False) -> Any:
        """The future, or the error that kafka-python raised at once."""
        assert letter.identity is not None
        timestamp_ms = letter.timestamp_ms if letter.original_ms is None else letter.original_ms
        producer = self._producers.careful  # not idempotent, so that it outlives a refusal
        try:
            return producer.send(
                self._topic,
                value=NULL if letter.value is None else letter.value,
                key=letter.key,
                headers=list(redrive_headers(letter, attempt, prefix=self._prefix)),
                partition=partition_for(letter.key, letter.identity.origin.partition, *self._counts),
                timestamp_ms=None if timeless or not -1 <= timestamp_ms < 1 << 63 else timestamp_ms,
            )
        except KafkaError as error:
            return error

    def _error(self, future: Any) -> BaseException | None:
        """None when it is acknowledged; what another try, or another login, would settle is raised."""
        error: BaseException | None = future if isinstance(future, BaseException) else None
        if error is None:
            try:
                future.get(timeout=self._longest_s)
            except KafkaError as failed:
                error = failed
        if isinstance(error, RetriableError | AuthorizationError):
            raise error
        return error


def _records(kafka: KafkaConfig, topic: str) -> Iterator[Any]:
    return told_as_it_goes(records_of(kafka, topic), f"records of {topic} read", time.monotonic)


def _batches(chosen: Iterable[tuple[Letter, int]]) -> Iterator[Sequence[tuple[Letter, int]]]:
    batch: list[tuple[Letter, int]] = []
    size = 0
    for letter, attempt in chosen:
        batch.append((letter, attempt))
        size += letter.size
        if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
