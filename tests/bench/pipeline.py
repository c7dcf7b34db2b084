"""What the stream costs around the engine: records a second through the pipeline beside a plain copy of the topic.

Kafka -> decode -> decide (instant engine, real tokenization) -> encode -> Kafka, as a ratio to a kafka-python loop
that polls, sends key, value, headers and time stamp, flushes and commits; both in this process, in turns, on one
broker. Then the CPU microseconds a record of each part alone. Prints one JSON object.

    python tests/bench/pipeline.py [--records 20000] [--rounds 3] [--schema deploy/demo/tickets.yaml]
"""

import argparse
import cProfile
import json
import logging
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from deploy.local.broker import LocalBroker, local_kafka
from slotstream.operators.decider import Decider
from slotstream.operators.decode import decode
from slotstream.operators.encode import encode
from slotstream.operators.engines.config import PACKAGED_CHECKPOINT
from slotstream.operators.kafka.headers import Stamp
from slotstream.operators.kafka.producers import close_producers
from slotstream.operators.kafka.session import close_sessions, session_for
from slotstream.operators.outcome import Decided
from slotstream.operators.reading import labels_from_reads
from slotstream.operators.warm import warm
from slotstream.pipelines.config import PipelineConfig, load_config
from slotstream.pipelines.epochs import EpochLoop
from slotstream.pipelines.graph import bounded_epochs
from slotstream.schemas.errors import ConfigError
from slotstream.schemas.record import Message, Origin

BAR, AIM = 0.2, 0.4
PARTITIONS = 2
BATCH = 5_000
TOGETHER = 32  # records that DecideFn hands over in one go by default

QUESTIONS: dict[str, Any] = {
    "name": "support",
    "state": "text",
    "questions": {
        "kind": {"type": "choice", "criteria": ["refund", "card", "account", "transfer", "complaint", "other"]},
        "urgent": {"type": "noul", "instructions": "Does waiting until tomorrow make it worse?"},
        "anger": {"type": "score", "criteria": ["calm", "cross", "furious"]},
    },
}
TEXT = (
    "Hello, I was charged twice for the same payment at the grocery store on Tuesday, and the second amount is still "
    "pending. Could you please tell me when I get it back? My reference is {number}."
)


@contextmanager
def timed(into: list[tuple[float, float]], profile: cProfile.Profile | None = None) -> Iterator[None]:
    """Append (wall seconds, CPU seconds of this process) of the block."""
    wall, cpu = time.perf_counter(), time.process_time()
    if profile is not None:
        profile.enable()
    yield
    if profile is not None:
        profile.disable()
    into.append((time.perf_counter() - wall, time.process_time() - cpu))


def main() -> int:
    """Returns 0 when the ratio reaches the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schema", type=Path, help="decision schema (default: one choice, one noul, one score)")
    parser.add_argument("--profile", type=Path, help="write a cProfile file of the pipeline's rounds")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as scratch, local_kafka() as broker:
        result = measure(Path(scratch), broker, options)
    print(json.dumps(result, indent=2))
    return 0 if result["ratio"] >= BAR else 1


def measure(folder: Path, broker: LocalBroker, options: argparse.Namespace) -> dict[str, Any]:
    """Both loops in turns, then the parts."""
    broker.create_topics(dict.fromkeys(["in", "copy", "decided", "review", "dead"], PARTITIONS))
    config = _config(folder, broker, options.schema)
    schema = config.load_schema()
    values = [json.dumps({"id": n, "text": TEXT.format(number=n)}).encode() for n in range(options.records)]
    warm(schema, config.engine)
    copied: list[tuple[float, float]] = []
    decided: list[tuple[float, float]] = []
    profile = cProfile.Profile(time.thread_time) if options.profile else None
    session = session_for(config.kafka, config.input)
    run_epoch = bounded_epochs(config, schema)
    with copier(broker) as copy:
        for round_ in range(options.rounds + 1):
            _produce(broker, values)
            while not copy.ready():
                pass
            with timed(copied):
                copy.run(options.records)
            if round_ == 0:
                session.wait(10_000)  # join
            with timed(decided, profile if round_ else None):
                _drain(config, session, run_epoch, options.records)
    epoch_ms = _epoch_cost_ms(run_epoch)
    close_sessions()
    close_producers()
    if profile is not None:
        profile.dump_stats(options.profile)
    del copied[0], decided[0]  # caches, connections, first imports
    copy_us, pipeline_us = (_per_record(times, options.records) for times in (copied, decided))
    ratio = statistics.median(c[0] / d[0] for c, d in zip(copied, decided, strict=True))
    parts = _parts(config, values[:2_000])
    parts["kafka"] = round(copy_us["cpu_us"], 1)
    parts["beam_epochs_and_interleaving"] = round(pipeline_us["cpu_us"] - sum(parts.values()), 1)
    return {
        "ratio": round(ratio, 3),
        "bar": BAR,
        "aim": AIM,
        "cpu_ratio": round(copy_us["cpu_us"] / pipeline_us["cpu_us"], 3),
        "records": options.records,
        "bytes_a_value": len(values[0]),
        "schema": schema.name,
        "copy": copy_us,
        "pipeline": pipeline_us,
        "cpu_us_by_part": parts,
        "empty_epoch_ms": epoch_ms,
    }


def _config(folder: Path, broker: LocalBroker, schema: Path | None) -> PipelineConfig:
    model = PACKAGED_CHECKPOINT
    if schema is None:  # the packaged card knows another schema: take its tokenizer only
        model = folder / "model"
        model.mkdir()
        shutil.copy(PACKAGED_CHECKPOINT / "tokenizer.json", model)
        (folder / "questions.yaml").write_text(yaml.safe_dump(QUESTIONS, sort_keys=False))
    data = {
        "kafka": {"bootstrap_servers": broker.bootstrap},
        "input": {"topic": "in", "group": "bench", "format": "json"},
        "decision_schema": str(schema.resolve() if schema else folder / "questions.yaml"),
        "engine": {"kind": "instant", "model": str(model)},
        "output": {"decided": "decided", "review": "review", "dead": "dead"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(data))
    return load_config(folder / "config.yaml")


def _produce(broker: LocalBroker, values: list[bytes]) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, enable_idempotence=False, batch_size=262_144, linger_ms=5
    )
    for number, value in enumerate(values):
        producer.send("in", value, key=b"%d" % number, headers=[("trace", b"abc")], partition=number % PARTITIONS)
    producer.flush()
    producer.close()


class copier:
    """The plain loop: poll, send, flush, commit, in batches of the pipeline's size with the pipeline's settings."""

    def __init__(self, broker: LocalBroker) -> None:
        self._consumer = KafkaConsumer(
            "in", bootstrap_servers=broker.bootstrap, group_id="copy", enable_auto_commit=False,
            auto_offset_reset="earliest", isolation_level="read_committed",
        )  # fmt: skip
        self._producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=50, batch_size=262_144, acks="all")

    def __enter__(self) -> "copier":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(timeout_ms=2_000)
        self._producer.close(timeout=2)

    def ready(self) -> bool:
        """Whether it owns its partitions; joins on the way."""
        if not self._consumer.assignment():
            self._consumer.poll(timeout_ms=100, max_records=1)
            for at in self._consumer.assignment():
                self._consumer.seek_to_beginning(at)
        return bool(self._consumer.assignment())

    def run(self, records: int) -> None:
        done = in_batch = 0
        while done < records:
            for at, polled in self._consumer.poll(timeout_ms=1_000, max_records=BATCH - in_batch).items():
                for record in polled:
                    self._producer.send(
                        "copy", value=record.value, key=record.key, headers=list(record.headers),
                        partition=at.partition, timestamp_ms=record.timestamp,
                    )  # fmt: skip
                done, in_batch = done + len(polled), in_batch + len(polled)
            if in_batch >= BATCH or done >= records:
                self._producer.flush()
                offsets = {at: self._consumer.position(at) for at in self._consumer.assignment()}
                self._consumer.commit({at: OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()})
                in_batch = 0


def _drain(config: PipelineConfig, session: Any, run_epoch: Callable[[int], Any], records: int) -> None:
    stop, done = threading.Event(), 0

    def count(committed: Any) -> None:
        nonlocal done
        done += sum(committed.get(f"written_{route}", 0) for route in ("decided", "review", "dead"))
        if done >= records:
            stop.set()

    EpochLoop(
        config.run, session, run_epoch=run_epoch, start_engine=lambda: None, each_turn=count,
        in_flight=config.engine.max_in_flight, stop=stop,
    ).run()  # fmt: skip


def _per_record(times: list[tuple[float, float]], records: int) -> dict[str, float]:
    wall, cpu = (statistics.median(column) / records for column in zip(*times, strict=True))
    return {"records_s": round(1 / wall), "wall_us": round(wall * 1e6, 1), "cpu_us": round(cpu * 1e6, 1)}


def _parts(config: PipelineConfig, values: list[bytes]) -> dict[str, float]:
    """CPU microseconds a record of each pure part, on this thread alone; the pipeline's interleaving costs extra."""
    schema = config.load_schema()
    ready, codec = warm(schema, config.engine), config.codec_source(schema).codec()
    messages = [
        Message(Origin("in", "uuid", 0, n), 1, 0, b"%d" % n, value, (("trace", b"abc"),))
        for n, value in enumerate(values)
    ]
    stamp = Stamp(schema.hash, "bench", "1")
    parts: dict[str, float] = {}

    def part(name: str, work: Callable[[], list[Any]]) -> list[Any]:
        best, out = float("inf"), []
        for _ in range(3):
            started = time.thread_time()
            out = work()
            best = min(best, time.thread_time() - started)
        parts[name] = round(best / len(values) * 1e6, 1)
        return out

    records = part("decode", lambda: [decode(message, codec) for message in messages])
    states = part("render", lambda: [schema.state.render(record.fields) for record in records])
    chunks = [states[at : at + TOGETHER] for at in range(0, len(states), TOGETHER)]
    part("tokenize", lambda: [ready.plan._tokenizer.encode_all(chunk) for chunk in chunks])
    planned = part("tokenize_and_plan", lambda: [reads for chunk in chunks for reads in ready.plan.reads_of_all(chunk)])
    results = part("engine", lambda: [[f.result() for f in ready.engine.submit(p.requests)] for p in planned])
    part("labels", lambda: [labels_from_reads(ready.plan, result) for result in results])

    def decide() -> list[Any]:
        decider = Decider(ready.plan, ready.engine, max_in_flight=256, read_timeout_s=60, together=TOGETHER)
        return [*(outcome for record in records for outcome in decider.add(record)), *decider.drain()]

    outcomes = part("decide", decide)
    if not all(isinstance(outcome, Decided) for outcome in outcomes):
        raise ConfigError("the bench's records must all be decided")
    part("encode", lambda: [encode(outcome, codec, stamp, time_ms=1) for outcome in outcomes])
    inside = parts["render"] + parts["tokenize_and_plan"] + parts["engine"] + parts["labels"]
    return {
        "decode": parts["decode"],
        "tokenize": parts["tokenize"],
        "plan": round(parts["render"] + parts["tokenize_and_plan"] - parts["tokenize"], 1),
        "instant_engine": parts["engine"],
        "labels": parts["labels"],
        "drain_and_route": round(parts["decide"] - inside, 1),
        "encode": parts["encode"],
    }


def _epoch_cost_ms(run_epoch: Callable[[int], Any]) -> float:
    """Milliseconds of an epoch without any record."""
    started = time.perf_counter()
    for _ in range(20):
        run_epoch(BATCH)
    return round((time.perf_counter() - started) / 20 * 1_000, 1)


if __name__ == "__main__":
    sys.exit(main())
