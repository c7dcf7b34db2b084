"""What fails around a running stream: the run goes on where it can, stops with the right code where it cannot."""

import io
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import fastavro
import pytest

from deploy.local.broker import LocalBroker
from slotstream.operators import decode
from slotstream.operators.engines import host
from slotstream.operators.engines.protocol import ReadRequest, ReadResult
from slotstream.operators.kafka.headers import header_value
from slotstream.operators.kafka.read import stopping
from slotstream.operators.registry import shared_registry
from slotstream.operators.testing import HeldEngine, InstantEngine, hashed_read
from slotstream.operators.testing_registry import fake_schema_registry
from slotstream.pipelines.run import run
from slotstream.pipelines.shutdown import Shutdown
from slotstream.schemas.errors import EngineError
from tests.pipelines.conftest import StreamFactory
from tests.pipelines.stream import COMMAND, Stream, texts, until
from tests.tiny_tokenizer import tiny_tokenizer

pytestmark = pytest.mark.broker


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Stream], None]]:
    """`here(stream)` runs the stream to its end in this process, where a test can reach inside."""
    monkeypatch.setattr(decode, "_condemned", set())

    def run_here(it: Stream) -> None:
        with Shutdown() as shutdown:
            run(it.config_file, shutdown, until_caught_up=True)

    yield run_here
    stopping.clear()
    host.close_all()


def engine_that_dies_of(word: str, monkeypatch: pytest.MonkeyPatch) -> list[InstantEngine]:
    """From now on engines die when they read a record with that word; the list holds all that were started."""
    tokens = tuple(tiny_tokenizer().encode(word, add_special_tokens=False).ids)
    started: list[InstantEngine] = []

    def start(_config: Any) -> InstantEngine:
        def read(request: ReadRequest) -> ReadResult:
            ids = request.prompt_ids
            if any(ids[at : at + len(tokens)] == tokens for at in range(len(ids) - len(tokens) + 1)):
                engine.close()
                raise EngineError("the engine died")
            return hashed_read(request)

        engine = InstantEngine(read=read)
        started.append(engine)
        return engine

    monkeypatch.setattr(host, "open_engine", start)
    return started


def test_the_record_that_kills_the_engine_is_dead_and_its_neighbours_are_decided(
    stream: StreamFactory, here: Callable[[Stream], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = engine_that_dies_of("poison", monkeypatch)
    it = stream(partitions=1)
    poison = {"value": json.dumps({"text": "poison"}).encode(), "key": b"p"}
    it.send([*texts(90), poison, *texts(60, first=90)])
    here(it)
    audit = it.audit()
    assert audit.sound
    assert audit.routes == {"decided": 150, "dead": 1}
    (dead,) = it.read("dead")
    assert header_value(tuple(dead.headers), "slotstream.error.code") == "engine_crash"
    assert dead.value == poison["value"]
    assert len(started) <= 7


def test_an_engine_that_always_dies_ends_the_run_with_1_and_nothing_is_blamed(
    stream: StreamFactory, here: Callable[[Stream], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_that_dies_of("message", monkeypatch)
    it = stream(settings={"run.engine_restarts": 3, "run.retry_max_wait_s": 0.01})
    it.send(texts(10))
    with pytest.raises(EngineError, match="died 4 times") as caught:
        here(it)
    assert caught.value.exit_code == 1
    assert it.written() == 0


def test_records_that_do_not_finish_in_time_after_a_signal_are_left_for_the_next_run(
    stream: StreamFactory, here: Callable[[Stream], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(HeldEngine):
        """Answers the probe, then nothing until it is closed."""

        def submit(self, requests: Sequence[ReadRequest]) -> "list[Future[ReadResult]]":
            futures = super().submit(requests)
            if self.finished < 3:  # the probe's reads, of one canvas
                self.finish(len(requests))
            elif not self.asked.is_set():
                self.asked.set()
                threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGTERM]).start()
            return futures

        def close(self) -> None:
            super().close()
            self.fail(EngineError("closed"))

        asked = threading.Event()

    monkeypatch.setattr(host, "open_engine", lambda _config: Stuck())
    it = stream(settings={"run.shutdown_timeout_s": 1})
    it.send(texts(10))
    here(it)
    assert it.written() == 0
    monkeypatch.undo()
    stopping.clear()
    it.run_to_the_end()
    audit = it.audit()
    assert (audit.sound, audit.folded) == (True, 10)


def test_a_registry_that_does_not_answer_is_waited_for(
    stream: StreamFactory, here: Callable[[Stream], None], caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "text", "type": "string"}]}
    with fake_schema_registry() as registry:
        it = stream(settings={"input.format": "avro", "registry.urls": [registry.url], "run.retry_max_wait_s": 0.05})
        client = shared_registry(it.config.registry)
        schema_id = client.register("somewhere", json.dumps(schema))
        shared_registry.cache_clear()
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"text": "hello"})
        value = b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()
        it.send({"value": value, "key": b"k"} for _ in range(10))
        registry.faults += [503, 500, 0]
        here(it)
    assert [text for text in caplog.messages if text.startswith("paused for")] != []
    audit = it.audit()
    assert (audit.sound, audit.routes) == (True, {"decided": 10})


def test_a_broker_that_is_killed_and_comes_back_is_waited_for(stream: StreamFactory, kafka_broker: LocalBroker) -> None:
    if not kafka_broker.durable:
        pytest.skip("this broker loses acknowledged records when it is killed")
    it = stream(settings={"run.epoch_max_records": 20})
    sent = it.send(texts(1_500))
    running = it.run("--until-caught-up")
    until(lambda: it.written() >= 100, running)
    kafka_broker.kill()
    kafka_broker.restart()
    assert running.finish(180) == 0, running.told()
    audit = it.audit()
    assert audit.sound
    assert audit.folded == sent


def ends(*arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command."""
    done = subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_missing_output_topic_is_a_configuration_error(stream: StreamFactory) -> None:
    it = stream()
    it.config_file.write_text(it.config_file.read_text().replace(it.names["dead"], "no-such-topic"))
    code, told = ends("run", "--config", str(it.config_file))
    assert code == 2
    assert "topic no-such-topic: the output topic of dead does not exist; create it" in told
    assert "Traceback" not in told


def test_a_wrong_configuration_is_told_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("input: {topik: x}")
    code, told = ends("run", "--config", str(tmp_path / "bad.yaml"))
    assert code == 2
    assert "input.topik: unknown key; did you mean 'topic'?" in told
    assert "Traceback" not in told


def test_a_broker_that_is_not_there_at_start_ends_with_1(stream: StreamFactory) -> None:
    it = stream(settings={"kafka.connect_timeout_ms": 2_000})
    with socket.socket() as taken:  # bound, never listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        it.config_file.write_text(it.config_file.read_text().replace(it.kafka.bootstrap_servers, address))
        code, told = ends("run", "--config", str(it.config_file))
    assert code == 1
    assert address in told
    assert "Traceback" not in told
