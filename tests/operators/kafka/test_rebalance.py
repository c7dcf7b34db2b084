"""Rebalance: a partition with records in flight goes when they are committed, or when the time is over."""

from collections.abc import Coroutine
from typing import Any

from kafka.structs import TopicPartition

from slotstream.operators.kafka.rebalance import Rebalance

P0, P1 = TopicPartition("in", 0), TopicPartition("in", 1)
LONG_MS = 60_000


class Flight:
    """What is in flight, set by the test."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.now = frozenset(partitions)

    def __call__(self) -> frozenset[TopicPartition]:
        return self.now


def sets(moved: tuple[frozenset[TopicPartition], frozenset[TopicPartition]]) -> tuple[list[Any], list[Any]]:
    return sorted(moved[0]), sorted(moved[1])


def step(callback: Coroutine[Any, None, None]) -> Any:
    """Run the callback as kafka-python's loop does, up to its end (None) or to the future that it awaits."""
    try:
        return callback.send(None)
    except StopIteration:
        return None


def test_partitions_come_and_go() -> None:
    rebalance = Rebalance(Flight(), LONG_MS)
    step(rebalance.on_partitions_assigned({P0, P1}))
    assert sets(rebalance.moved()) == ([P0, P1], [])
    assert step(rebalance.on_partitions_revoked({P1})) is None
    assert sets(rebalance.moved()) == ([], [P1])
    assert sets(rebalance.moved()) == ([], [])


def test_a_partition_in_flight_waits_for_its_commit() -> None:
    flight = Flight(P0, P1)
    rebalance = Rebalance(flight, LONG_MS)
    revoked = rebalance.on_partitions_revoked({P1})
    awaited = step(revoked)
    assert not awaited.is_done
    assert rebalance.leaving == {P1}
    rebalance.let_go()
    assert not awaited.is_done
    flight.now = frozenset({P0})
    rebalance.let_go()
    assert awaited.is_done
    assert step(revoked) is None
    assert rebalance.leaving == frozenset()
    assert sets(rebalance.moved())[1] == [P1]


def test_nothing_waits_for_records_of_partitions_that_stay() -> None:
    rebalance = Rebalance(Flight(P0), LONG_MS)
    assert step(rebalance.on_partitions_revoked({P1})) is None


def test_a_lost_partition_is_dropped_at_once() -> None:
    rebalance = Rebalance(Flight(P0), LONG_MS)
    assert step(rebalance.on_partitions_lost({P0})) is None
    assert rebalance.leaving == frozenset()
    assert sets(rebalance.moved()) == ([], [P0])


def test_a_lost_partition_is_not_claimed_at_the_next_join() -> None:
    rebalance = Rebalance(Flight(), LONG_MS)
    rebalance.assignor.member_assignment = [P0]
    assert rebalance.assignor.metadata({"in"}).owned_partitions
    step(rebalance.on_partitions_lost({P0}))
    assert not rebalance.assignor.metadata({"in"}).owned_partitions


def test_a_partition_that_was_lost_and_came_back_is_both() -> None:
    rebalance = Rebalance(Flight(), LONG_MS)
    step(rebalance.on_partitions_lost({P0}))
    step(rebalance.on_partitions_assigned({P0}))
    assert sets(rebalance.moved()) == ([P0], [P0])


def test_the_wait_ends_when_its_time_is_over() -> None:
    rebalance = Rebalance(Flight(P0), 0)
    revoked = rebalance.on_partitions_revoked({P0})
    awaited = step(revoked)
    if awaited is not None:  # the timer's thread may have been quicker
        while not awaited.is_done:
            pass
        assert step(revoked) is None
    assert sets(rebalance.moved()) == ([], [P0])


def test_a_closing_member_waits_for_nothing() -> None:
    rebalance = Rebalance(Flight(P0), LONG_MS)
    rebalance.close()
    assert step(rebalance.on_partitions_revoked({P0})) is None
