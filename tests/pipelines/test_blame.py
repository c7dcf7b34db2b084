"""Blame: the record that kills the engine is found, and nobody else is blamed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from slotstream.pipelines.blame import Blame


def test_without_deaths_epochs_are_whole() -> None:
    blame = Blame(5_000, 64)
    assert blame.epoch_records == 5_000
    blame.passed({"p0": 5_000})
    assert blame.epoch_records == 5_000


def test_after_a_death_epochs_are_as_small_as_what_is_in_flight_until_the_suspects_have_passed() -> None:
    blame = Blame(5_000, 64)
    blame.died({"p0": 5_000}, deaths=1)
    assert blame.epoch_records == 64
    blame.passed({"p0": 64})
    assert blame.epoch_records == 64
    blame.passed({"p0": 5_000})
    assert blame.epoch_records == 5_000


def test_after_three_deaths_at_one_offset_records_are_read_one_at_a_time() -> None:
    blame = Blame(5_000, 64)
    blame.died({"p0": 5_000}, deaths=1)
    blame.died({"p0": 64}, deaths=2)
    assert blame.epoch_records == 64
    blame.died({"p0": 64}, deaths=3)
    assert blame.epoch_records == 1
    blame.passed({"p0": 63})
    assert blame.epoch_records == 1
    blame.passed({"p0": 64})
    assert blame.epoch_records == 64


def test_what_an_earlier_process_died_of_is_looked_for_among_the_next_records_in_flight() -> None:
    blame = Blame(5_000, 3, deaths=3)
    for offset in range(1, 4):
        assert blame.alone
        blame.passed({"p0": offset})
    assert blame.epoch_records == 5_000


def test_suspects_of_a_partition_that_moved_away_are_another_members() -> None:
    blame = Blame(5_000, 64)
    blame.died({"p0": 10, "p1": 10}, deaths=3)
    blame.keep({"p1"})
    blame.passed({"p1": 10})
    assert blame.epoch_records == 5_000


@settings(max_examples=200, deadline=None)
@given(
    records=st.integers(1, 400),
    poison=st.sets(st.integers(0, 399), max_size=4),
    whole=st.integers(1, 300),
    in_flight=st.integers(1, 70),
)
def test_every_poison_record_is_named_and_no_other(records: int, poison: set[int], whole: int, in_flight: int) -> None:
    poison = {offset for offset in poison if offset < records}
    blame, committed, deaths, in_a_row, condemned = Blame(whole, in_flight), 0, 0, 0, set[int]()
    while committed < records:
        epoch = range(committed, min(records, committed + blame.epoch_records))
        if any(offset in poison and offset not in condemned for offset in epoch):
            in_a_row += 1
            assert in_a_row <= 5, "the engine is started too often without a record decided in between"
            if blame.alone:
                condemned.add(epoch[0])
            else:
                deaths += 1
                blame.died({"p0": epoch[-1] + 1}, deaths)
            continue
        committed = epoch[-1] + 1
        deaths = in_a_row = 0
        blame.passed({"p0": committed})
    assert condemned == poison
