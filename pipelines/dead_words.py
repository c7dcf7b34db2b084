"""How times, places and foreign text are written on the command line of `slotstream dead`. Pure."""

import re
from datetime import UTC, datetime

__all__ = ["parse_place", "parse_time", "shown", "shown_time"]

_SPAN = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PLACE = re.compile(
    r"(?:(?P<topic>[A-Za-z0-9._-]*)\[(?P<partition>\d{1,10})\]|(?P<number>\d{1,10}))@(?P<offset>\d{1,18})", re.ASCII
)


def parse_time(text: str, now: float) -> int:
    """Unix milliseconds of `2026-11-29`, `2026-11-29T10:00` (UTC unless it says a zone), or `90m`, `2h`, `3d` ago.

    Args:
        now: Unix seconds.

    Raises:
        ValueError: it is none of these.
    """
    if span := _SPAN.fullmatch(text):
        return int((now - int(span[1]) * _SECONDS[span[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"a time is 2026-11-29, 2026-11-29T10:00 (UTC), or 90m, 2h, 3d ago; got {text!r}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_place(text: str) -> tuple[str, int, int]:
    """Topic (empty for the dead topic), partition and offset of `TOPIC[PARTITION]@OFFSET` or `PARTITION@OFFSET`.

    Raises:
        ValueError: it is neither.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"a record is named TOPIC[PARTITION]@OFFSET, or PARTITION@OFFSET of the dead topic; got {text!r}"
        )
    return found["topic"] or "", int(found["partition"] or found["number"]), int(found["offset"])


def shown(text: str) -> str:
    """Text that cannot move a terminal's cursor or hide itself: what does not print is told as an escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shown_time(time_ms: int | None) -> str:
    """`2026-11-29T21:14:15Z`, `-` for none, the number itself when no calendar has it."""
    if time_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
