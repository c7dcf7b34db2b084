"""What a running pipeline says of itself every few seconds."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from slotstream.operators.engines.stats import EngineStats
from slotstream.schemas.errors import BrokerError

__all__ = ["Progress"]

_log = logging.getLogger(__name__)

_ROUTES = ("decided", "review", "dead")


class Progress:
    """Counts records by route and logs a line at most every `every_s`, and only when something was written.

    Args:
        clock: monotonic seconds.
        engine: its figures now, None while there is none; asked once a line.
    """

    def __init__(
        self,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        engine: Callable[[], EngineStats | None] = lambda: None,
    ) -> None:
        self._every_s = every_s
        self._engine = engine
        self._clock = clock
        self._total: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._started_at = self._told_at = clock()

    def add(self, counted: Mapping[str, int], lag: Callable[[], int]) -> None:
        """Add one committed epoch's counters (empty while nothing comes), and tell if it is time.

        Args:
            lag: how many records wait in the topic; asked once a line.
        """
        self._total.update(counted)
        now = self._clock()
        if now - self._told_at < self._every_s:
            return
        records = self._records(self._total) - self._records(self._told)
        if records:
            rate = records / (now - self._told_at)
            try:
                waiting = f"{lag():,}"
            except BrokerError:  # whoever reads next meets it, and has to act on it
                waiting = "unknown number"
            _log.info("%s; %s records/s, %s waiting%s", self._routes(), f"{rate:,.0f}", waiting, self._reads())
        self._told, self._told_at = self._total.copy(), now

    def summary(self) -> str:
        """One line over the whole run."""
        seconds = self._clock() - self._started_at
        return f"{self._routes()} in {seconds:.1f} s"

    def _routes(self) -> str:
        # A forwarded tombstone is decided without being asked, so it is told apart; a dropped one is in no route.
        forwarded, dropped = self._total["tombstones_forwarded"], self._total["tombstones_dropped"]
        decided, *others = (f"{self._total[f'written_{route}']:,} {route}" for route in _ROUTES)
        decided += f" (tombstones forwarded: {forwarded:,})" if forwarded else ""
        return ", ".join([decided, *others, *([f"{dropped:,} tombstones dropped"] if dropped else [])])

    def _reads(self) -> str:
        stats = self._engine()
        if stats is None or not stats.reads_per_s:
            return ""
        found = "" if stats.prefix_hit_rate is None else f", {stats.prefix_hit_rate:.0%} of prompts from the cache"
        return f"; {stats.reads_per_s:,.0f} reads/s{found}"

    @staticmethod
    def _records(counted: Mapping[str, int]) -> int:
        return sum(counted.get(f"written_{route}", 0) for route in _ROUTES)
