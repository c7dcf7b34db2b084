"""What this reader holds of each partition: ready, taken, committed. Pure bookkeeping, no Kafka calls; thread-safe."""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka.structs import TopicPartition

from slotstream.schemas.record import Message

__all__ = ["Ledger", "Positions"]

Positions = Mapping[TopicPartition, int]
"""Per partition the offset of the next record, as Kafka commits it."""


@dataclass(slots=True)
class _Place:
    committed: int  # or the start, where nothing is committed yet
    fetched: int  # position behind everything fetched, transaction markers included
    taken: int | None = None  # position behind what was handed out since the last commit
    ready: int = 0  # records in the buffer
    engine_deaths: int = 0


class Ledger:
    """Records in partition order between Kafka and the batch, and the offsets that may be committed for them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._places: dict[TopicPartition, _Place] = {}
        self._ready: deque[tuple[TopicPartition, int, Message]] = deque()
        self.ready_bytes = 0
        """Size of the keys and values that are ready to take."""

    def __len__(self) -> int:
        """Records ready to take."""
        return len(self._ready)

    def open(self, at: TopicPartition, committed: int, engine_deaths: int = 0) -> None:
        """A partition is ours from now on, from this offset."""
        with self._lock:
            self.forget([at])
            self._places[at] = _Place(committed, committed, engine_deaths=engine_deaths)

    def add(self, at: TopicPartition, records: Sequence[tuple[int, Message]], position: int) -> None:
        """Records (offset, message) were fetched, and the reader now stands at `position`. Ignored if not open."""
        with self._lock:
            if (place := self._places.get(at)) is None:
                return
            self._ready.extend((at, offset, message) for offset, message in records)
            self.ready_bytes += sum(_size(message) for _, message in records)
            place.ready += len(records)
            place.fetched = position

    def take(self, max_records: int) -> list[Message]:
        """The next ready records, now in flight."""
        with self._lock:
            taken: list[Message] = []
            for _ in range(min(max_records, len(self._ready))):
                at, offset, message = self._ready.popleft()
                place = self._places[at]
                place.ready -= 1
                place.taken = offset + 1
                self.ready_bytes -= _size(message)
                taken.append(message)
            return taken

    def in_flight(self) -> frozenset[TopicPartition]:
        """Partitions with records taken since their last commit."""
        with self._lock:
            return frozenset(at for at, place in self._places.items() if place.taken is not None)

    def positions(self) -> Positions:
        """What to commit when everything taken so far is written.

        Where nothing is ready any more this lies behind transaction markers and compacted gaps, too: they leave no lag.
        """
        with self._lock:
            return {
                at: place.taken if place.ready else max(place.taken, place.fetched)
                for at, place in self._places.items()
                if place.taken is not None
            }

    def markers(self) -> Positions:
        """Positions that moved without any record, over transaction markers; empty while records are in flight."""
        with self._lock:
            if self._ready or self.in_flight():
                return {}
            return {at: place.fetched for at, place in self._places.items() if place.fetched > place.committed}

    def committed(self, at: TopicPartition) -> int | None:
        """The committed offset, or the start; None for a partition that is not open."""
        with self._lock:
            place = self._places.get(at)
            return None if place is None else place.committed

    def engine_deaths(self) -> dict[TopicPartition, int]:
        """Per partition, how often the engine died with the record at the committed offset in flight."""
        with self._lock:
            return {at: place.engine_deaths for at, place in self._places.items()}

    def settle(self, at: TopicPartition, offset: int, engine_deaths: int = 0) -> None:
        """This was committed. Ignored if not open."""
        with self._lock:
            if (place := self._places.get(at)) is None:
                return
            place.committed, place.engine_deaths = offset, engine_deaths
            if place.taken is not None and place.taken <= offset:
                place.taken = None

    def due(self, positions: Positions) -> Positions:
        """Those of the positions that are new to their open partitions."""
        with self._lock:
            return {
                at: offset
                for at, offset in positions.items()
                if (place := self._places.get(at)) is not None and offset > place.committed
            }

    def clear(self) -> None:
        """Drop everything; no partition is open."""
        with self._lock:
            self.forget(list(self._places))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is ready and in flight of these partitions; they are no longer open."""
        with self._lock:
            gone = {at for at in partitions if self._places.pop(at, None) is not None}
            if gone:
                self._ready = deque(entry for entry in self._ready if entry[0] not in gone)
                self.ready_bytes = sum(_size(message) for _, _, message in self._ready)


def _size(message: Message) -> int:
    return len(message.key or b"") + len(message.value or b"")
