"""Which record kills the engine? Smaller and smaller epochs until it stands alone; pure bookkeeping."""

from collections.abc import Hashable, Mapping, Set

__all__ = ["Blame"]

_ALONE_AFTER = 3


class Blame:
    """Decides how many records the next epoch may take.

    After an engine death the same records are read again in epochs no larger than what is in flight at once; after
    three deaths at one offset, one record at a time: the record that kills the engine then is the culprit. Records
    behind the suspects are read in whole epochs again.

    Args:
        whole: records an epoch while nothing is suspected.
        in_flight: records that the engine holds at once.
        deaths: what the group's commits remember of earlier processes.
    """

    def __init__(self, whole: int, in_flight: int, *, deaths: int = 0) -> None:
        self._whole = whole
        self._in_flight = min(whole, in_flight)
        self._suspects: dict[Hashable, int] = {}  # partition -> offset behind the last suspect
        self._alone: dict[Hashable, int] = {}
        # Where exactly an earlier process died is unknown; the culprit was in flight, so it is among the next records.
        self._unplaced = self._in_flight if deaths >= _ALONE_AFTER else 0

    @property
    def alone(self) -> bool:
        """Whether records are read one at a time, so that an engine death names its record."""
        return bool(self._alone or self._unplaced)

    @property
    def epoch_records(self) -> int:
        """How many records the next epoch may take."""
        if self.alone:
            return 1
        return self._in_flight if self._suspects else self._whole

    def died(self, positions: Mapping[Hashable, int], deaths: int) -> None:
        """The engine died with the records before `positions` in flight, for the `deaths`-th time there."""
        for at, offset in positions.items():
            self._suspects[at] = max(offset, self._suspects.get(at, 0))
        if deaths >= _ALONE_AFTER:
            self._alone |= positions

    def passed(self, positions: Mapping[Hashable, int]) -> None:
        """The records before `positions` are decided and committed."""
        self._unplaced = max(0, self._unplaced - 1)
        for known in (self._suspects, self._alone):
            for at, offset in positions.items():
                if offset >= known.get(at, offset):
                    known.pop(at, None)

    def keep(self, partitions: Set[Hashable]) -> None:
        """Suspects in other partitions are no longer ours."""
        for known in (self._suspects, self._alone):
            for at in known.keys() - partitions:
                del known[at]
