"""The demo as a user runs it: a program that ends with a summary, or fails aloud, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.produce import load_samples
from tests.tiny_tokenizer import write_tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = ROOT / "deploy" / "demo" / "messages.jsonl"
MARK = "SLOTSTREAM_DEMO_TEST"
TIMEOUT_S = 300

pytestmark = [pytest.mark.broker, pytest.mark.slow]


class Demo:
    """One run of the demo, with a fake engine; everything that it starts is known by a mark in its environment.

    on_line: called with each line that it prints, while it runs.
    """

    def __init__(self, out: Path, *options: str, root: Path = ROOT, path: str | None = None) -> None:
        self.out = out
        self.mark = uuid.uuid4().hex
        self.lines: list[str] = []
        environment = os.environ | {MARK: self.mark, "TMPDIR": str(out.parent)}
        if path is not None:
            environment["PATH"] = path
        command = [sys.executable, str(root / "deploy" / "demo" / "demo.py"), "--out", str(out), *options]
        self.process = subprocess.Popen(
            [*command, "--engine-kind", "instant", "--model", str(write_tiny_tokenizer(out.parent / "model"))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=out.parent,
        )

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait(self, on_line: Callable[[str], object] = lambda _: None) -> int:
        """The exit code, when the demo has ended by itself."""
        assert self.process.stdout is not None
        deadline = threading.Timer(TIMEOUT_S, self.process.kill)
        deadline.start()
        try:
            for line in self.process.stdout:
                self.lines.append(line.rstrip())
                on_line(self.lines[-1])
            return self.process.wait()
        finally:
            deadline.cancel()

    def started(self) -> dict[int, list[str]]:
        """Command lines of everything that is there of it now, by process id."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().decode().split("\0")
            except OSError:  # ended meanwhile, or somebody else's
                continue
        return found

    def scratch(self) -> list[Path]:
        """Data folders of what runs now: the guards' third argument."""
        guards = [command for command in self.started().values() if any("guard.py" in word for word in command)]
        return [Path(command[command.index(str(self.process.pid)) + 1]) for command in guards]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    demos = []

    def start(*options: str, **more: Any) -> Demo:
        demos.append(Demo(tmp_path / "out", *options, **more))
        return demos[-1]

    yield start
    for each in demos:
        each.process.kill()  # what it started ends with it
        each.process.wait()


def broker_of(config: pytest.Config) -> list[str]:
    kind = config.getoption("--broker")
    return ["--broker", kind] if kind else []


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_results(demo: Demo) -> None:
    """Everything that was sent is in the result files, once, and as it should be."""
    samples = load_samples(MESSAGES)
    rows = {route: read(demo.out / f"{route}.jsonl") for route in ("decided", "review", "dead")}
    total = len(samples) + 2
    origins = [row["origin"] for each in rows.values() for row in each]
    assert len(origins) == len(set(origins)) == total
    assert {row["key"] for row in rows["dead"]} == {sample.ticket_id for sample in samples if sample.flaw}
    tombstones = [row["key"] for row in rows["decided"] if row["fields"] is None]
    assert sorted(tombstones) == [sample.ticket_id for sample in samples[:2]]
    texts = {sample.ticket_id: sample.text for sample in samples}
    for row in rows["decided"] + rows["review"]:
        assert row["fields"] is None or row["fields"]["text"] == texts[row["key"]]
        assert row["headers"]["traceparent"]
        assert row["headers"]["slotstream.decision_id"]
    for row in rows["dead"]:
        assert row["headers"]["slotstream.error.code"]
    assert (
        f"{total} in = {len(rows['decided'])} decided + {len(rows['review'])} review + {len(rows['dead'])} dead"
        in demo.text
    )
    assert (demo.out / "summary.txt").read_text().strip() in demo.text
    assert "\x1b" not in demo.text


def check_nothing_is_left(demo: Demo, scratch: list[Path]) -> None:
    assert demo.started() == {}
    assert scratch
    assert [folder for folder in scratch if folder.exists()] == []
    assert list(demo.out.parent.glob("slotstream-*")) == []  # its TMPDIR


def test_the_whole_demo_ends_with_every_message_in_a_file(
    demo: Callable[..., Demo], pytestconfig: pytest.Config
) -> None:
    run = demo(*broker_of(pytestconfig))
    scratch: list[Path] = []
    code = run.wait(lambda line: scratch.extend(run.scratch()) if "engine ready" in line else None)
    assert code == 0, run.text
    check_results(run)
    check_nothing_is_left(run, scratch)


def test_without_maven_it_says_so_and_works_with_a_schema_file(demo: Callable[..., Demo], tmp_path: Path) -> None:
    elsewhere = tmp_path / "copy"  # where nothing has been fetched through Maven yet
    shutil.copytree(ROOT / "deploy", elsewhere / "deploy")
    run = demo(root=elsewhere, path=str(tmp_path / "empty"))
    assert run.wait() == 0, run.text
    assert "noida-db" in run.text
    assert "No schema registry: it comes through Maven" in run.text
    check_results(run)
    derived = json.loads((run.out / "output.avsc").read_text())
    assert {"text", "intent", "decision_id"} <= {field["name"] for field in derived["fields"]}


STAGES = {"while messages are sent": "Producing", "while the pipeline runs": "engine ready"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("said", STAGES.values(), ids=STAGES.keys())
def test_a_signal_ends_it_and_everything_it_started(
    demo: Callable[..., Demo], number: signal.Signals, said: str
) -> None:
    run = demo("--broker", "noida")
    scratch: list[Path] = []

    def stop(line: str) -> None:
        if said in line and not scratch:
            scratch.extend(run.scratch())
            run.process.send_signal(number)

    assert run.wait(stop) == 128 + number, run.text
    assert "Stopping what was started" in run.text
    check_nothing_is_left(run, scratch)


def test_a_second_ctrl_c_does_not_cut_the_clean_up_short(demo: Callable[..., Demo]) -> None:
    run = demo("--broker", "noida")
    scratch: list[Path] = []

    def stop(line: str) -> None:
        if "engine ready" in line or "Stopping" in line:
            scratch.extend(run.scratch())
            run.process.send_signal(signal.SIGINT)

    assert run.wait(stop) == 130, run.text
    check_nothing_is_left(run, scratch)


def test_a_pipeline_that_fails_fails_the_demo(demo: Callable[..., Demo], tmp_path: Path) -> None:
    questions = tmp_path / "wrong.yaml"
    questions.write_text("name: wrong\nquestions: {urgent: {type: maybe}}\n")
    run = demo("--broker", "noida", "--schema", str(questions))
    scratch: list[Path] = []
    code = run.wait(lambda line: scratch.extend(run.scratch()) if "Running slotstream" in line else None)
    assert code == 1
    assert "The demo failed: the pipeline ended with exit code 2" in run.text
    assert "urgent" in run.text  # the pipeline's own words pass through
    check_nothing_is_left(run, scratch)


def test_missing_messages_are_told_before_anything_is_started(demo: Callable[..., Demo]) -> None:
    run = demo("--messages", "nowhere.jsonl")
    assert run.wait() == 1
    assert "nowhere.jsonl" in run.text
    assert "Starting" not in run.text


def test_keep_leaves_the_topics_up_until_ctrl_c(demo: Callable[..., Demo]) -> None:
    run = demo("--broker", "noida", "--keep")
    scratch: list[Path] = []
    looks: list[subprocess.CompletedProcess[str]] = []

    def look(line: str) -> None:
        if "python -c" in line:
            looks.append(
                subprocess.run(line, shell=True, cwd=run.out.parent, capture_output=True, text=True, check=False)
            )
        if "produce.py" in line:  # the last line
            scratch.extend(run.scratch())
            run.process.send_signal(signal.SIGINT)

    assert run.wait(look) == 0, run.text
    assert len(looks) == 1
    assert len(looks[0].stdout.splitlines()) == len(load_samples(MESSAGES)) + 2, looks[0].stderr
    check_nothing_is_left(run, scratch)
