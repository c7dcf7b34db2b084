"""`slotstream dead list`: what lies on the dead topic, counted by code, and the newest letters; no record text."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slotstream.operators.kafka.dead_topic import letters_of
from slotstream.operators.kafka.letter import Letter, LetterFilter
from slotstream.operators.kafka.redrive import redriven_attempts
from slotstream.operators.kafka.redrive_choice import Attempts
from slotstream.pipelines.dead_config import framed, open_config
from slotstream.pipelines.dead_words import shown_time

__all__ = ["Listing", "list_letters", "named"]

_HEAD = ("time", "origin", "code", "stage", "attempt", "bytes", "redriven")
_SUMMARY = ("code", "letters", "redriven", "first", "last", "for example")


def list_letters(path: Path, wanted: LetterFilter, *, limit: int) -> int:
    """Print the listing of the configured dead topic; returns the exit code."""
    config, found = open_config(path)
    redriven = Attempts()
    if config.input.redrive_topic in found:
        redriven = redriven_attempts(config.kafka, config.input)
    listing = Listing(wanted, limit, redriven)
    for letter in letters_of(config.kafka, config.output.dead, framed=framed(config)):
        listing.add(letter)
    for line in listing.lines(config.output.dead):
        print(line)
    return 0


def named(letter: Letter) -> str:
    """Which record a letter is; the letter's own place when it does not say."""
    return str(letter.identity.origin) if letter.identity is not None else letter.place


@dataclass(slots=True)
class _Code:
    example: str
    count: int = 0
    redriven: int = 0
    first_ms: int | None = None
    last_ms: int | None = None


class Listing:
    """Counts letters one by one and keeps a line of each of the newest `limit`. Pure.

    Args:
        redriven: what was put back already; a letter stays on the dead topic all the same.
    """

    def __init__(self, wanted: LetterFilter, limit: int, redriven: Attempts) -> None:
        self._wanted = wanted
        self._limit = limit
        self._redriven = redriven
        self._read = 0
        self._codes: dict[str, _Code] = {}
        self._newest: list[tuple[int, int, tuple[str, ...]]] = []  # a heap: time, number, cells

    def add(self, letter: Letter) -> None:
        """Count a letter that the filters let through."""
        self._read += 1
        if not self._wanted.lets_through(letter):
            return
        code = letter.code or "(not of slotstream)"
        known = self._codes.setdefault(code, _Code(named(letter)))
        known.count += 1
        identity = letter.identity
        redriven = identity is not None and self._redriven.of(identity.origin) >= identity.attempt
        known.redriven += redriven
        if letter.time_ms is not None:
            known.first_ms = letter.time_ms if known.first_ms is None else min(known.first_ms, letter.time_ms)
            known.last_ms = letter.time_ms if known.last_ms is None else max(known.last_ms, letter.time_ms)
        if not self._limit:
            return
        attempt = str(identity.attempt) if identity is not None else "-"
        cells = (
            *(shown_time(letter.time_ms), named(letter), code, letter.stage or "-"),
            *(attempt, f"{letter.size:,}", "yes" if redriven else "no"),
        )
        entry = (-1 if letter.time_ms is None else letter.time_ms, self._read, cells)
        if len(self._newest) < self._limit:
            heapq.heappush(self._newest, entry)
        else:
            heapq.heappushpop(self._newest, entry)

    def lines(self, topic: str) -> Iterator[str]:
        """The summary, most frequent code first, then the newest letters, oldest first."""
        meant = sum(code.count for code in self._codes.values())
        chosen = "" if meant == self._read else f", {meant:,} of them match the filters"
        yield f"{topic}: {self._read:,} letters{chosen}"
        if not meant:
            return
        yield ""
        ranked = sorted(self._codes.items(), key=lambda item: (-item[1].count, item[0]))
        yield from _table(
            _SUMMARY,
            (
                (
                    *(name, f"{code.count:,}", f"{code.redriven:,}"),
                    *(shown_time(code.first_ms), shown_time(code.last_ms), code.example),
                )
                for name, code in ranked
            ),
            right={1, 2},
        )
        if self._newest:
            yield ""
            yield f"the newest {len(self._newest):,}:" if len(self._newest) < meant else "all of them:"
            yield from _table(_HEAD, (cells for _, _, cells in sorted(self._newest)), right={4, 5})


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: set[int]) -> Iterator[str]:
    """Aligned columns; those in `right` are numbers."""
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
