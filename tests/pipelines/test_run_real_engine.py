"""A stream through the real engine: a kill in the middle loses nothing, and a replay in other batches says the same."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import Stream, until

pytestmark = [pytest.mark.broker, pytest.mark.engine, pytest.mark.slow]

DEMO = Path(__file__).parents[2] / "deploy" / "demo"
QUESTIONS = yaml.safe_load((DEMO / "tickets.yaml").read_text(encoding="utf-8"))
REAL_ENGINE = {"engine.kind": "vllm", "engine.model": None}
RECORDS = 200
READ_S = 500.0


def tickets() -> list[dict[str, Any]]:
    """Messages of the demo, as JSON values."""
    lines = (DEMO / "messages.jsonl").read_text(encoding="utf-8").splitlines()
    records = [message["record"] for message in map(json.loads, lines) if "break" not in message]
    values = [json.dumps({"text": record["text"]}).encode() for record in records if len(record["text"]) < 600]
    return [{"value": value, "key": b"%d" % number} for number, value in enumerate(values[:RECORDS])]


def decisions(stream: Stream) -> dict[str, dict[str, Any]]:
    """What was written for each id: the last copy's fields but the time."""
    found = [json.loads(record.value) for route in ("decided", "review") for record in stream.read(route)]
    return {fields["decision_id"]: {k: v for k, v in fields.items() if k != "decided_at"} for fields in found}


@pytest.mark.usefixtures("sound_groups")
def test_a_kill_loses_nothing_and_a_replay_gives_the_same_labels(stream: StreamFactory) -> None:
    first = stream(questions=QUESTIONS, settings=REAL_ENGINE | {"run.epoch_max_records": 25})
    sent = first.send(tickets())
    assert sent == RECORDS
    running = first.run("--until-caught-up")
    until(lambda: first.written() >= 40, running, timeout_s=READ_S)
    running.kill()
    killed = first.audit()
    assert killed.sound
    assert killed.read < sent, "it was killed in the middle"
    running = first.run("--until-caught-up")
    assert running.finish(READ_S) == 0, running.told()
    audit = first.audit()
    print(f"killed at {killed.read} committed, {len(killed.ahead)} written ahead; {audit.copies} copies in the end")
    assert audit.sound
    assert audit.read == audit.folded == sent

    again = stream(
        questions=QUESTIONS,
        settings=REAL_ENGINE | {"input.topic": first.names["in"], "run.epoch_max_records": 60},
    )
    running = again.run("--until-caught-up")
    assert running.finish(READ_S) == 0, running.told()
    one, other = decisions(first), decisions(again)
    assert one.keys() == other.keys()
    pairs = [(a[name], other[i][name]) for i, a in one.items() for name in a]
    different = [(a, b) for a, b in pairs if a != b]
    print(f"replay: {len(different)} of {len(pairs)} values differ: {different[:5]}")
    assert [pair for pair in different if not all(isinstance(side, float) for side in pair)] == []
    assert max((abs(a - b) for a, b in different), default=0.0) <= 1.1e-6  # one unit of the sixth decimal
