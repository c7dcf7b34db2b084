"""The listing counts by code and shows the newest; it holds no record text and a bounded number of lines."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.kafka.headers import Identity
from slotstream.operators.kafka.letter import Letter, LetterFilter
from slotstream.operators.kafka.redrive_choice import Attempts
from slotstream.pipelines.dead_list import Listing
from slotstream.schemas.errors import MassTooLow
from slotstream.schemas.record import Origin
from tests.operators.kafka.letters import letter


def listed(letters: list[Letter], limit: int = 20, wanted: LetterFilter | None = None) -> list[str]:
    redriven = Attempts()
    redriven.add(Identity(Origin("tickets", "uuid-of-tickets", 0, 2), "cafe", 1))
    listing = Listing(wanted or LetterFilter(), limit, redriven)
    for each in letters:
        listing.add(each)
    return list(listing.lines("tickets.dead"))


def test_it_counts_by_code_and_lists_oldest_first() -> None:
    letters = [
        letter(3, time_ms=3_000, error=MassTooLow("low"), attempt=2),
        letter(1, time_ms=2_000, value=b"secret"),
        letter(2, time_ms=1_000),
        replace(letter(9), identity=None, code=None, stage=None, time_ms=None),
    ]
    size = [each.size for each in letters]
    assert listed(letters) == [
        "tickets.dead: 4 letters",
        "",
        "code                 letters  redriven  first                 last                  for example",
        "json_invalid               2         1  1970-01-01T00:00:01Z  1970-01-01T00:00:02Z  tickets[0]@1",
        "(not of slotstream)        1         0  -                     -                     dead[0]@0",
        "mass_too_low               1         0  1970-01-01T00:00:03Z  1970-01-01T00:00:03Z  tickets[0]@3",
        "",
        "all of them:",
        "time                  origin        code                 stage   attempt  bytes  redriven",
        f"-                     dead[0]@0     (not of slotstream)  -             -    {size[3]}  no",
        f"1970-01-01T00:00:01Z  tickets[0]@2  json_invalid         decode        1    {size[2]}  yes",
        f"1970-01-01T00:00:02Z  tickets[0]@1  json_invalid         decode        1    {size[1]}  no",
        f"1970-01-01T00:00:03Z  tickets[0]@3  mass_too_low         decide        2    {size[0]}  no",
    ]


def test_an_empty_topic_and_a_filter_that_means_nothing_have_one_line() -> None:
    assert listed([]) == ["tickets.dead: 0 letters"]
    assert listed([letter(1)], wanted=LetterFilter(stage="write")) == [
        "tickets.dead: 1 letters, 0 of them match the filters"
    ]


def test_no_lines_are_listed_with_a_limit_of_0() -> None:
    assert len(listed([letter(1)], limit=0)) == 4


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 5))
def test_the_newest_are_listed(times: list[int], limit: int) -> None:
    lines = listed([letter(offset, time_ms=time * 1_000) for offset, time in enumerate(times)], limit)
    shown = [line.split()[0] for line in lines if line.startswith("1970")]
    assert shown == [f"1970-01-01T00:00:{time:02}Z" for time in sorted(times)[-limit:]]
