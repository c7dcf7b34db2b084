"""Stopping, killing and sharing: nothing is lost, and nothing says two things."""

import random
import re
import signal
import time

import pytest

from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import texts, until

pytestmark = pytest.mark.broker

SMALL_EPOCHS = {"run.epoch_max_records": 40}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_commits_and_exits_0_and_a_restart_copies_nothing(
    stream: StreamFactory, number: signal.Signals
) -> None:
    it = stream(settings=SMALL_EPOCHS)
    sent = it.send(texts(2_000))
    running = it.run()
    until(lambda: it.written() >= 200, running)
    asked_at = time.monotonic()
    running.signal(number)
    assert running.finish(40) == 0, running.told()
    assert time.monotonic() - asked_at < 35
    before = it.audit()
    assert before.sound
    assert 200 <= before.read < sent, "it was stopped in the middle"
    assert before.ahead == (), "what is written is committed"
    it.run_to_the_end()
    after = it.audit()
    assert after.sound
    assert (after.read, after.folded, after.copies) == (sent, sent, 0)


@pytest.mark.usefixtures("sound_groups")
def test_a_second_signal_exits_at_once_with_1(stream: StreamFactory) -> None:
    it = stream(settings=SMALL_EPOCHS | {"engine.kind": "instant"})
    it.send(texts(2_000))
    running = it.run()
    until(lambda: it.written() >= 100, running)
    running.signal(signal.SIGSTOP)  # both signals are there when it goes on
    running.signal(signal.SIGTERM)
    running.signal(signal.SIGINT)
    running.signal(signal.SIGCONT)
    assert running.finish(20) == 1
    it.run_to_the_end()
    assert it.audit().sound


def test_a_signal_before_the_first_record_exits_0(stream: StreamFactory) -> None:
    it = stream()
    running = it.run()
    until(lambda: "decision schema" in running.told(), running)
    assert running.stop() == 0, running.told()


@pytest.mark.usefixtures("sound_groups")
def test_two_runs_in_one_group_share_the_partitions(stream: StreamFactory) -> None:
    it = stream(partitions=4, settings=SMALL_EPOCHS)
    sent = it.send(texts(40))
    one = it.run()
    until(lambda: it.written() == sent, one)
    other = it.run()
    until(lambda: "engine ready" in other.told(), other)
    shared = ""
    while not shared:  # as soon as both are members, each gets some of the next records
        sent += it.send(texts(400, first=sent))
        until(lambda: it.written() >= sent, one)  # noqa: B023
        shared = "records/s" if "records/s" in other.told() else ""
        assert other.running
        assert sent < 20_000, other.told()
    assert one.stop() == 0, one.told()
    sent += it.send(texts(100, first=sent))
    until(lambda: it.written() >= sent, other)  # the one that stays takes over
    assert other.stop() == 0, other.told()
    audit = it.audit()
    assert audit.sound
    assert audit.read == audit.folded == sent
    for running in (one, other):
        assert _decided(running.told()) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("sound_groups")
def test_five_kills_in_the_middle_of_2000_records_lose_nothing(stream: StreamFactory) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    it = stream(settings=SMALL_EPOCHS)
    sent = it.send([*texts(1_960), *({"value": b"bad %d" % n, "key": b"bad"} for n in range(40))])
    kills = 0
    while kills < 5:
        done = it.written()
        at = done + moments.randrange(20, 320)
        running = it.run()
        until(lambda: it.written() >= at, running)  # noqa: B023
        time.sleep(moments.uniform(0, 0.05))
        running.kill()
        kills += 1
        audit = it.audit()
        assert audit.sound, f"seed {seed}, kill {kills}: {audit}"
        assert audit.read < sent, f"seed {seed}: kill {kills} came after the end"
        print(f"kill {kills}: {audit.read} committed, {len(audit.ahead)} written ahead, {audit.copies} copies")
    it.run_to_the_end()
    audit = it.audit()
    print(f"end: {audit.read} committed, {audit.copies} copies, {dict(audit.routes)}")
    assert audit.sound, f"seed {seed}: {audit}"
    assert audit.read == audit.folded == sent
    assert audit.routes == {"decided": 1_960, "dead": 40}


def _decided(told: str) -> int:
    return max((int(found.replace(",", "")) for found in re.findall(r"([\d,]+) decided", told)), default=0)
