"""Which dead letters are put back, and under which attempt: a pure choice over streams that are read one by one.

A letter says (origin, attempt). The redrive topic holds each letter that was put back under the same two, so it is the
memory of what was redriven: a letter is redriven when its origin lies there with its attempt or a higher one. A record
that fails again comes to `dead` with the next attempt, and that letter is a new one.
"""

from collections import Counter
from hashlib import blake2b

from slotstream.operators.kafka.headers import Identity
from slotstream.operators.kafka.letter import Letter, LetterFilter
from slotstream.schemas.record import Origin

__all__ = ["LEFT_OUT", "Attempts", "Choice", "NewestOfKeys"]

LEFT_OUT = {
    "foreign": "were not written by slotstream: their headers do not say which record they are",
    "other_topic": "come from another input topic",
    "overtaken": "are copies, or their record has a letter of a later attempt",
    "redriven": "are redriven already (--again redrives them once more)",
    "cut": "lie there without their value or key, which were too large for the dead topic",
    "newer": "have a key with a newer record on a compacted output topic (--force redrives them all the same)",
}
"""Why a letter that the filters let through is left out; in this order the first one counts."""


class Attempts:
    """The highest attempt of each record: two numbers a record, about 130 bytes."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, int]] = {}

    def add(self, identity: Identity) -> None:
        """Note an attempt of a record."""
        known = self._of.setdefault(identity.origin.topic_id, {})
        place = _place(identity.origin)
        known[place] = max(known.get(place, 0), identity.attempt)

    def of(self, origin: Origin) -> int:
        """The highest attempt, 0 for a record that was never added."""
        return self._of.get(origin.topic_id, {}).get(_place(origin), 0)


def _place(origin: Origin) -> int:
    return origin.partition << 64 | origin.offset


class NewestOfKeys:
    """The newest record of each wanted key on the compacted outputs; keys are held as 16-byte digests."""

    def __init__(self) -> None:
        self._of: dict[bytes, dict[tuple[str, int] | None, tuple[int, int]]] = {}

    def want(self, key: bytes) -> None:
        """Watch for records of this key from now on."""
        self._of.setdefault(_digest(key), {})

    def add(self, key: bytes | None, identity: Identity | None, timestamp_ms: int) -> None:
        """A record of an output topic; `identity` is None when it was not written by slotstream."""
        known = self._of.get(_digest(key)) if key is not None else None
        if known is None:
            return
        source = (identity.origin.topic_id, identity.origin.partition) if identity is not None else None
        offset, time = known.get(source, (-1, -1))
        known[source] = max(offset, identity.origin.offset if identity else -1), max(time, timestamp_ms)

    def has_newer(self, letter: Letter) -> bool:
        """Of one source partition the higher offset is newer, of different ones the later time stamp."""
        if letter.key is None or letter.identity is None:
            return False
        origin = letter.identity.origin
        own_ms = letter.timestamp_ms if letter.original_ms is None else letter.original_ms
        return any(
            offset > origin.offset if source == (origin.topic_id, origin.partition) else time > own_ms
            for source, (offset, time) in self._of.get(_digest(letter.key), {}).items()
        )


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


class Choice:
    """Decides letter after letter, in the order of the dead topic; counts what it leaves out, by reason.

    Args:
        topic: the input topic.
        wanted: the filters.
        latest: what the dead topic holds.  redriven: what the redrive topic holds.
        newest: what the compacted outputs hold; None when it does not matter.
        again: also what is redriven already.
    """

    def __init__(
        self,
        topic: str,
        wanted: LetterFilter,
        *,
        latest: Attempts,
        redriven: Attempts,
        newest: NewestOfKeys | None = None,
        again: bool = False,
    ) -> None:
        self._topic = topic
        self._wanted = wanted
        self._latest = latest
        self._redriven = redriven
        self._newest = newest
        self._again = again
        self._taken = Attempts()
        self.read = 0
        self.meant = 0
        """Letters that the filters let through."""
        self.left_out: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        """Of the chosen letters."""

    def attempt(self, letter: Letter) -> int | None:
        """The attempt to write on the redrive topic, None for a letter that stays where it is.

        Its reader decides the record under this number plus one. Again counts on from what lies there, so that a
        later answer is a later attempt, and no attempt ever has two answers.
        """
        self.read += 1
        if not self._wanted.lets_through(letter):
            return None
        self.meant += 1
        reason = self._reason(letter)
        if reason is not None:
            self.left_out[reason] += 1
            return None
        assert letter.identity is not None
        self._taken.add(letter.identity)
        self.codes[letter.code or "(none)"] += 1
        redriven = self._redriven.of(letter.identity.origin)
        return letter.identity.attempt if redriven < letter.identity.attempt else redriven + 1

    def _reason(self, letter: Letter) -> str | None:  # noqa: PLR0911 - one reason a line
        if letter.identity is None:
            return "foreign"
        origin, attempt = letter.identity.origin, letter.identity.attempt
        if origin.topic != self._topic:
            return "other_topic"
        if self._latest.of(origin) != attempt or self._taken.of(origin) == attempt:
            return "overtaken"
        if self._redriven.of(origin) >= attempt and not self._again:
            return "redriven"
        if not letter.whole:
            return "cut"
        if self._newest is not None and self._newest.has_newer(letter):
            return "newer"
        return None
