"""Is nothing lost? The three output topics folded by decision id, and compared with what was read.

fold   group by id; the highest attempt wins; within one attempt decided > review > dead
lost   an input record below the group's committed offset with no output record
copy   an output record that the fold leaves out: written again after a failure, with the same id
contradiction   one id and attempt on two routes; allowed only beside a ReadTimeout, which depends on the moment
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass

from slotstream.schemas.errors import ReadTimeout
from slotstream.schemas.label import Route
from slotstream.schemas.record import Origin

__all__ = ["Audit", "Row", "audit", "fold"]

_RANK: dict[Route, int] = {"decided": 2, "review": 1, "dead": 0}


@dataclass(frozen=True, slots=True)
class Row:
    """One output record: where it lies, what it says it is, and for a dead one why (`error.code`)."""

    route: Route
    origin: Origin
    schema_hash: str
    attempt: int
    code: str | None = None

    @property
    def id(self) -> str:
        """The decision id: one record asked one decision schema."""
        return self.origin.decision_id(self.schema_hash)


@dataclass(frozen=True, slots=True)
class Audit:
    """What `audit` found. Origins are in order; `routes` counts folded records, one an id.

    read: input records that were looked at.  written: output records.  folded: ids among them.
    copies: written minus the folded and the overtaken.  overtaken: records of an earlier attempt.
    ahead: origins that are written but not committed yet; they may come again.
    """

    read: int
    written: int
    folded: int
    copies: int
    overtaken: int
    routes: Counter[Route]
    lost: tuple[Origin, ...]
    ahead: tuple[Origin, ...]
    contradictions: tuple[str, ...]
    allowed_contradictions: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Nothing is lost, and no id says two things."""
        return not self.lost and not self.contradictions


def fold(rows: Iterable[Row]) -> dict[str, Row]:
    """The one row of each id that counts."""
    winners: dict[str, Row] = {}
    for row in rows:
        best = winners.get(row.id)
        if best is None or (row.attempt, _RANK[row.route]) > (best.attempt, _RANK[best.route]):
            winners[row.id] = row
    return winners


def audit(rows: Iterable[Row], read: Set[Origin]) -> Audit:
    """Compare what was written with what was read and committed.

    Lost is counted by origin, so that a decision schema that changed in between loses nothing.

    Args:
        rows: the three output topics, in any order.
        read: every input record below its partition's committed offset.
    """
    rows = list(rows)
    winners = fold(rows)
    attempts: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        attempts[row.id, row.attempt].append(row)
    overtaken = sum(len(same) for (key, number), same in attempts.items() if number < winners[key].attempt)
    torn = {key: same for (key, _), same in attempts.items() if len({row.route for row in same}) > 1}
    allowed = {key for key, same in torn.items() if any(row.code == ReadTimeout.default_code for row in same)}
    written = {row.origin for row in rows}
    return Audit(
        read=len(read),
        written=len(rows),
        folded=len(winners),
        copies=len(rows) - len(winners) - overtaken,
        overtaken=overtaken,
        routes=Counter(row.route for row in winners.values()),
        lost=_ordered(read - written),
        ahead=_ordered(written - read),
        contradictions=tuple(sorted(torn.keys() - allowed)),
        allowed_contradictions=tuple(sorted(allowed)),
    )


def _ordered(origins: Set[Origin]) -> tuple[Origin, ...]:
    return tuple(sorted(origins, key=lambda origin: (origin.topic, origin.topic_id, origin.partition, origin.offset)))
