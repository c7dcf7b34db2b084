"""What a run says of itself: every record in one route, tombstones told apart, nothing said while nothing happens."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.engines.stats import EngineStats
from slotstream.pipelines.progress import Progress
from slotstream.schemas.errors import BrokerError


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def summary(counted: Mapping[str, int]) -> str:
    progress = Progress(1e9, Clock())
    progress.add(counted, lambda: 0)
    return progress.summary()


@pytest.mark.parametrize(
    ("counted", "told"),
    [
        ({}, "0 decided, 0 review, 0 dead in 0.0 s"),
        ({"written_decided": 1234, "written_dead": 5}, "1,234 decided, 0 review, 5 dead in 0.0 s"),
        (
            {"written_decided": 9, "written_review": 2, "tombstones_forwarded": 3},
            "9 decided (tombstones forwarded: 3), 2 review, 0 dead in 0.0 s",
        ),
        (
            {"written_decided": 9, "tombstones_dropped": 4},
            "9 decided, 0 review, 0 dead, 4 tombstones dropped in 0.0 s",
        ),
    ],
)
def test_the_summary_has_every_route_and_tells_tombstones_apart(counted: Mapping[str, int], told: str) -> None:
    assert summary(counted) == told


@given(*[st.integers(0, 10**7)] * 5)
def test_what_was_read_is_decided_review_and_dead_and_what_was_dropped(
    decided: int, review: int, dead: int, forwarded: int, dropped: int
) -> None:
    counted = {
        "written_decided": decided + forwarded,
        "written_review": review,
        "written_dead": dead,
        "tombstones_forwarded": forwarded,
        "tombstones_dropped": dropped,
    }
    outside = re.sub(r"\(.*?\)", "", summary(counted)).rpartition(" in ")[0]
    told = [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", outside)]
    assert sum(told) == decided + forwarded + review + dead + dropped


def test_a_line_comes_when_it_is_time_and_only_if_something_was_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = Clock()
    progress = Progress(5.0, clock)
    progress.add({"written_decided": 10}, lambda: 7)
    assert caplog.messages == []
    clock.now += 5
    progress.add({"written_dead": 10}, lambda: 7)
    assert caplog.messages == ["10 decided, 0 review, 10 dead; 4 records/s, 7 waiting"]
    clock.now += 50
    progress.add({}, lambda: 7)
    assert len(caplog.messages) == 1


def test_a_broker_that_does_not_say_what_waits_stops_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def lag() -> int:
        raise BrokerError("no answer")

    clock = Clock()
    progress = Progress(1.0, clock)
    clock.now += 1
    progress.add({"written_review": 1}, lag)
    assert caplog.messages == ["0 decided, 1 review, 0 dead; 1 records/s, unknown number waiting"]


@pytest.mark.parametrize(
    ("stats", "told"),
    [
        (None, ""),
        (EngineStats(0, 9.0, 0), ""),
        (EngineStats(5000, 9.0, 64, reads_per_s=1234.4), "; 1,234 reads/s"),
        (
            EngineStats(5000, 9.0, 64, reads_per_s=20.0, prefix_hit_rate=0.666),
            "; 20 reads/s, 67% of prompts from the cache",
        ),
    ],
    ids=str,
)
def test_a_line_ends_with_what_the_engine_does(
    caplog: pytest.LogCaptureFixture, stats: EngineStats | None, told: str
) -> None:
    caplog.set_level("INFO")
    clock = Clock()
    progress = Progress(1.0, clock, engine=lambda: stats)
    clock.now += 1
    progress.add({"written_decided": 3}, lambda: 0)
    assert caplog.messages == ["3 decided, 0 review, 0 dead; 3 records/s, 0 waiting" + told]
