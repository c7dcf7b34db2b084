"""The dead-letter limit: a pipeline that rejects nearly everything has a wrong setting, not wrong records; it stops."""

from collections import Counter, deque
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field

from slotstream.schemas.errors import DeadLetterLimitReached

__all__ = ["DeadLetterLimit", "DeadLetterLimitConfig", "limit_for"]

_SHOWN = 3


class DeadLetterLimitConfig(BaseModel):
    """From which share of dead records on the pipeline stops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: float = Field(
        0.5, gt=0, le=1, description="The pipeline stops when more than this share of recent records is dead; 1: never."
    )
    window_records: int = Field(1_000, ge=1, description="How many of the last records count as recent.")
    min_records: int = Field(100, ge=1, description="Nothing is concluded before so many records were seen.")


class DeadLetterLimit:
    """Counts the last outcomes. Once the limit is reached it stays reached.

    Pure but for its own window; not thread-safe: one bundle at a time reports to it.
    """

    def __init__(self, config: DeadLetterLimitConfig) -> None:
        self._config = config
        self._window: deque[str | None] = deque()  # the error's code, or None for a record that is not dead
        self._dead = 0
        self._needed = min(config.min_records, config.window_records)
        self._codes: Counter[str] = Counter()
        self._examples: dict[str, object] = {}  # code -> origin of the latest one
        self._message: str | None = None

    def add(self, code: str | None, origin: object = "") -> None:
        """Count one record: None, or its error's code when it is dead; `str(origin)` says where to find an example."""
        self._window.append(code)
        if code is not None:
            self._codes[code] += 1
            self._dead += 1
            self._examples[code] = origin
        if len(self._window) > self._config.window_records:
            left = self._window.popleft()
            if left is not None:
                self._codes[left] -= 1
                self._dead -= 1
        seen = len(self._window)
        if self._message is None and self._dead > self._config.share * seen and seen >= self._needed:
            self._conclude(seen)

    def check(self) -> None:
        """Call when what was counted is written and committed.

        Raises:
            DeadLetterLimitReached: names the share, the most frequent codes and an example of each; no record text.
        """
        if self._message is not None:
            raise DeadLetterLimitReached(self._message)

    def _conclude(self, seen: int) -> None:
        worst = [(code, count) for code, count in self._codes.most_common(_SHOWN) if count]
        examples = "; ".join(f"{code} {count} times, such as {self._examples[code]}" for code, count in worst)
        self._message = (
            f"{self._dead} of the last {seen} records are dead, more than the limit of {self._config.share:.0%} "
            f"(limits.dead_letters.share): {examples}. Nothing is lost: all of them are on the dead topic. "
            "Look at these records and at the settings, then start again"
        )


@lru_cache(maxsize=8)
def limit_for(config: DeadLetterLimitConfig) -> DeadLetterLimit:
    """The process's window; bundles come and go."""
    return DeadLetterLimit(config)
