"""Writing a batch so that nothing is lost and no neighbour suffers: send, check every future, settle refusals."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.errors import (
    AuthorizationError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RetriableError,
)

from slotstream.operators.kafka.connection import broker_errors
from slotstream.operators.kafka.dead_letter import dead_letter, smaller
from slotstream.operators.kafka.headers import Stamp
from slotstream.operators.kafka.partition import partition_for
from slotstream.operators.kafka.producers import NULL, Producers
from slotstream.operators.kafka.sink import Outgoing, SinkConfig
from slotstream.schemas.errors import BrokerError, RecordError, RecordRefused, RecordTooLarge

__all__ = ["REFUSED", "BatchWriter", "refusal"]

logger = logging.getLogger(__name__)

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
REFUSED = (*TOO_LARGE, InvalidTimestampError, InvalidRecordError)
GRACE_S = 5  # kafka-python fails a record itself when delivery_timeout_ms is over
ROUNDS_WITHOUT_PROGRESS = 3
_warned: set[tuple[str, int, int]] = set()


def refusal(error: BaseException, topic: str) -> RecordError:
    """The record's error when its output topic does not take it."""
    if isinstance(error, TOO_LARGE):
        return RecordTooLarge(f"the record is too large for topic {topic}: raise its max.message.bytes, or write less")
    detail = error.args[0] if error.args else type(error).__name__
    if isinstance(error, InvalidTimestampError):
        text = f"topic {topic} refuses the record's time stamp (message.timestamp.*.max.ms): {detail}"
        return RecordRefused(text, code="timestamp_refused")
    return RecordRefused(f"topic {topic} refuses the record: {detail}")


@dataclass(slots=True)
class _Sent:
    outgoing: Outgoing
    topic: str
    partition: int
    future: Any = None  # FutureRecordMetadata, or the error that send() raised
    timeless: bool = False  # written with the time of writing: its own time stamp was refused

    @property
    def error(self) -> BaseException | None:
        return self.future if isinstance(self.future, BaseException) else self.future.exception


class BatchWriter:
    """The records of one bundle: `send` each, then `flush`. After an error the bundle has to be read and sent again.

    Args:
        producers: this process's.
        sink: the output topics.
        stamp: for the headers of a record that an output topic refuses.
        source_topic: whose partition count decides whether partitions are kept.
        clock: Unix seconds.
    """

    def __init__(
        self,
        producers: Producers,
        sink: SinkConfig,
        stamp: Stamp,
        source_topic: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._producers = producers
        self._sink = sink
        self._stamp = stamp
        self._source_topic = source_topic
        self._clock = clock
        self._generation = producers.generation
        self._limits = producers.limits if sink.compression == "none" else {}
        self._sent: list[_Sent] = []
        self._counts: dict[str, int] = {}
        self.written: Counter[str] = Counter()
        """Records acknowledged per route, `refused` by their topic, `shrunk` for dead; `null_headers` made empty."""

    def send(self, outgoing: Outgoing) -> None:
        """Start writing one record; the order of calls is the order in each output partition.

        Raises:
            BrokerError: Kafka does not answer.
        """
        self._sent.append(self._begin(outgoing))

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. A record that its topic refuses for good goes to `dead`.

        Raises:
            BrokerError: not all is acknowledged, or `dead` refuses a letter: nothing of this bundle may be committed.
            ConfigError: this client may not write there.
        """
        rounds = 0
        while failed := self._failed():
            allowed = ROUNDS_WITHOUT_PROGRESS + self.written["refused"] + self.written["shrunk"]
            for sent in failed:
                error = sent.error
                if error and (rounds >= allowed or isinstance(error, RetriableError | AuthorizationError)):
                    with broker_errors(f"writing to {sent.topic}"):
                        raise error
            rounds += 1
            self._resend(failed)
        self.written.update(sent.outgoing.route for sent in self._sent)
        self._sent = []

    # ---- inside ----

    def _begin(self, outgoing: Outgoing) -> _Sent:
        topic = self._sink.topic(outgoing.route)
        limit = self._limits.get(topic)
        while limit is not None and outgoing.least_bytes() > limit:
            too_large = MessageSizeTooLargeError(f"{outgoing.least_bytes()} bytes, max.message.bytes is {limit}")
            if outgoing.route != "dead":
                return self._begin(self._refused(outgoing, too_large, topic))
            outgoing = self._smaller(outgoing, too_large)
        sent = _Sent(outgoing, topic, self._partition(outgoing, topic))
        self._start(sent, careful=outgoing.route == "dead")
        return sent

    def _start(self, sent: _Sent, *, careful: bool) -> None:
        producer = self._producers.careful if careful else self._producers.ordered
        message, value, headers = sent.outgoing.message, sent.outgoing.value, sent.outgoing.headers
        if None in [content for _, content in headers]:
            self.written["null_headers"] += sum(content is None for _, content in headers)
            headers = tuple((name, b"" if content is None else content) for name, content in headers)
        own_time = not sent.timeless and -1 <= message.timestamp_ms < 1 << 63
        try:
            sent.future = producer.send(
                sent.topic,
                value=NULL if value is None else value,
                key=sent.outgoing.key,
                headers=list(headers),
                partition=sent.partition,
                timestamp_ms=message.timestamp_ms if own_time else None,
            )
        except KafkaError as error:  # also: the producer was closed by another bundle's renewal
            sent.future = error

    def _partition(self, outgoing: Outgoing, topic: str) -> int:
        source, target = self._count(self._source_topic), self._count(topic)
        if source != target and (topic, source, target) not in _warned:
            _warned.add((topic, source, target))
            logger.warning(
                "%s has %d partitions and %s has %d: records are placed by key, so order holds per key only",
                *(self._source_topic, source, topic, target),
            )
        return partition_for(outgoing.key, outgoing.message.origin.partition, source, target)

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            with broker_errors(f"asking for the partitions of {topic}"):
                self._counts[topic] = len(self._producers.ordered.partitions_for(topic))
        return self._counts[topic]

    def _failed(self) -> list[_Sent]:
        self._await(self._sent)
        return [sent for sent in self._sent if sent.error is not None]

    def _await(self, sents: Iterable[_Sent]) -> None:
        """Until each is acknowledged or failed."""
        longest_s = self._sink.delivery_timeout_ms / 1000 + GRACE_S
        until = time.monotonic() + longest_s
        waiting = [sent for sent in sents if not (isinstance(sent.future, BaseException) or sent.future.is_done)]
        if waiting:
            self._producers.flush(longest_s)
        for sent in waiting:
            try:
                sent.future.get(timeout=max(0.001, until - time.monotonic()))
            except KafkaError as error:
                if not sent.future.is_done:
                    raise BrokerError(f"a record to {sent.topic} was neither acknowledged nor refused") from error

    def _resend(self, failed: Sequence[_Sent]) -> None:
        """Send again what is not acknowledged, in order; whatever may be at fault goes alone, after all before it."""
        if any(sent.outgoing.route != "dead" for sent in failed):
            self._producers.renew(self._generation)
            self._generation = self._producers.generation
        doubtful = self._doubtful(failed)
        for number, sent in enumerate(failed):
            if sent.outgoing.route == "dead":
                self._resend_dead(sent)
            elif id(sent) not in doubtful:
                self._start(sent, careful=False)
            else:
                before = [earlier for earlier in failed[:number] if earlier.outgoing.route != "dead"]
                self._await(before)
                if any(earlier.error for earlier in before):
                    return  # the order comes first: another round
                self._try_alone(sent)

    def _doubtful(self, failed: Sequence[_Sent]) -> set[int]:
        """Which failed records may be the refused ones; the rest only shared their batch or their producer.

        A dead producer fails everything with the one error object that killed it; a record that the broker named
        (KIP-467) has an error object of its own. Sizes are known. Else it is the first of some partition.
        """
        refused = [s for s in failed if isinstance(s.error, REFUSED) and s.outgoing.route != "dead"]
        shared = Counter(id(s.error) for s in refused)
        own = {id(s) for s in refused if shared[id(s.error)] == 1}
        size = [s for s in refused if isinstance(s.error, TOO_LARGE)]
        large = {id(s) for s in size if s.outgoing.least_bytes() > (self._producers.limits.get(s.topic, 1 << 63))}
        if own or large:
            return own | large
        return set({(s.topic, s.partition): id(s) for s in reversed(refused)}.values())

    def _try_alone(self, sent: _Sent) -> None:
        self._start(sent, careful=True)
        self._await([sent])
        if isinstance(sent.error, REFUSED):
            letter = self._begin(self._refused(sent.outgoing, sent.error, sent.topic))
            sent.outgoing, sent.topic, sent.partition = letter.outgoing, letter.topic, letter.partition
            sent.future = letter.future

    def _refused(self, outgoing: Outgoing, error: BaseException, topic: str) -> Outgoing:
        self.written["refused"] += 1
        reason = refusal(error, topic)
        logger.warning("%s goes to %s: %s", outgoing.message.origin, self._sink.dead, reason.code)
        now = int(self._clock() * 1000)
        return dead_letter(outgoing.message, self._stamp, reason, time_ms=now, schema_id=outgoing.schema_id)

    def _resend_dead(self, sent: _Sent) -> None:
        if isinstance(sent.error, TOO_LARGE):
            sent.outgoing = self._smaller(sent.outgoing, sent.error)
        elif isinstance(sent.error, InvalidTimestampError):
            sent.timeless = True
        self._start(sent, careful=True)

    def _smaller(self, letter: Outgoing, error: BaseException) -> Outgoing:
        self.written["shrunk"] += 1
        less = smaller(letter, self._stamp.prefix)
        if less is None:
            raise BrokerError(
                f"topic {self._sink.dead} does not take even a letter without key, value and foreign headers: {error}. "
                "Raise its max.message.bytes"
            )
        return less
