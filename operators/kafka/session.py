"""This process's membership of a consumer group: one reader of the input topic, warm between batches."""

import threading
import time
from collections.abc import Callable

from kafka.structs import TopicPartition

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.ledger import Positions
from slotstream.operators.kafka.reader import TopicReader
from slotstream.operators.kafka.source import SourceConfig
from slotstream.schemas.record import Message

__all__ = ["ConsumerSession", "Positions", "close_sessions", "session_for"]

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
        self._source = source
        self._clock = clock
        self._reader = TopicReader(kafka, source)
        self._ledger = self._reader.ledger

    # ---- life ----

    def start(self) -> None:
        """Connect and subscribe; the group is joined by the first `wait`. Does nothing when already started.

        Raises:
            ConfigError: the topic does not exist, or the group's start cannot be committed.
            BrokerError: the cluster does not answer.
        """
        self._reader.start()

    def close(self, timeout_ms: int = 5_000) -> None:
        """Leave the group; what was taken and not committed is read again by its next owner. Idempotent."""
        self._reader.close(timeout_ms)

    # ---- reading ----

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now."""
        return self._reader.assigned

    def wait(self, max_wait_ms: int) -> int:
        """Poll until records are ready or the time is over; joins, rebalances and heartbeats happen here.

        Returns how many records are ready to `take`; 0 also while the group is still rebalancing.

        Raises:
            ConfigError: the topic was deleted and made again, or a committed offset is no longer in the log, and the
                setting for that is `stop`: no retry would help.
            BrokerError: Kafka fails, or a batch is corrupt.
        """
        self.start()
        deadline = self._clock() + max_wait_ms / 1000
        top_up_until = self._clock() + min(max_wait_ms / 1000, TOP_UP_LIMIT_S)
        while True:
            left_ms = max(0, int((deadline - self._clock()) * 1000))
            got = self._reader.poll(min(left_ms, TOP_UP_MS) if self._ready() else left_ms, self._room())
            if ready := self._ready():
                if not got or self._room() == 1 or self._clock() >= top_up_until:
                    return ready
            elif self._clock() >= deadline:
                if self._reader.joined:
                    self._reader.commit(self._ledger.markers())
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
        self._reader.check_topics()
        self._reader.commit(self._ledger.due(positions))

    def rewind(self) -> None:
        """Forget what was taken or is ready and read again from the committed offsets. Right after any failure."""
        self._reader.read_again()

    def end_offsets(self) -> Positions:
        """The end of every partition of the topics now: what `caught_up` compares with (for `--until-caught-up`)."""
        self.start()
        return self._reader.end_offsets()

    def caught_up(self, targets: Positions) -> bool:
        """Whether the group has committed everything before `targets`, here and in its other members."""
        if not self._reader.joined:
            return False
        for at, end in targets.items():
            committed = self._ledger.committed(at)
            if (self._reader.committed(at) if committed is None else committed) < end:
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
                self._reader.commit({at: offset}, deaths[at] + 1)
        return self.engine_deaths()

    def check_member(self) -> None:
        """Raise unless this process may still write: it stalled (SIGSTOP, a long pause) or was put out of the group.

        Raises:
            BrokerError: another member may own the partitions by now. Write nothing, `rewind`, go on with `wait`.
        """
        self._reader.check_member()

    def _ready(self) -> int:
        return len(self._ledger) if self._reader.joined else 0

    def _room(self) -> int:
        """How many records the next poll may bring; never 0, because polling is how a member says that it lives."""
        if self._ledger.ready_bytes >= self._source.max_buffered_bytes:
            return 1
        return max(1, self._source.max_buffered_records - len(self._ledger))


_sessions: dict[tuple[KafkaConfig, SourceConfig], ConsumerSession] = {}
_sessions_lock = threading.Lock()


def session_for(kafka: KafkaConfig, source: SourceConfig) -> ConsumerSession:
    """This process's only session of that configuration: runners make and drop DoFns as they like."""
    with _sessions_lock:
        known = _sessions.get((kafka, source))
        if known is None:
            known = _sessions[kafka, source] = ConsumerSession(kafka, source)
        return known


def close_sessions() -> None:
    """Close every session of this process."""
    with _sessions_lock:
        for session in _sessions.values():
            session.close()
        _sessions.clear()
