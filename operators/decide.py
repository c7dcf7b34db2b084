"""Decide: records in, decided records out, as a Beam transform."""

import hashlib
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from slotstream.operators.decider import Decider
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.host import discard
from slotstream.operators.outcome import Dead, Decided, Forwarded, Outcome, route_of
from slotstream.operators.warm import Warm, warm
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import EngineError
from slotstream.schemas.label import Route
from slotstream.schemas.record import Message, Origin, Record

__all__ = ["Decide", "DecideFn", "record_of_fields"]

_TOGETHER = 32  # records that are tokenized and handed to the engine in one go, at most
_SHARE = 4  # and at most this part of those in flight, so that the engine never waits for work


# What Beam would infer from `process` is WindowedValue, which is how an outcome leaves, not what leaves.
@beam.typehints.with_output_types(Outcome)
class DecideFn(beam.DoFn):  # type: ignore[misc]
    """`Record` in, `Outcome` out, in the same order; `Dead` and `Forwarded` pass in their places.

    Reads start in `process` and are drained in `finish_bundle`: all records of a bundle are in flight together, each
    with its own error. An EngineError fails the bundle (the runner retries it) and takes the process's engine down, so
    that the next attempt starts a new one.
    """

    def __init__(self, schema: DecisionSchema, engine: EngineConfig, *, clock: Callable[[], float] = time.time) -> None:
        self._schema = schema
        self._config = engine
        self._clock = clock
        self._ready: Warm | None = None
        self._decider: Decider | None = None
        # What is in flight, with time and windows, oldest first: outcomes leave in a later call than records enter.
        self._entered: deque[WindowedValue] = deque()
        self._counted: Counter[Route] = Counter()
        self._counters = {route: Metrics.counter("slotstream", route) for route in ("decided", "review", "dead")}

    def setup(self) -> None:
        warm(self._schema, self._config)  # held by the process, not by this instance: runners make many instances

    def start_bundle(self) -> None:
        self._abandon()
        self._ready = warm(self._schema, self._config)
        self._decider = Decider(
            self._ready.plan,
            self._ready.engine,
            max_in_flight=self._config.max_in_flight,
            read_timeout_s=self._config.read_timeout_s,
            together=min(_TOGETHER, max(1, self._config.max_in_flight // _SHARE)),
            clock=self._clock,
        )

    def process(
        self,
        element: Record | Dead | Forwarded,
        windowed_value: WindowedValue = beam.DoFn.WindowedValueParam,
        window: Any = beam.DoFn.WindowParam,  # noqa: ARG002 - asks Beam for one call a window; else it repeats windows
    ) -> Iterator[WindowedValue]:
        assert self._decider is not None
        self._entered.append(windowed_value)
        yield from self._emit(self._decider.add(element))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        assert self._decider is not None
        yield from self._emit(self._decider.drain())
        for route, count in self._counted.items():
            self._counters[route].inc(count)

    def teardown(self) -> None:
        self._abandon()

    def _emit(self, outcomes: Iterator[Outcome]) -> Iterator[WindowedValue]:
        try:
            for outcome in outcomes:
                self._counted[route_of(outcome)] += 1
                yield self._entered.popleft().with_value(outcome)
        except EngineError:
            self._abandon()
            if self._ready is not None:
                discard(self._config, self._ready.engine)
            raise

    def _abandon(self) -> None:
        if self._decider is not None:
            self._decider.abandon()
            self._decider = None
        self._entered.clear()
        self._counted.clear()


_Routed: TypeAlias = (
    TaggedOutput[Literal["decided"], Decided]
    | TaggedOutput[Literal["review"], Decided]
    | TaggedOutput[Literal["dead"], Dead]
)


class _SplitByRoute(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Outcome) -> Iterator[_Routed]:
        yield TaggedOutput(route_of(element), element)


@beam.typehints.with_input_types(Mapping[str, Any] | Record)
class Decide(beam.PTransform):  # type: ignore[misc]
    """Ask a decision schema about every element of a PCollection.

    Elements are mappings of field name to value (or `Record`s). The result has three outputs: `decided` and `review`
    hold `Decided` (`.record.fields`, `.decision.labels`), `dead` holds `Dead` (`.message`, `.error`). Nothing is lost:
    each element is in exactly one of them, with the timestamp and the windows that it came with.

    Example::

        results = tickets | Decide(load_decision_schema("tickets.yaml"), EngineConfig(model="checkpoint"))
        results.decided | beam.Map(lambda d: (d.record.fields["id"], d.decision.labels[0].value))

    Args:
        schema: what is asked.
        engine: what answers; unset: vLLM with the small checkpoint that ships, which knows the demo's schema only.
        clock: Unix seconds, for `decision.decided_at_ms`.

    Raises (in the worker, before the first record):
        EngineNotCapable, MarkError: the model cannot answer this schema; the message says what to do.
    """

    def __init__(
        self,
        schema: DecisionSchema,
        engine: EngineConfig | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._schema = schema
        self._engine = engine or EngineConfig()
        self._clock = clock

    def expand(self, elements: beam.PCollection) -> Any:
        return (
            elements
            | "AsRecord" >> beam.Map(record_of_fields)
            | "Decide" >> beam.ParDo(DecideFn(self._schema, self._engine, clock=self._clock))
            | "SplitByRoute" >> beam.ParDo(_SplitByRoute()).with_outputs("decided", "review", "dead")
        )


def record_of_fields(element: Mapping[str, Any] | Record) -> Record:
    """A record without Kafka behind it; its origin is the hash of its fields, so that equal elements have equal ids."""
    if isinstance(element, Record):
        return element
    content = json.dumps(dict(element), sort_keys=True, default=str)
    origin = Origin("", hashlib.sha256(content.encode()).hexdigest()[:32], 0, 0)
    return Record(Message(origin, timestamp_ms=0, timestamp_type=-1, key=None, value=None), element)
