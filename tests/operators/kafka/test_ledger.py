"""The ledger: what may be committed is exactly what lies before the first record that is not written."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.structs import TopicPartition

from slotstream.operators.kafka.ledger import Ledger
from slotstream.schemas.record import Message, Origin

P0, P1 = TopicPartition("in", 0), TopicPartition("in", 1)


def records(at: TopicPartition, *offsets: int) -> list[tuple[int, Message]]:
    return [(offset, Message(Origin("in", "u", at.partition, offset), 0, 0, None, b"")) for offset in offsets]


def opened(*partitions: TopicPartition) -> Ledger:
    ledger = Ledger()
    for at in partitions:
        ledger.open(at, 0)
    return ledger


def test_what_was_taken_may_be_committed_and_nothing_behind_it() -> None:
    ledger = opened(P0)
    ledger.add(P0, records(P0, 0, 1, 2), 3)
    assert [message.origin.offset for message in ledger.take(2)] == [0, 1]
    assert ledger.positions() == {P0: 2}
    assert len(ledger) == 1


def test_the_position_lies_behind_transaction_markers_when_all_is_taken() -> None:
    ledger = opened(P0)
    ledger.add(P0, records(P0, 0, 1, 6), 9)
    ledger.take(2)
    assert ledger.positions() == {P0: 2}
    ledger.take(1)
    assert ledger.positions() == {P0: 9}


def test_a_partition_without_records_taken_is_not_committed() -> None:
    ledger = opened(P0, P1)
    ledger.add(P0, records(P0, 0), 1)
    ledger.add(P1, records(P1, 0), 1)
    ledger.take(1)
    assert ledger.positions() == {P0: 1}
    assert ledger.in_flight() == {P0}


def test_markers_alone_are_committed_only_when_nothing_is_ready_or_in_flight() -> None:
    ledger = opened(P0, P1)
    ledger.add(P0, [], 4)
    assert ledger.markers() == {P0: 4}
    ledger.add(P1, records(P1, 0), 1)
    assert ledger.markers() == {}
    ledger.take(1)
    assert ledger.markers() == {}
    ledger.settle(P1, 1)
    assert ledger.markers() == {P0: 4}
    ledger.settle(P0, 4)
    assert ledger.markers() == {}


def test_settling_less_than_was_taken_leaves_the_rest_in_flight() -> None:
    ledger = opened(P0)
    ledger.add(P0, records(P0, 0, 1), 2)
    ledger.take(1)
    early = ledger.positions()
    ledger.take(1)
    ledger.settle(P0, early[P0])
    assert ledger.in_flight() == {P0}
    assert ledger.committed(P0) == 1
    ledger.settle(P0, 2)
    assert ledger.in_flight() == frozenset()


def test_a_forgotten_partition_gives_no_more_records_and_no_commit() -> None:
    ledger = opened(P0, P1)
    ledger.add(P0, records(P0, 0, 1), 2)
    ledger.add(P1, records(P1, 0, 1), 2)
    ledger.take(1)
    ledger.forget([P0])
    assert [message.origin.partition for message in ledger.take(9)] == [1, 1]
    assert ledger.positions() == {P1: 2}
    ledger.settle(P0, 1)
    assert ledger.committed(P0) is None


def test_records_of_a_partition_that_is_not_open_are_ignored() -> None:
    ledger = opened(P0)
    ledger.add(P1, records(P1, 0), 1)
    assert len(ledger) == 0


def test_the_size_of_what_is_ready_is_known() -> None:
    ledger = opened(P0, P1)
    message = Message(Origin("in", "u", 0, 0), 0, 0, b"12", b"345")
    ledger.add(P0, [(0, message), (1, message)], 2)
    ledger.add(P1, [(0, message)], 1)
    assert ledger.ready_bytes == 15
    ledger.take(1)
    assert ledger.ready_bytes == 10
    ledger.forget([P0])
    assert ledger.ready_bytes == 5


def test_opening_again_drops_what_was_there() -> None:
    ledger = opened(P0)
    ledger.add(P0, records(P0, 0, 1), 2)
    ledger.take(1)
    ledger.open(P0, 1, engine_deaths=2)
    assert (len(ledger), ledger.in_flight(), ledger.engine_deaths()) == (0, frozenset(), {P0: 2})


@given(
    gaps=st.lists(st.tuples(st.sampled_from([P0, P1]), st.integers(0, 3), st.integers(0, 3)), max_size=20),
    takes=st.lists(st.integers(0, 4), max_size=20),
)
def test_every_record_is_taken_once_in_order_and_before_the_position(
    gaps: list[tuple[TopicPartition, int, int]], takes: list[int]
) -> None:
    ledger = opened(P0, P1)
    next_offset = {P0: 0, P1: 0}
    taken: dict[TopicPartition, list[int]] = {P0: [], P1: []}
    given_out: dict[TopicPartition, list[int]] = {P0: [], P1: []}
    for (at, count, gap), take in zip(gaps, [*takes, *[1] * len(gaps)], strict=False):
        offsets = [next_offset[at] + i * (gap + 1) for i in range(count)]
        next_offset[at] += count * (gap + 1) + gap
        ledger.add(at, records(at, *offsets), next_offset[at])
        given_out[at] += offsets
        for message in ledger.take(take):
            taken[TopicPartition("in", message.origin.partition)].append(message.origin.offset)
        for partition, position in ledger.positions().items():
            assert all(offset < position for offset in taken[partition])
            assert all(offset >= position for offset in given_out[partition][len(taken[partition]) :])
    assert all(taken[at] == given_out[at][: len(taken[at])] for at in taken)
