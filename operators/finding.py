"""What a check before the start has found, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Level"]

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `slotstream check`.

    level: `error` stops a run; `warning` does not, but somebody should know.
    subject: what was looked at, such as `topic tickets.decided`.  message: what was found.
    advice: what to do; empty when all is well.
    """

    level: Level
    subject: str
    message: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}" + (f"; {self.advice}" if self.advice else "")
