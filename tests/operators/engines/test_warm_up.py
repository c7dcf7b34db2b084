"""Which batches are read before the first record, and what is said meanwhile."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.slot_read import check_request
from slotstream.operators.engines.warm_up import Batch, batch_reads, warm_up, warm_up_batches
from slotstream.operators.testing import hashed_read
from slotstream.schemas.errors import EngineError


def info(max_model_len: int = 4096, canvas_length: int = 64, vocab_size: int = 262_144) -> EngineInfo:
    return EngineInfo("vllm", "0.32.0", "slot path", "m", max_model_len, canvas_length, vocab_size)


@pytest.mark.parametrize(
    ("in_flight", "counts"),
    [(1, {1}), (2, {1, 2}), (3, {1, 2, 3}), (64, {1, 2, 4, 8, 16, 32, 64}), (100, {1, 2, 4, 8, 16, 32, 64, 100})],
)
def test_reads_in_flight_are_powers_of_two_up_to_what_fits(in_flight: int, counts: set[int]) -> None:
    batches = warm_up_batches(info(), in_flight=in_flight, budget=65_536)
    assert {batch.reads for batch in batches} == counts


@pytest.mark.parametrize(
    ("canvas_length", "widths"),
    [(4, {4}), (16, {16}), (24, {16, 24}), (32, {16, 32}), (64, {16, 32, 48, 64}), (256, {16, 32, 48, 64, 128, 256})],
)
def test_canvases_are_as_wide_as_the_engine_serves(canvas_length: int, widths: set[int]) -> None:
    batches = warm_up_batches(info(canvas_length=canvas_length), in_flight=8, budget=8192)
    assert {batch.canvas for batch in batches} == widths


def test_records_are_typical_short_and_long_and_typical_ones_come_first() -> None:
    records = [batch.record for batch in warm_up_batches(info(), in_flight=64, budget=8192)]
    assert list(dict.fromkeys(records)) == [128, 13, 515]


def test_a_batch_takes_no_more_than_two_steps_of_full_budget() -> None:
    batches = warm_up_batches(info(), in_flight=512, budget=8192)
    assert all(batch.reads * (batch.record + batch.canvas) <= 2 * 8192 for batch in batches)
    assert max(batch.reads for batch in batches) == 512


def test_every_number_of_slots_meets_several_numbers_of_reads() -> None:
    batches = warm_up_batches(info(), in_flight=128, budget=8192)
    for marks in (2, 3, 4, 5, 10, 77, 255):
        assert len({batch.reads for batch in batches if batch.marks == marks}) >= 3


@given(
    st.integers(200, 8192), st.integers(4, 256), st.integers(5, 262_144), st.integers(1, 1024), st.integers(64, 16_384)
)
def test_every_read_is_one_that_the_engine_takes(
    length: int, canvas: int, vocab: int, in_flight: int, budget: int
) -> None:
    limits = info(length, canvas, vocab)
    batches = warm_up_batches(limits, in_flight=in_flight, budget=budget)
    assert len(set(batches)) == len(batches)
    for batch in batches[:: max(1, len(batches) // 5)]:
        reads = batch_reads(Batch(1, batch.record, batch.canvas, batch.slots, batch.marks), limits)
        check_request(reads[0], limits)
        assert 1 <= batch.reads <= in_flight


def test_reads_share_their_prefix_and_no_record_comes_twice() -> None:
    one, other = (batch_reads(Batch(3, 40, 16, 2, 4), info()), batch_reads(Batch(3, 40, 32, 2, 4), info()))
    prompts = [read.prompt_ids for read in (*one, *other)]
    assert len({prompt[:192] for prompt in prompts}) == 1
    assert len({prompt[192:] for prompt in prompts}) == 6
    assert len(one[0].slots) == 2
    assert [len(marks) for marks in one[0].mark_ids] == [4, 4]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Reader:
    """Takes `takes_s` for every batch, and fails from read number `fails_at` on."""

    def __init__(self, clock: Clock, takes_s: float = 0.0, fails_at: int | None = None) -> None:
        self._clock, self._takes_s, self._fails_at = clock, takes_s, fails_at
        self.together: list[int] = []
        self._waiting = 0
        self._reads = 0

    async def read(self, request: ReadRequest) -> ReadResult:
        self._waiting += 1
        await asyncio.sleep(0)  # all reads of the batch are here
        if self._waiting:
            self.together.append(self._waiting)
            self._clock.now += self._takes_s
            self._waiting = 0
        self._reads += 1
        if self._fails_at is not None and self._reads >= self._fails_at:
            raise EngineError("out of memory")
        return hashed_read(request)

    def failure(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing to free."""


BATCHES = tuple(Batch(reads, 20, 16, 2, 4) for reads in (1, 2, 4, 8))


def test_a_batch_is_in_flight_at_once_and_follows_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    reader = Reader(clock, 0.5)
    with caplog.at_level(logging.INFO):
        assert asyncio.run(warm_up(reader, info(), BATCHES, clock=clock)) == 5
    assert reader.together == [1, 2, 4, 8, 2 * len(BATCHES)]
    assert caplog.messages == ["warm-up: 5 batch shapes in 2.5 s, the slowest took 0.5 s"]


def test_it_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with caplog.at_level(logging.INFO):
        asyncio.run(warm_up(Reader(clock, 3.0), info(), BATCHES, clock=clock))
    assert caplog.messages == [
        "warm-up: 2 of 5 batch shapes, 6 s",
        "warm-up: 4 of 5 batch shapes, 12 s",
        "warm-up: 5 batch shapes in 15.0 s, the slowest took 3.0 s",
    ]


def test_it_stops_at_its_limit_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    assert asyncio.run(warm_up(Reader(clock, 3.0), info(), BATCHES, limit_s=5.0, clock=clock)) == 2
    assert "stopped after 6 s with 2 of 5 batch shapes" in caplog.text


def test_no_batches_are_no_words(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with caplog.at_level(logging.INFO):
        assert asyncio.run(warm_up(Reader(clock), info(), (), clock=clock)) == 0
    assert caplog.messages == []


def test_a_failing_batch_is_named() -> None:
    clock = Clock()
    with pytest.raises(EngineError, match=r"batch 2 of 5 \(Batch\(reads=2, .*\) failed: out of memory"):
        asyncio.run(warm_up(Reader(clock, fails_at=2), info(), BATCHES, clock=clock))
