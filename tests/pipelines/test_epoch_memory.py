"""Many epochs in one process: nothing grows with their number."""

import gc
import threading
from pathlib import Path

import pytest

from slotstream.operators.engines.host import close_all
from slotstream.operators.kafka.producers import close_producers
from slotstream.operators.kafka.session import close_sessions, session_for
from slotstream.operators.warm import warm
from slotstream.pipelines.graph import bounded_epochs
from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import texts

EPOCHS, RECORDS, WINDOWS = 200, 10, 3
MIB = 1 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.broker
@pytest.mark.slow
def test_200_epochs_leave_memory_and_threads_as_they_were(stream: StreamFactory) -> None:
    it = stream(partitions=1)
    warm_up = 120  # allocator and caches settle in about a hundred; in a young process it may take longer
    it.send(texts((warm_up + WINDOWS * EPOCHS) * RECORDS))
    schema = it.config.load_schema()
    warm(schema, it.config.engine)
    session, run_epoch = session_for(it.kafka, it.config.input), bounded_epochs(it.config, schema)

    def epochs(count: int) -> None:
        done = 0
        while done < count:
            if session.wait(500):
                assert run_epoch(RECORDS)["written_decided"] == RECORDS
                session.commit(session.positions())
                done += 1

    try:
        epochs(warm_up)
        gc.collect()
        threads = threading.active_count()
        windows = 0
        grown: list[int] = []
        while windows < WINDOWS and (not grown or grown[-1] >= 4 * MIB):  # a leak grows in every window
            before = resident_bytes()
            epochs(EPOCHS)
            gc.collect()
            grown.append(resident_bytes() - before)
            windows += 1
            print(f"{EPOCHS} epochs: {before / MIB:.0f} MiB before, {grown[-1] / MIB:+.1f} MiB after")
        assert grown[-1] < 4 * MIB
        assert threading.active_count() <= threads
    finally:
        close_sessions()
        close_producers()
        close_all()
    assert it.audit().folded == (warm_up + windows * EPOCHS) * RECORDS
