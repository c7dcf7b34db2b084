"""How partitions move between the members of a group without a record in flight being decided twice for nothing."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.future import Future
from kafka.structs import TopicPartition

__all__ = ["Rebalance"]

logger = logging.getLogger(__name__)

Partitions = frozenset[TopicPartition]


class Rebalance(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Notes which partitions came and went, and lets a partition go only when its records in flight are committed.

    Runs on kafka-python's IO thread, where nothing may block: a commit or a join there raises or deadlocks. So it
    awaits a future that the committing thread completes (`let_go`), at most `wait_ms`; heartbeats go on meanwhile. A
    partition that was lost (the group put us out) is not waited for: nothing can be committed for it.
    """

    def __init__(self, in_flight: Callable[[], Partitions], wait_ms: int) -> None:
        self._in_flight = in_flight
        self._wait_ms = wait_ms
        self.assignor = CooperativeStickyAssignor()
        """The group's way to share partitions; it tells the others what this member owns."""
        self._lock = threading.Lock()
        self._gained: set[TopicPartition] = set()
        self._left: set[TopicPartition] = set()
        self._leaving: Partitions = frozenset()
        self._done: Any = None  # kafka.future.Future
        self._closing = False

    @property
    def leaving(self) -> Partitions:
        """Partitions on their way out that may still be committed."""
        return self._leaving

    def moved(self) -> tuple[Partitions, Partitions]:
        """Partitions gained and partitions left since the last call; one may be in both (lost, then given back)."""
        with self._lock:
            gained, left = frozenset(self._gained), frozenset(self._left)
            self._gained.clear()
            self._left.clear()
            return gained, left

    def let_go(self) -> None:
        """To be called after each commit: ends the wait when nothing of the leaving partitions is in flight."""
        with self._lock:
            done = self._done
            if done is None or self._leaving & self._in_flight():
                return
            self._done = None
        done.success(None)

    def close(self) -> None:
        """From now on wait for nothing."""
        self._closing = True

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        with self._lock:
            self._gained |= assigned

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        busy = self._in_flight() & revoked
        if busy and not self._closing:
            await self._wait_for(busy)
        with self._lock:
            self._gained -= revoked
            self._left |= revoked

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        # kafka-python 3.0.12 would claim them at the next join, and get them while their new owner still has them.
        self.assignor.member_assignment = None
        with self._lock:
            self._gained -= lost
            self._left |= lost

    async def _wait_for(self, busy: Partitions) -> None:
        done = Future()
        with self._lock:
            self._leaving, self._done = busy, done
        timer = threading.Timer(self._wait_ms / 1000, self._give_up, [done])
        timer.daemon = True
        timer.start()
        self.let_go()  # the last commit may have come in between
        await done
        timer.cancel()
        with self._lock:
            self._leaving = frozenset()

    def _give_up(self, done: Any) -> None:
        with self._lock:
            if self._done is not done:
                return
            self._done = None
        logger.warning("a partition moves away after %d ms with records in flight: they are read again", self._wait_ms)
        done.success(None)
