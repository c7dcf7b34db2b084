"""This process's membership of a consumer group: one reader of the input topic, warm between batches."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import CorruptRecordError, LogTruncationError, NoOffsetForPartitionError, OffsetOutOfRangeError
from kafka.structs import MemberState, OffsetAndMetadata, TopicPartition

from slotstream.operators.kafka.connection import KafkaConfig, broker_errors, warn_without_crc32c
from slotstream.operators.kafka.header_keys import accept_any_header_key
from slotstream.operators.kafka.headers import redriven
from slotstream.operators.kafka.ledger import Ledger, Positions
from slotstream.operators.kafka.rebalance import Rebalance
from slotstream.operators.kafka.source import CommitNote, SourceConfig, describe_topics, seed_group
from slotstream.schemas.errors import BrokerError, ConfigError
from slotstream.schemas.record import Message, Origin

__all__ = ["ConsumerSession", "Positions", "close_sessions", "session_for"]

logger = logging.getLogger(__name__)

TOP_UP_MS = 5  # how long to look for more of a backlog before a batch starts
TOP_UP_LIMIT_S = 0.05


class ConsumerSession:
    """A member of the group. `wait` is the only method that polls Kafka, so partitions move only inside it.

    The order of use, by one thread: `wait` until something is there; `take` in the batch; when every output of the
    batch is written, `commit(positions())`; when the batch failed, `rewind()`. So nothing is in flight while partitions
    move. Where batches overlap `wait` (an unbounded runner), another thread may commit: a partition that moves away
    waits for its records in flight, at most `release_wait_ms`.
    """

    def __init__(self, kafka: KafkaConfig, source: SourceConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._kafka = kafka
        self._source = source
        self._clock = clock
        self._consumer: Any = None
        self._topic_ids: dict[str, str] = {}
        self._ledger = Ledger()
        self._rebalance = Rebalance(self._ledger.in_flight, source.release_wait_ms)
        self._again: set[TopicPartition] = set()  # ours, to be read again from the commit
        self._member: tuple[int, str] | None = None

    # ---- life ----

    def start(self) -> None:
        """Connect and subscribe; the group is joined by the first `wait`. Does nothing when already started.

        Raises:
            ConfigError: the topic does not exist, or the group's start cannot be committed.
            BrokerError: the cluster does not answer.
        """
        if self._consumer is not None:
            return
        warn_without_crc32c()
        accept_any_header_key()
        source = self._source
        with broker_errors(f"connecting to {self._kafka.bootstrap_servers}"):
            admin = KafkaAdminClient(**self._kafka.client_arguments("admin"))
            try:
                topics = describe_topics(admin, [source.topic, source.redrive_topic])
                if source.topic not in topics:
                    raise ConfigError(f"input topic {source.topic} does not exist on {self._kafka.bootstrap_servers}")
                seed_group(admin, source, topics[source.topic])
            finally:
                admin.close()
            consumer = KafkaConsumer(
                group_id=source.group,
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="none",
                allow_auto_create_topics=False,
                partition_assignment_strategy=[CooperativeStickyAssignor],
                session_timeout_ms=source.session_timeout_ms,
                heartbeat_interval_ms=max(200, source.session_timeout_ms // 6),
                max_poll_interval_ms=source.max_poll_interval_ms,
                metadata_max_age_ms=source.metadata_max_age_ms,
                max_partition_fetch_bytes=source.max_partition_fetch_bytes,
                **self._kafka.client_arguments("reader"),
            )
            self._rebalance = Rebalance(self._ledger.in_flight, source.release_wait_ms)
            consumer.subscribe(topics=sorted(topics), listener=self._rebalance)
        self._topic_ids = {name: topic.id for name, topic in topics.items()}
        self._consumer = consumer

    def close(self, timeout_ms: int = 5_000) -> None:
        """Leave the group; what was taken and not committed is read again by its next owner. Idempotent."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        self._rebalance.close()
        self._ledger.forget(self._ledger.engine_deaths())
        try:
            consumer.close(autocommit=False, timeout_ms=timeout_ms)
        except Exception:
            logger.warning("the consumer of group %s did not close in order", self._source.group, exc_info=True)

    # ---- reading ----

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now."""
        return frozenset(self._consumer.assignment()) if self._consumer is not None else frozenset()

    def wait(self, max_wait_ms: int) -> int:
        """Poll until records are ready or the time is over; joins, rebalances and heartbeats happen here.

        Returns how many records are ready to `take`; 0 also while the group is still rebalancing.

        Raises:
            ConfigError: the topic was deleted and made again, and `on_topic_recreated` is `stop`.
            BrokerError: Kafka fails, a committed offset is no longer in the log, or a batch is corrupt.
        """
        self.start()
        deadline = self._clock() + max_wait_ms / 1000
        top_up_until = self._clock() + min(max_wait_ms / 1000, TOP_UP_LIMIT_S)
        while True:
            left_ms = max(0, int((deadline - self._clock()) * 1000))
            got = self._poll(min(left_ms, TOP_UP_MS) if self._ready() else left_ms)
            if ready := self._ready():
                if not got or ready >= self._source.max_buffered_records or self._clock() >= top_up_until:
                    return ready
            elif self._clock() >= deadline:
                self._commit(self._ledger.markers())
                return 0

    def take(self, max_records: int) -> list[Message]:
        """The next records that `wait` made ready, each partition in order; empty when there are none. No network."""
        return self._ledger.take(max_records)

    def poll(self, max_records: int, max_wait_ms: int) -> list[Message]:
        """`wait`, if nothing is ready, and `take`."""
        if not self._ledger:
            self.wait(max_wait_ms)
        return self.take(max_records)

    # ---- progress ----

    def positions(self) -> Positions:
        """For each partition with records taken since its last commit: what to commit when they are all written."""
        return self._ledger.positions()

    def commit(self, positions: Positions) -> None:
        """Commit what `positions` said, for the partitions that are still ours; the rest belongs to its new owner.

        Raises:
            BrokerError: the commit failed or this process is no longer a member; `rewind` and go on with `wait`.
            ConfigError: as `wait`.
        """
        self._check_topics()
        self._commit(positions)
        self._rebalance.let_go()

    def rewind(self) -> None:
        """Forget what was taken or is ready and read again from the committed offsets. Right after any failure."""
        self._ledger.forget(self._ledger.engine_deaths())
        self._again |= self.assigned
        self._rebalance.let_go()

    def end_offsets(self) -> Positions:
        """The end of every partition of the topics now: what `caught_up` compares with (for `--until-caught-up`)."""
        self.start()
        with broker_errors(f"asking for the end of {self._source.topic}"):
            partitions = [
                TopicPartition(topic, number)
                for topic in self._topic_ids
                for number in self._consumer.partitions_for_topic(topic)
            ]
            ends: Positions = self._consumer.end_offsets(partitions, timeout_ms=self._kafka.request_timeout_ms)
            return ends

    def caught_up(self, targets: Positions) -> bool:
        """Whether the group has committed everything before `targets`, here and in its other members."""
        if not self._joined() or self._ledger or self._ledger.in_flight():
            return False
        with broker_errors("asking for the group's commits"):
            for at, end in targets.items():
                committed = self._ledger.committed(at)
                if committed is None:  # another member's
                    committed = self._consumer.committed(at) or 0
                if committed < end:
                    return False
        return True

    def engine_deaths(self) -> int:
        """How often the engine died with the records at the committed offsets in flight, as the commits remember."""
        return max(self._ledger.engine_deaths().values(), default=0)

    def count_engine_death(self) -> int:
        """Remember in the commits of the partitions in flight that the engine died with them; returns the new count."""
        deaths = self._ledger.engine_deaths()
        for at in self._ledger.in_flight() & self.assigned:
            offset = self._ledger.committed(at)
            if offset is not None:
                self._write({at: offset}, deaths[at] + 1)
        return self.engine_deaths()

    def check_member(self) -> None:
        """Raise unless this process may still write: it stalled (SIGSTOP, a long pause) or was put out of the group.

        Raises:
            BrokerError: another member may own the partitions by now. Write nothing, `rewind`, go on with `wait`.
        """
        consumer, group = self._consumer, self._source.group
        metadata = consumer.group_metadata() if consumer is not None else None
        if metadata is None or metadata.state != MemberState.STABLE or self._member != metadata[1:3]:
            raise BrokerError(f"no longer a member of group {group}: records in flight are dropped")
        if consumer._coordinator.heartbeat.session_timeout_expired():
            raise BrokerError(f"no heartbeat of group {group} for session_timeout_ms: records in flight are dropped")

    # ---- inside ----

    def _joined(self) -> bool:
        return bool(self._consumer is not None and self._consumer.group_metadata().state == MemberState.STABLE)

    def _ready(self) -> int:
        return len(self._ledger) if self._joined() else 0

    def _poll(self, timeout_ms: int) -> int:
        room = max(1, self._source.max_buffered_records - len(self._ledger))
        polled: dict[TopicPartition, list[Any]] = {}
        try:
            with broker_errors(f"reading {self._source.topic}"):
                polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=room)
        except BrokerError as error:
            self._recover(error)
        self._check_topics()
        sought = self._settle_partitions()
        for at in self.assigned - sought:
            records = [(record.offset, self._message(record)) for record in polled.get(at, ())]
            position = self._consumer.position(at, timeout_ms=0)
            if position is not None:
                self._ledger.add(at, records, position)
        metadata = self._consumer.group_metadata()
        self._member = (metadata.generation_id, metadata.member_id)
        return sum(map(len, polled.values()))

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
        gained, left = self._rebalance.moved()
        self._ledger.forget(left)
        self._again -= left - gained
        sought: set[TopicPartition] = set()
        for at in (gained | self._again) & self.assigned:
            with broker_errors(f"asking for the commit of {at.topic}[{at.partition}]"):
                kept = self._consumer.committed(at, metadata=True, timeout_ms=self._kafka.request_timeout_ms)
            note = CommitNote.read(kept.metadata) if kept is not None else None
            if note is not None and note.topic_id != self._topic_ids[at.topic]:
                self._recreated(at.topic, note.topic_id, self._topic_ids[at.topic])
                kept = None
            if kept is None:
                self._seek([at], "earliest")
                sought.add(at)
                continue
            if at in self._again:
                self._consumer.seek(at, kept.offset)
                sought.add(at)
            self._ledger.open(at, kept.offset, note.engine_deaths if note is not None else 0)
        self._again.clear()
        return sought

    def _check_topics(self) -> None:
        """A topic that was deleted and made again has other records under the same offsets."""
        for topic, known in self._topic_ids.items():
            now = self._consumer._cluster.topic_id(topic) if self._consumer is not None else None
            if now is None or str(now) == known:
                continue
            self._recreated(topic, known, str(now))
            self._topic_ids[topic] = str(now)
            mine = [at for at in self.assigned if at.topic == topic]
            self._ledger.forget(mine)
            self._again.update(mine)

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
            self._check_topics()
            self._settle_partitions()  # a topic that was made again looks like this, too, and has the better message
            if self._source.on_out_of_range == "stop":
                places = ", ".join(f"{at.topic}[{at.partition}]" for at in gone)
                raise BrokerError(
                    f"group {self._source.group}: the committed offset of {places} is no longer in the log (retention "
                    "or lost data). Set on_out_of_range to earliest (reads what is left) or latest (skips it)"
                ) from error
            self._seek(gone, self._source.on_out_of_range)
            return
        if isinstance(cause, CorruptRecordError):
            batch = getattr(self._consumer._fetcher, "_next_partition_records", None)
            place = f"{batch.topic_partition} near offset {batch.next_fetch_offset}" if batch else self._source.topic
            self.close()  # kafka-python would spin on the dead batch for ever
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
                self._ledger.open(at, offset)

    def _commit(self, positions: Positions) -> None:
        ours = self.assigned | self._rebalance.leaving
        due = {}
        for at, offset in positions.items():
            committed = self._ledger.committed(at)
            if at in ours and committed is not None and offset > committed:
                due[at] = offset
        self._write(due, 0)

    def _write(self, offsets: Positions, engine_deaths: int) -> None:
        if not offsets or self._consumer is None:
            return
        with broker_errors(f"committing for group {self._source.group}"):
            self._consumer.commit(
                {
                    at: OffsetAndMetadata(offset, str(CommitNote(self._topic_ids[at.topic], engine_deaths)), -1)
                    for at, offset in offsets.items()
                },
                timeout_ms=self._kafka.request_timeout_ms,
            )
        for at, offset in offsets.items():
            self._ledger.settle(at, offset, engine_deaths)


_sessions: dict[tuple[KafkaConfig, SourceConfig], ConsumerSession] = {}
_sessions_lock = threading.Lock()


def session_for(kafka: KafkaConfig, source: SourceConfig) -> ConsumerSession:
    """This process's only session of that configuration: runners make and drop DoFns as they like."""
    with _sessions_lock:
        return _sessions.setdefault((kafka, source), ConsumerSession(kafka, source))


def close_sessions() -> None:
    """Close every session of this process."""
    with _sessions_lock:
        for session in _sessions.values():
            session.close()
        _sessions.clear()
