"""The rows of the table: what one loaded engine is asked, and what is measured."""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from tests.bench.reads.workload import Shape, Workload, mixed_shape

__all__ = ["COMPARED", "CURVES", "ROWS", "Bench", "Phase", "curves", "read_all"]

_TIMEOUT_S = 240.0  # for one read: a first batch shape may compile for tens of seconds


@dataclass(frozen=True, slots=True)
class Phase:
    """Reads that were kept `in_flight` at once. seconds: from the first submission to the last answer.

    latencies: seconds of each read, from its own submission.  first: seconds until the first answer, of all reads that
    were submitted at once.  stall: from then on, the longest time without any answer, seconds.
    """

    seconds: float
    latencies: list[float]
    first: float
    stall: float
    results: list[ReadResult]

    @property
    def reads_s(self) -> float:
        return len(self.latencies) / self.seconds


def read_all(engine: Engine, requests: Sequence[ReadRequest], in_flight: int) -> Phase:
    """Answer all requests, `in_flight` at a time, as the operator does: each answer makes room for the next read."""
    done: SimpleQueue[tuple[int, float, Future[ReadResult]]] = SimpleQueue()
    waiting: Iterator[tuple[int, ReadRequest]] = iter(enumerate(requests))
    submitted = [0.0] * len(requests)
    latencies = [0.0] * len(requests)
    results: list[Any] = [None] * len(requests)

    def arrived(number: int, future: "Future[ReadResult]") -> None:
        done.put((number, time.perf_counter(), future))

    def submit(count: int) -> None:
        batch = list(itertools.islice(waiting, count))
        now = time.perf_counter()
        for (number, _), future in zip(batch, engine.submit([request for _, request in batch]), strict=True):
            submitted[number] = now
            future.add_done_callback(partial(arrived, number))

    started = time.perf_counter()
    first = last = stall = 0.0
    submit(in_flight)
    finished = 0
    while finished < len(requests):
        taken = [done.get(timeout=_TIMEOUT_S)]
        while not done.empty():
            taken.append(done.get())
        for number, at, future in taken:
            results[number] = future.result()
            latencies[number] = at - submitted[number]
            if not first:
                first = last = at
            stall, last = max(stall, at - last), at
        finished += len(taken)
        submit(len(taken))
    return Phase(last - started, latencies, first - started, stall, results)


@dataclass(slots=True)
class Bench:
    """One loaded engine and how long it is measured.

    seconds: aim for each timed phase.  rounds: timed phases a row; the best counts, all are reported, because stock
    vLLM compiles for seconds in the middle of a phase.  mixed: reads of the mixed row.
    """

    engine: Engine
    workload: Workload
    seconds: float = 5.0
    rounds: int = 2
    mixed: int = 10_000
    alone: int = 60
    equal: int = 64
    answers: dict[str, list[Any]] = field(default_factory=dict)
    _used: int = 1_000_000  # numbers of the reads so far: a timed read meets the prefix in the cache, nothing else

    def take(self, shape: Shape, count: int) -> list[ReadRequest]:
        self._used += count
        return self.workload.reads(shape, self._used - count, count)


def throughput(bench: Bench, shape: Shape, in_flight: int, *, warm: int = 2) -> dict[str, Any]:
    """reads/s with `in_flight` reads in the engine at all times, after `warm` rounds of them."""
    for _ in range(warm - 1):
        read_all(bench.engine, bench.take(shape, in_flight), in_flight)
    rate = read_all(bench.engine, bench.take(shape, in_flight), in_flight).reads_s
    phases = []
    for _ in range(bench.rounds):
        count = max(2 * in_flight, math.ceil(rate * bench.seconds / in_flight) * in_flight)
        phases.append(read_all(bench.engine, bench.take(shape, count), in_flight))
        rate = max(rate, phases[-1].reads_s)
    best = max(phases, key=lambda phase: phase.reads_s)
    return {
        "reads_s": round(best.reads_s, 2),
        "decisions_s": round(best.reads_s * len(bench.take(shape, 1)[0].slots), 1),
        "rounds": [round(phase.reads_s, 2) for phase in phases],
        "reads": len(best.latencies),
        "p50_ms": round(statistics.median(best.latencies) * 1e3, 1),
        "slowest_ms": round(max(best.latencies) * 1e3, 1),
        "longest_stall_ms": round(best.stall * 1e3, 1),
    }


def alone(bench: Bench, shape: Shape) -> dict[str, Any]:
    """Milliseconds of one read with nothing else in the engine, each with a new record."""
    read_all(bench.engine, bench.take(shape, 10), 1)
    phase = read_all(bench.engine, bench.take(shape, bench.alone), 1)
    ordered = sorted(phase.latencies)
    return {
        "p50_ms": round(statistics.median(ordered) * 1e3, 2),
        "p90_ms": round(ordered[int(0.9 * len(ordered))] * 1e3, 2),
        "slowest_ms": round(ordered[-1] * 1e3, 2),
        "reads_s": round(phase.reads_s, 2),
        "reads": len(ordered),
    }


def mixed(bench: Bench, in_flight: int = 128) -> dict[str, Any]:
    """Reads of all shapes together, straight after a start: the longest time without an answer is a compile stall."""
    info = bench.engine.info
    requests = [
        bench.take(mixed_shape(number, widest=info.canvas_length, longest=info.max_model_len), 1)[0]
        for number in range(bench.mixed)
    ]
    phase = read_all(bench.engine, requests, in_flight)
    return {
        "reads": len(requests),
        "in_flight": in_flight,
        "reads_s": round(phase.reads_s, 2),
        "p50_ms": round(statistics.median(phase.latencies) * 1e3, 1),
        "slowest_read_ms": round(max(phase.latencies) * 1e3, 1),
        "first_answer_ms": round(phase.first * 1e3, 1),
        "longest_stall_ms": round(phase.stall * 1e3, 1),
    }


def answers(bench: Bench, in_flight: int = 64) -> dict[str, Any]:
    """The same numbered reads in every engine, one at a time and together; `agreement` compares them later."""
    requests = bench.workload.reads(Shape(), 0, bench.equal)
    for name, at_once in (("alone", 1), ("together", in_flight)):
        read_all(
            bench.engine, requests, at_once
        )  # the first time fills the prefix cache, so that it computes otherwise
        results = read_all(bench.engine, requests, at_once).results
        bench.answers[name] = [[[round(p, 7) for p in slot] for slot in result.log_probs] for result in results]
    return {"reads": len(requests)}


CURVES: dict[str, tuple[Sequence[int], Callable[[int], tuple[Shape, int]]]] = {
    "slots": ((1, 2, 4, 8, 16, 24), lambda n: (Shape(slots=n, canvas=64), 256)),
    "options": ((2, 8, 32, 128, 255), lambda n: (Shape(slots=1, marks=n), 256)),
    "prefix": ((0, 256, 1024, 4096, 8192), lambda n: (Shape(prefix=n), 256)),
    "record": ((8, 32, 128, 512, 1024), lambda n: (Shape(record=n), 256)),
    "in_flight": ((1, 4, 16, 64, 256, 512), lambda n: (Shape(), n)),
}
"""Cost curves: what varies -> its values, and the shape and the reads in flight at each."""


def curves(bench: Bench) -> dict[str, Any]:
    """reads/s and p50 while one thing varies; all else as in the other rows. One short phase a point."""
    info = bench.engine.info
    quick = replace(bench, seconds=bench.seconds / 3, rounds=1)
    found: dict[str, Any] = {"reads": 0}
    for axis, (values, at) in CURVES.items():
        points = []
        for value in values:
            shape, in_flight = at(value)
            if shape.canvas > info.canvas_length or shape.prefix + shape.record + shape.canvas > info.max_model_len:
                continue  # this engine is set up for less
            figures = throughput(quick, shape, in_flight, warm=1)
            points.append({axis: value, "reads_s": figures["reads_s"], "p50_ms": figures["p50_ms"]})
            found["reads"] += figures["reads"]
        found[axis] = points
    bench._used = quick._used
    return found


ROWS: dict[str, tuple[Callable[[Bench], dict[str, Any]], Shape]] = {
    "mixed": (mixed, Shape(canvas=16)),
    "alone": (partial(alone, shape=Shape()), Shape()),
    "in_flight_32": (partial(throughput, shape=Shape(), in_flight=32), Shape()),
    **{
        name: (partial(throughput, shape=shape, in_flight=256), shape)
        for name, shape in {
            "in_flight_256": Shape(),
            "slots_1": Shape(slots=1),
            "slots_8": Shape(slots=8),
            "slots_24": Shape(slots=24, canvas=64),
            "record_8": Shape(record=8),
            "record_512": Shape(record=512),
        }.items()
    },
    "answers": (answers, Shape()),
    "curves": (curves, Shape()),
}
"""Row name -> what to run, and the shape that the engine must be able to serve."""

COMPARED = ("alone", "in_flight_32", "in_flight_256", "answers")
"""Rows that all engines run; the others are slotstream's own path's."""
