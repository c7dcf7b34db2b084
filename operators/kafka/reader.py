"""The consumer under a session: joins the group, polls into the ledger, and copes with what Kafka can do in between."""

import logging
import time
from collections.abc import Iterable
from typing import Any

from kafka.errors import (
    CorruptRecordError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
)
from kafka.structs import MemberState, OffsetAndMetadata, TopicPartition

from slotstream.operators.kafka.connection import KafkaConfig, broker_errors
from slotstream.operators.kafka.headers import redriven
from slotstream.operators.kafka.join import join
from slotstream.operators.kafka.ledger import Ledger, Positions
from slotstream.operators.kafka.rebalance import Rebalance
from slotstream.operators.kafka.source import CommitNote, SourceConfig
from slotstream.schemas.errors import BrokerError, ConfigError
from slotstream.schemas.record import Message, Origin

__all__ = ["TopicReader"]

logger = logging.getLogger(__name__)

JOINING_S = 5.0  # how long a commit waits for a join that another thread's poll is finishing


class TopicReader:
    """One KafkaConsumer in the group. Everything that it reads goes into `ledger`; partitions come and go in `poll`."""

    def __init__(self, kafka: KafkaConfig, source: SourceConfig) -> None:
        self._kafka = kafka
        self._source = source
        self._consumer: Any = None
        self._topic_ids: dict[str, str] = {}
        self._again: set[TopicPartition] = set()  # ours, to be read again from the commit
        self._member: tuple[int, str] | None = None
        self._member_since = 0.0
        self.ledger = Ledger()
        self.rebalance = Rebalance(self.ledger.in_flight, source.release_wait_ms)

    def start(self) -> None:
        """Connect and subscribe; the group is joined by the first `poll`. Does nothing when already started.

        Raises:
            ConfigError: the topic does not exist, or the group's start cannot be committed.
            BrokerError: the cluster does not answer.
        """
        if self._consumer is not None:
            return
        self.rebalance = Rebalance(self.ledger.in_flight, self._source.release_wait_ms)
        self._consumer, self._topic_ids = join(self._kafka, self._source, self.rebalance)

    def close(self, timeout_ms: int) -> None:
        """Leave the group; what was taken and not committed is read again by its next owner. Idempotent."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        self.rebalance.close()
        self.ledger.clear()
        try:
            consumer.close(autocommit=False, timeout_ms=timeout_ms)
        except Exception:
            logger.warning("the consumer of group %s did not close in order", self._source.group, exc_info=True)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now."""
        return frozenset(self._consumer.assignment()) if self._consumer is not None else frozenset()

    @property
    def joined(self) -> bool:
        """Whether this is a member with a valid assignment, in no rebalance."""
        return bool(self._consumer is not None and self._consumer.group_metadata().state == MemberState.STABLE)

    def poll(self, timeout_ms: int, max_records: int) -> int:
        """One poll; returns how many records came.

        Raises:
            ConfigError: a topic was deleted and made again, or a committed offset is no longer in the log, and the
                setting for that is `stop`: no retry would help.
            BrokerError: Kafka fails, or a batch is corrupt.
        """
        polled: dict[TopicPartition, list[Any]] = {}
        try:
            with broker_errors(f"reading {self._source.topic}"):
                polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
        except BrokerError as error:
            self._recover(error)
        self.check_topics()
        sought = self._settle_partitions()
        with broker_errors(f"reading {self._source.topic}"):
            for at in self.assigned - sought:
                records = [(record.offset, self._message(record)) for record in polled.get(at, ())]
                position = self._consumer.position(at, timeout_ms=0)
                if position is not None:
                    self.ledger.add(at, records, position)
        metadata = self._consumer.group_metadata()
        if self._member != metadata[1:3]:
            self._member, self._member_since = metadata[1:3], time.monotonic()
        if metadata.state == MemberState.REBALANCING:
            # kafka-python 3.0.12 forgets a join that new metadata asked for, when one poll is too short to finish it:
            # it sends no more heartbeats, spins, and is put out of the group. Asked again, it finishes that join.
            self._consumer._coordinator.request_rejoin()
        return sum(map(len, polled.values()))

    def read_again(self) -> None:
        """Drop everything ready and in flight; the next `poll` reads on from the committed offsets."""
        self.ledger.clear()
        self._again |= self.assigned
        self.rebalance.let_go()

    def commit(self, offsets: Positions, engine_deaths: int = 0) -> None:
        """Commit for those of the partitions that are still ours; waits while another thread is joining again.

        Raises:
            BrokerError: Kafka does not take it; this may be no member any more.
        """
        until = time.monotonic() + JOINING_S
        with broker_errors(f"committing for group {self._source.group}"):
            while True:
                ours = self.assigned | self.rebalance.leaving
                due = {
                    at: OffsetAndMetadata(offset, str(CommitNote(self._topic_ids[at.topic], engine_deaths)), -1)
                    for at, offset in offsets.items()
                    if at in ours
                }
                try:
                    if due:
                        self._consumer.commit(due, timeout_ms=self._kafka.request_timeout_ms)
                    break
                except RebalanceInProgressError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.02)
        for at, kept in due.items():
            self.ledger.settle(at, kept.offset, engine_deaths)
        self.rebalance.let_go()

    def committed(self, at: TopicPartition) -> int:
        """What the group has committed for any partition, ours or not; 0 for nothing."""
        with broker_errors("asking for the group's commits"):
            return self._consumer.committed(at, timeout_ms=self._kafka.request_timeout_ms) or 0

    def end_offsets(self) -> Positions:
        """The end of every partition of the topics (the last stable offset), now."""
        with broker_errors(f"asking for the end of {self._source.topic}"):
            partitions = [
                TopicPartition(topic, number)
                for topic in self._topic_ids
                for number in self._consumer.partitions_for_topic(topic)
            ]
            ends: Positions = self._consumer.end_offsets(partitions, timeout_ms=self._kafka.request_timeout_ms)
            return ends

    def check_member(self) -> None:
        """Raise unless this process may still write: it stalled (SIGSTOP, a long pause) or was put out of the group.

        Raises:
            BrokerError: another member may own the partitions by now. Write nothing, `rewind`, go on with `wait`.
        """
        consumer, group = self._consumer, self._source.group
        metadata = consumer.group_metadata() if consumer is not None else None
        if metadata is None or metadata.state != MemberState.STABLE or self._member != metadata[1:3]:
            raise BrokerError(f"no longer a member of group {group}: records in flight are dropped")
        # Not kafka-python's session_timeout_expired(): finding the coordinator again starts that anew, and a process
        # that wakes from a long stop does just that before it learns that it is no member any more.
        answered = max(consumer._coordinator.heartbeat.last_receive, self._member_since)
        if time.monotonic() - answered > self._source.session_timeout_ms / 1000:
            raise BrokerError(f"no heartbeat of group {group} for session_timeout_ms: records in flight are dropped")

    def check_topics(self) -> None:
        """A topic that was deleted and made again has other records under the same offsets."""
        for topic, known in self._topic_ids.items():
            now = self._consumer._cluster.topic_id(topic) if self._consumer is not None else None
            if now is None or str(now) == known:
                continue
            self._recreated(topic, known, str(now))
            self._topic_ids[topic] = str(now)
            mine = [at for at in self.assigned if at.topic == topic]
            self.ledger.forget(mine)
            self._again.update(mine)

    def _message(self, record: Any) -> Message:
        message = Message(
            Origin(record.topic, self._topic_ids[record.topic], record.partition, record.offset),
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            tuple(record.headers),
        )
        return message if record.topic == self._source.topic else redriven(message, prefix=self._kafka.header_prefix)

    def _settle_partitions(self) -> set[TopicPartition]:
        """Open what came, forget what went. Returns the partitions whose reader was moved: what was polled is old."""
        gained, left = self.rebalance.moved()
        self.ledger.forget(left)
        fresh = gained - self._again
        self._again = (self._again - left) | gained  # until it is open: asking for its commit may fail
        sought: set[TopicPartition] = set()
        for at in self._again & self.assigned:
            with broker_errors(f"asking for the commit of {at.topic}[{at.partition}]"):
                kept = self._consumer.committed(at, metadata=True, timeout_ms=self._kafka.request_timeout_ms)
            note = CommitNote.read(kept.metadata) if kept is not None else None
            if note is not None and note.topic_id != self._topic_ids[at.topic]:
                self._recreated(at.topic, note.topic_id, self._topic_ids[at.topic])
                kept = None
            if kept is None:
                self._seek([at], "earliest")
            else:
                if at not in fresh:
                    self._consumer.seek(at, kept.offset)
                self.ledger.open(at, kept.offset, note.engine_deaths if note is not None else 0)
            if kept is None or at not in fresh:
                sought.add(at)
        self._again.clear()
        return sought

    def _recreated(self, topic: str, was: str, now: str) -> None:
        if self._source.on_topic_recreated == "stop":
            raise ConfigError(
                f"topic {topic} was deleted and made again (UUID {was}, now {now}): the commits of group "
                f"{self._source.group} count other records. Set on_topic_recreated: earliest to read the new topic"
            )
        logger.warning("topic %s was made again (UUID %s, now %s): it is read from its beginning", topic, was, now)

    def _recover(self, error: BrokerError) -> None:
        """What a poll can run into and go on from; all else is raised."""
        cause = error.__cause__
        if isinstance(cause, NoOffsetForPartitionError):
            return  # _settle_partitions finds no commit either, and starts these at their beginning
        if isinstance(cause, OffsetOutOfRangeError | LogTruncationError):
            gone = cause.divergent_offsets if isinstance(cause, LogTruncationError) else cause.args[0]
            self.check_topics()
            self._settle_partitions()  # a topic that was made again looks like this, too, and has the better message
            with broker_errors("asking for the group's commits"):
                fresh = [at for at in gone if self._consumer.committed(at) is None]
            self._seek(fresh, "earliest")  # the beginning moved between our look and the first fetch
            gone = [at for at in gone if at not in fresh]
            if gone and self._source.on_out_of_range == "stop":
                places = ", ".join(f"{at.topic}[{at.partition}]" for at in gone)
                raise ConfigError(
                    f"group {self._source.group}: the committed offset of {places} is no longer in the log (retention "
                    "or lost data). Set on_out_of_range to earliest (reads what is left) or latest (skips it)"
                ) from error
            self._seek(gone, self._source.on_out_of_range)
            return
        if isinstance(cause, CorruptRecordError):
            batch = getattr(self._consumer._fetcher, "_next_partition_records", None)
            place = f"{batch.topic_partition} near offset {batch.next_fetch_offset}" if batch else self._source.topic
            self.close(timeout_ms=1_000)  # kafka-python would spin on the dead batch for ever
            raise BrokerError(
                f"corrupt batch in {place}: {cause}. To go on without it, move the group's offset behind it"
            ) from error
        raise error

    def _seek(self, partitions: Iterable[TopicPartition], end: str) -> None:
        with broker_errors(f"looking for the {end} offset"):
            wanted = [at for at in partitions if at in self.assigned]
            look_up = self._consumer.beginning_offsets if end == "earliest" else self._consumer.end_offsets
            for at, offset in look_up(wanted, timeout_ms=self._kafka.request_timeout_ms).items():
                logger.info("%s[%d] is read from its %s offset %d", at.topic, at.partition, end, offset)
                self._consumer.seek(at, offset)
                self.ledger.open(at, offset)
