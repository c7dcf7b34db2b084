"""A whole stream on a real broker: its topics, its configuration, `slotstream run` as a process, and what came out."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from slotstream.operators.audit import Audit
from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.rows import audit_topics, records_of
from slotstream.pipelines.config import PipelineConfig, load_config
from tests.conftest import TopicFactory
from tests.tiny_tokenizer import write_tiny_tokenizer

__all__ = ["QUESTIONS", "RunningStream", "Stream", "texts", "until"]

COMMAND = Path(sys.executable).with_name("slotstream")
START_S = 120.0
"""A machine that runs other things, too, may take so long to import Beam and to join a group."""

QUESTIONS = {
    "name": "tickets",
    "state": "text",
    "questions": {
        "urgent": {"type": "noul", "instructions": "Is it urgent?"},
        "kind": {"type": "choice", "criteria": ["refund", "card", "other"]},
    },
}


class RunningStream:
    """One `slotstream run` process; its standard error goes to `log`."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [str(COMMAND), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
            )

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(timeout=10)

    def finish(self, timeout_s: float = START_S) -> int:
        """Wait for the exit code."""
        try:
            return self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=10)
            raise AssertionError(f"it did not end in {timeout_s:g} s:\n{self.told()}") from None

    def stop(self) -> int:
        """SIGTERM, and wait for the exit code."""
        self.signal(signal.SIGTERM)
        return self.finish(40)

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None


class Stream:
    """Topics `in`, `decided`, `review` and `dead` of equal partitions, and a configuration for them.

    Args:
        questions: the decision schema.
        settings: changes to the configuration, by dotted key.
        configs: Kafka settings of a topic, by its short name.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        topic: TopicFactory,
        *,
        partitions: int = 2,
        questions: Mapping[str, Any] = QUESTIONS,
        settings: Mapping[str, Any] | None = None,
        configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.folder = folder
        self.names = {
            name: topic(name, partitions=partitions, configs=(configs or {}).get(name))
            for name in ("in", "decided", "review", "dead")
        }
        write_tiny_tokenizer(folder / "model")
        (folder / "questions.yaml").write_text(yaml.safe_dump(questions, sort_keys=False))
        data: dict[str, Any] = {
            "kafka": {"bootstrap_servers": bootstrap},
            "input": {
                "topic": self.names["in"],
                "group": f"group-of-{self.names['in']}",
                "format": "json",
                "session_timeout_ms": 6_000,
            },
            "decision_schema": "questions.yaml",
            "engine": {"kind": "instant", "model": "model"},
            "output": {name: self.names[name] for name in ("decided", "review", "dead")},
            "run": {"progress_s": 1},
        }
        for path, value in (settings or {}).items():
            *sections, key = path.split(".")
            place = data
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = value
        self.config_file = folder / "stream.yaml"
        self.config_file.write_text(yaml.safe_dump(data))
        self.config: PipelineConfig = load_config(self.config_file)
        self._partitions = partitions
        self._started: list[RunningStream] = []
        self._watcher: Any = None

    @property
    def kafka(self) -> KafkaConfig:
        return self.config.kafka

    def send(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Produce records (arguments of `KafkaProducer.send`; partitions in turn), and wait until they are there."""
        producer = KafkaProducer(
            bootstrap_servers=self.kafka.bootstrap_servers, enable_idempotence=False, max_request_size=20 << 20
        )
        try:
            sent = [
                producer.send(self.names["in"], **{"partition": number % self._partitions, **record})
                for number, record in enumerate(records)
            ]
            for future in sent:
                future.get(timeout=30)
            return len(sent)
        finally:
            producer.close(timeout=5)

    def run(self, *arguments: str) -> RunningStream:
        """Start `slotstream run` with this configuration."""
        log = self.folder / f"run-{len(self._started)}.log"
        running = RunningStream(["run", "--config", str(self.config_file), *arguments], log)
        self._started.append(running)
        return running

    def run_to_the_end(self) -> RunningStream:
        """Run `--until-caught-up`; it must end with 0."""
        running = self.run("--until-caught-up")
        assert running.finish() == 0, running.told()
        return running

    def close(self) -> None:
        """End what a test left running."""
        for running in self._started:
            if running.running:
                running.kill()
        if self._watcher is not None:
            self._watcher.close(timeout_ms=1_000)

    def read(self, route: str) -> list[Any]:
        """All records of an output topic (or of `in`), partition after partition."""
        return list(records_of(self.kafka, self.names[route]))

    def written(self) -> int:
        """Records on all three output topics, quickly."""
        if self._watcher is None:
            self._watcher = KafkaConsumer(bootstrap_servers=self.kafka.bootstrap_servers, enable_auto_commit=False)
        outputs = [
            TopicPartition(self.names[r], n) for r in ("decided", "review", "dead") for n in range(self._partitions)
        ]
        return sum(self._watcher.end_offsets(outputs).values())

    def audit(self) -> Audit:
        return audit_topics(self.kafka, self.config.input, self.config.output)


def texts(count: int, *, first: int = 0) -> list[dict[str, Any]]:
    """So many sound JSON records."""
    return [
        {"value": json.dumps({"text": f"message number {n}", "n": n}).encode(), "key": b"k%d" % (n % 50)}
        for n in range(first, first + count)
    ]


def until(what: Callable[[], Any], running: RunningStream | None = None, *, timeout_s: float = START_S) -> Any:
    """Call it again and again until it is true; fails when the process ended or the time is over."""
    end = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < end, f"it did not become true in time:\n{running.told() if running else ''}"
        assert running is None or running.running, f"it ended with {running.process.returncode}:\n{running.told()}"
    return found
