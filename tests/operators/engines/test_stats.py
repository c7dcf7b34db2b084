"""What an engine counts, and over which seconds it tells it."""

import pytest

from slotstream.operators.engines.stats import WINDOW_S, EngineStats, ReadMeter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Clock) -> ReadMeter:
    return ReadMeter(clock)


def read(meter: ReadMeter, count: int = 1, tokens: int = 100) -> None:
    for _ in range(count):
        meter.started()
        meter.ended(tokens)


def test_an_idle_engine_claims_nothing(meter: ReadMeter, clock: Clock) -> None:
    assert meter.stats() == EngineStats(reads=0, seconds=0.0, in_flight=0)
    clock.now += 4
    assert meter.stats() == EngineStats(reads=0, seconds=4.0, in_flight=0)


def test_reads_are_counted_and_their_rate_is_over_the_time_that_there_was(meter: ReadMeter, clock: Clock) -> None:
    read(meter, 30, tokens=200)
    clock.now += 2
    read(meter, 10, tokens=400)
    found = meter.stats()
    assert (found.reads, found.seconds, found.reads_per_s, found.tokens_per_read) == (40, 2.0, 20.0, 250.0)


def test_rates_and_means_forget_what_is_longer_ago_than_the_window(meter: ReadMeter, clock: Clock) -> None:
    read(meter, 1000, tokens=9)
    clock.now += WINDOW_S + 0.5
    read(meter, 19, tokens=50)
    found = meter.stats()
    assert (found.reads, found.tokens_per_read) == (1019, 50)
    assert found.reads_per_s == pytest.approx(19 / (WINDOW_S - 0.5))
    clock.now += WINDOW_S
    assert meter.stats().reads_per_s == 0
    assert meter.stats().tokens_per_read is None


def test_an_aborted_read_leaves_without_being_counted(meter: ReadMeter) -> None:
    meter.started()
    meter.started()
    assert meter.stats().in_flight == 2
    meter.ended(None)
    assert (meter.stats().reads, meter.stats().in_flight) == (0, 1)


def test_a_step_lasts_from_one_result_to_the_next(meter: ReadMeter, clock: Clock) -> None:
    meter.started()
    for took in (0.5, 0.125, 0.125):
        clock.now += took
        meter.stepped()
    found = meter.stats()
    assert (found.step_ms, found.slowest_step_ms) == (250, 500)


def test_waiting_for_work_is_no_part_of_a_step(meter: ReadMeter, clock: Clock) -> None:
    read(meter)
    clock.now += 60
    meter.started()
    clock.now += 0.25
    meter.stepped()
    assert meter.stats().slowest_step_ms == 250


def test_a_step_for_nobody_is_not_counted(meter: ReadMeter, clock: Clock) -> None:
    clock.now += 60
    meter.stepped()
    assert meter.stats().slowest_step_ms is None
    assert meter.stats().step_ms is None


def test_the_slowest_step_is_remembered_beyond_the_window(meter: ReadMeter, clock: Clock) -> None:
    meter.started()
    clock.now += 2
    meter.stepped()
    for _ in range(100):
        clock.now += 1
        meter.stepped()
    assert (meter.stats().slowest_step_ms, meter.stats().step_ms) == (2000, 1000)


def test_queue_and_prefix_cache_are_means_over_requests_and_tokens(meter: ReadMeter) -> None:
    meter.queued(0.25)
    meter.queued(0.75)
    meter.looked_up(300, 200)
    meter.looked_up(100, 0)
    found = meter.stats()
    assert (found.queue_ms, found.prefix_hit_rate) == (500, 0.5)


def test_a_reset_forgets_all_but_what_is_in_flight(meter: ReadMeter, clock: Clock) -> None:
    meter.started()
    read(meter, 5)
    clock.now += 3
    meter.stepped()
    meter.looked_up(10, 10)
    meter.reset()
    assert meter.stats() == EngineStats(reads=0, seconds=0.0, in_flight=1)
