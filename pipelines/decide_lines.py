"""`slotstream decide`: JSON lines in, JSON lines out, without Beam and without Kafka."""

import json
import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from slotstream.operators.checkpoint import check_checkpoint
from slotstream.operators.codecs.json_object import JsonCodec
from slotstream.operators.decider import Decider
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.host import close_all
from slotstream.operators.outcome import Dead, Decided, Outcome, route_of
from slotstream.operators.warm import warm
from slotstream.schemas.decision import DecisionSchema, load_decision_schema
from slotstream.schemas.errors import ConfigError, DecodeError, EngineError, RecordError
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Label
from slotstream.schemas.record import Message, Origin, Record

__all__ = ["answer_of", "decide_files", "decide_lines", "lines_or_pause"]

_log = logging.getLogger(__name__)

PROGRESS_S = 5.0
PAUSE_S = 0.05
"""Input that is silent for so long gets the answers that are still in flight."""

BLANK = "the line is blank; it is answered all the same, so that line N of the output belongs to line N of the input"


def decide_files(
    schema_path: Path, config: EngineConfig, *, source: Path | None = None, target: Path | None = None
) -> None:
    """Decide every line of `source` (default stdin) and write the answers to `target` (default stdout).

    Raises:
        SlotstreamError: schema, model or engine do not work.
    """
    schema = load_decision_schema(schema_path)
    check_checkpoint(config)
    lines = _open_input(source)
    _check_output(target, source)
    with ExitStack() as outputs:
        to_stdout = outputs.enter_context(_stdout_for_answers())
        try:
            ready = warm(schema, config)
            # A file is emptied only when all is ready to fill it.
            answers = to_stdout if target is None else outputs.enter_context(_open_output(target))
            decider = Decider(
                ready.plan, ready.engine, max_in_flight=config.max_in_flight, read_timeout_s=config.read_timeout_s
            )
            progress = _Progress()
            name = "stdin" if source is None else source.name
            answered = 0
            try:
                for outcome in decide_lines(lines_or_pause(lines), schema, decider, name=name):
                    answers.write(json.dumps(answer_of(outcome), ensure_ascii=False) + "\n")
                    answers.flush()
                    progress.add(route_of(outcome))
                    answered += 1
            except EngineError as error:
                raise EngineError(f"{error}. {answered} lines are answered: go on with line {answered + 1}") from error
            progress.tell()
        finally:
            close_all()


def decide_lines(
    lines: Iterable[bytes | None], schema: DecisionSchema, decider: Decider, *, name: str
) -> Iterator[Outcome]:
    """One outcome a line, in order, as soon as it is there.

    Args:
        lines: JSON objects; None says that nothing comes for the moment. A blank line is answered, too (`line_blank`):
            line N of the output belongs to line N of the input.
        name: of the input, for origins (`NAME[0]@LINE`, lines from 1).

    Raises:
        EngineError: the engine failed.
    """
    # The prefix keeps the names of decision fields free: here a record may well have its known answer in it.
    codec = JsonCodec(DecisionFields((), prefix="decided_by_slotstream_"), schema.state.paths)
    number = 0
    for line in lines:
        if line is None:
            yield from decider.drain()
            continue
        number += 1
        message = Message(Origin(name, name, 0, number), 0, -1, None, line)
        item: Record | Dead
        try:
            item = codec.decode(message) if line.strip() else Dead(message, DecodeError(BLANK, code="line_blank"))
        except RecordError as error:
            item = Dead(message, error)
        yield from decider.add(item)
    yield from decider.drain()


def answer_of(outcome: Outcome) -> dict[str, Any]:
    """The output line of an outcome, as JSON values."""
    if isinstance(outcome, Decided):
        decision = outcome.decision
        return {
            "route": decision.route,
            "labels": {label.question: _label(label) for label in decision.labels},
            "reasons": [
                {"question": r.question, "metric": r.metric, "value": r.value, "threshold": r.threshold}
                for r in decision.reasons
            ],
            "error": None,
        }
    assert isinstance(outcome, Dead)
    error = {"code": outcome.error.code, "message": str(outcome.error)}
    return {"route": "dead", "labels": {}, "reasons": [], "error": error}


def _label(label: Label) -> dict[str, Any]:
    return {
        "value": label.value,
        "probability": label.probability,
        "mass": label.mass,
        "margin": label.margin,
        "entropy": label.entropy,
        "probabilities": dict(label.probabilities),
    }


def lines_or_pause(stream: Iterable[bytes], pause_s: float = PAUSE_S) -> Iterator[bytes | None]:
    """The lines of a stream, and one None whenever the stream is silent for `pause_s`: a person may be typing."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=1_000)

    def read() -> None:
        try:
            for line in stream:
                waiting.put(line)
            waiting.put(None)
        except (OSError, ValueError) as error:  # the stream is closed or broken
            waiting.put(error)

    threading.Thread(target=read, name="slotstream-lines", daemon=True).start()
    quiet = True
    while True:
        try:
            line = waiting.get(timeout=None if quiet else pause_s)
        except queue.Empty:
            quiet = True
            yield None
            continue
        if isinstance(line, BaseException):
            raise ConfigError(f"the input cannot be read: {line}")
        if line is None:
            return
        quiet = False
        yield line


class _Progress:
    """Lines by route, told on stderr every few seconds and at the end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._routes: Counter[str] = Counter()
        self._started_at = self._told_at = clock()

    def add(self, route: str) -> None:
        self._routes[route] += 1
        if self._clock() - self._told_at >= PROGRESS_S:
            self.tell()

    def tell(self) -> None:
        self._told_at = self._clock()
        count = self._routes.total()
        routes = ", ".join(f"{self._routes[route]:,} {route}" for route in ("decided", "review", "dead"))
        rate = count / max(self._told_at - self._started_at, 1e-3)
        _log.info("%s lines: %s; %.1f lines/s", f"{count:,}", routes, rate)


def _open_input(path: Path | None) -> IO[bytes]:
    try:
        # Not sys.stdin: the interpreter waits for its lock at exit, which a reading thread holds.
        return open(0, "rb", closefd=False) if path is None else path.open("rb")
    except OSError as error:
        raise ConfigError(f"--in {path}: {error.strerror}") from None


def _check_output(path: Path | None, source: Path | None) -> None:
    """Refuse an output that cannot be written, or that is the input, before the engine takes its minute to start."""
    if path is None:
        return
    if source is not None and path.exists() and path.samefile(source):
        raise ConfigError(f"--out {path} is the file that --in reads: it would be emptied before it is read")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"--out {path}: a file in a folder that exists is needed")


def _open_output(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {path}: {error.strerror}") from None


def _stdout_for_answers() -> IO[str]:
    # Engines, and their native parts, print to file descriptor 1: from here on that is stderr, and only answers go out.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers
