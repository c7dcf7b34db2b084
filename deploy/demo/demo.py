"""The whole of slotstream on this machine: Kafka, a schema registry, a real engine, and a bank's incoming messages.

make demo                  everything, then a summary; what it started is stopped
make demo KEEP=1           the topics stay up to be looked at, until Ctrl-C
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kafka.errors import KafkaError

if __name__ == "__main__":
    # Python puts this script's own folder first: a module here would then hide an installed package of its name.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from deploy.demo.child import running
from deploy.demo.place import CONFIG, INPUT, ROUTES, TICKET_SCHEMA, Place
from deploy.demo.pointers import after_stop, while_up
from deploy.demo.produce import load_samples, recent, send, wire, with_tombstones
from deploy.demo.read_back import Row, json_line, read_topic
from deploy.demo.stop import Stop, Stopped
from deploy.demo.summary import Run, summarise
from deploy.demo.tally import Outcomes
from deploy.local.maven import FetchError
from deploy.local.service import StartError
from deploy.local.stack import LocalStack, local_stack
from slotstream.schemas.decision import load_decision_schema
from slotstream.schemas.errors import SlotstreamError

__all__ = ["DemoError", "main"]

HERE = Path(__file__).parent
PARTITIONS = 4
TOMBSTONES = 2
OUTPUTS = (CONFIG.name, "output.avsc", "summary.txt", *(f"{route}.jsonl" for route in ROUTES))
ENGINE_READY = "engine ready"
"""What the pipeline says when its engine has passed the probe."""
SILENCE_S = 10.0


class DemoError(Exception):
    """A step did not do what it is for; the message says which, and what to look at."""


@dataclass(slots=True)
class Steps:
    """Says what is going on, and keeps how long it took."""

    stop: Stop
    started: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str, doing: str) -> Iterator[None]:
        """One step: a line at its start, its seconds at its end. Raises Stopped at its end if a signal has come."""
        self.say(f"{doing} ...")
        begin = time.monotonic()
        yield
        self.stop.check()
        self.seconds[name] = time.monotonic() - begin

    def say(self, text: str) -> None:
        """A line with the time since the start."""
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        print(f"{minutes}:{seconds:02}  {text}", flush=True)


def run_demo(options: argparse.Namespace, stop: Stop) -> None:
    """Everything from nothing to the summary.

    Raises:
        DemoError: a step failed, or the counts do not add up.
    """
    steps = Steps(stop)
    samples = recent(with_tombstones(load_samples(options.messages), TOMBSTONES), time.time_ns() // 1_000_000)
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    for name in OUTPUTS:
        (out / name).unlink(missing_ok=True)
    with ExitStack() as stack:
        with steps.step("Kafka and registry", "Starting Kafka and a schema registry"):
            local = stack.enter_context(local_stack(kind=options.broker))
            with stop.deferred():  # retention without an end: messages with old time stamps would go soon
                local.broker.create_topics(dict.fromkeys((INPUT, *ROUTES), PARTITIONS), {"retention.ms": "-1"})
        place = Place(local.broker.bootstrap, None if local.registry is None else local.registry.url, out)
        for line in _what_is_up(place):
            steps.say(line)
        engine = {"kind": options.engine_kind} | ({"model": options.model} if options.model else {})
        place.write(out / CONFIG.name, decision_schema=options.schema, engine=engine)
        broken = sum(sample.flaw not in (None, "tombstone") for sample in samples)
        doing = f"Producing {len(samples)} messages to {INPUT}, {broken} of them broken"
        with steps.step("producing", doing), stop.deferred():
            messages = wire(samples, place.ticket_schema_id())
            sent = dict(zip(send(place.bootstrap, INPUT, messages), samples, strict=True))
        command = ["slotstream", "run", "--config", str(out / CONFIG.name), "--until-caught-up"]
        with steps.step("pipeline", f"Running {' '.join(command)}"):
            start_s, reads_s = _run_pipeline([str(Path(sys.executable).with_name(command[0])), *command[1:]], steps)
        end_s = steps.seconds.pop("pipeline") - start_s - reads_s
        steps.seconds |= {"engine start": start_s, "reads": reads_s, "engine stop": end_s}
        with steps.step("reading back", f"Reading back {', '.join(ROUTES)}"), stop.deferred():
            rows = _read_back(place)
        outcomes = Outcomes(sent, rows, load_decision_schema(options.schema).questions)
        _report(outcomes, Run(steps.seconds, reads_s), out)
        if problems := outcomes.problems():
            raise DemoError("the counts do not add up:\n  " + "\n  ".join(problems))
        if options.keep:
            _keep(local, place)
    print(after_stop(out))


def _what_is_up(place: Place) -> list[str]:
    if place.registry is not None:
        return [f"Up: Apache Kafka on {place.bootstrap}, Apicurio Registry on {place.registry}"]
    return [
        f"Up: noida-db on {place.bootstrap}, in place of Apache Kafka",
        f"No schema registry: it comes through Maven. The values' schema is a file: {TICKET_SCHEMA.name}",
    ]


def _run_pipeline(command: list[str], steps: Steps) -> tuple[float, float]:
    """Runs the pipeline until it has caught up; returns the seconds to a ready engine, and on to its last word."""
    begin = said_at = shown_at = time.monotonic()
    ready_at = 0.0

    def on_line(line: str) -> None:
        nonlocal ready_at, said_at
        said_at = time.monotonic()
        if not ready_at and ENGINE_READY in line:
            ready_at = said_at
        print(f"        {line}", flush=True)

    with running(command, name="pipeline", on_line=on_line) as pipeline:
        while pipeline.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                pipeline.wait(1)
            if time.monotonic() - max(said_at, shown_at) > SILENCE_S:
                shown_at = time.monotonic()
                steps.say("... " + ("reading" if ready_at else "the engine is starting: about a minute on a CPU"))
    if pipeline.returncode != 0:
        raise DemoError(f"the pipeline ended with exit code {pipeline.returncode}: its last lines above say why")
    ready_at = ready_at or begin
    return ready_at - begin, said_at - ready_at


def _read_back(place: Place) -> dict[str, list[Row]]:
    rows = {route: read_topic(place.bootstrap, route, place.schemas()) for route in ROUTES}
    for route, records in rows.items():
        lines = "".join(f"{json_line(row)}\n" for row in records)
        (place.folder / f"{route}.jsonl").write_text(lines, encoding="utf-8")
    return rows


def _report(outcomes: Outcomes, run: Run, out: Path) -> None:
    (out / "summary.txt").write_text(summarise(outcomes, run) + "\n", encoding="utf-8")
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(f"\n{summarise(outcomes, run, colour=colour)}\n", flush=True)


def _keep(local: LocalStack, place: Place) -> None:
    """Says how to look at what is there; returns at Ctrl-C."""
    print(while_up(place), flush=True)
    try:
        while local.broker.running and (local.registry is None or local.registry.running):
            time.sleep(0.5)
    except Stopped:
        return
    raise DemoError(f"Kafka or the registry has ended by itself. Kafka's log: {local.broker.log}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python deploy/demo/demo.py", description="Messages through a local Kafka, decided by a real engine."
    )
    add = parser.add_argument
    add("--keep", action="store_true", help="leave Kafka and the registry up until Ctrl-C")
    add("--out", type=Path, default=Path("demo-out"), help="folder for the results (default: %(default)s)")
    add("--messages", type=Path, default=HERE / "messages.jsonl", help="what customers write (default: the demo's own)")
    add("--schema", type=Path, default=HERE / "tickets.yaml", help="decision schema (default: the demo's own)")
    add("--model", help="folder of a DiffusionGemma checkpoint (default: the small one that ships with slotstream)")
    add(
        "--engine-kind",
        choices=("vllm", "transformers", "instant"),
        default="vllm",
        help="instant: a fake, its answers mean nothing (default: %(default)s)",
    )
    add(
        "--broker",
        choices=("apache", "noida"),
        help="apache: Kafka and Apicurio, through Maven; noida: noida-db, no registry (default: what is there)",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code: 0, 1 when something failed, 128 + number after a signal."""
    options = _parser().parse_args(arguments)
    stop = Stop()
    try:
        run_demo(options, stop)
    except Stopped:
        return 128 + stop.number
    except (DemoError, StartError, FetchError, SlotstreamError, KafkaError, ValueError, OSError) as error:
        if stop.number:
            return 128 + stop.number  # what failed was interrupted
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
