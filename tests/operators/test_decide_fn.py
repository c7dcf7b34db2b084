"""DecideFn by hand: what a runner would hide."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.transforms.window import FixedWindows, GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from slotstream.operators.decide import Decide, DecideFn
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.outcome import Dead, Forwarded
from slotstream.operators.testing import HeldEngine, InstantEngine, hashed_read
from slotstream.schemas.errors import DecodeError, EngineError
from slotstream.schemas.record import Message, Origin
from tests.examples import NOUL, LoadEngines, example_record, example_schema

SCHEMA = example_schema({"refund": {**NOUL, "thresholds": {"probability": 0.9}}})


def process(fn: DecideFn, element: Any, at: int = 0, window: Any = GlobalWindow()) -> Iterator[WindowedValue]:  # noqa: B008
    return fn.process(element, WindowedValue(element, at, (window,)))


def emitted(outputs: Iterator[WindowedValue]) -> list[Any]:
    return [output.value for output in outputs]


def test_one_engine_serves_all_instances_of_a_process(instant_config: EngineConfig, engines: LoadEngines) -> None:
    loaded = engines()
    for _ in range(5):
        fn = pickler.loads(pickler.dumps(DecideFn(SCHEMA, instant_config)))
        fn.setup()
        for _ in range(2):
            fn.start_bundle()
            assert len(emitted(process(fn, example_record("one")))) == 1
            assert emitted(fn.finish_bundle()) == []
        fn.teardown()
    assert len(loaded) == 1


@pytest.mark.parametrize("made", [DecideFn, Decide])
def test_it_travels_to_a_worker(instant_config: EngineConfig, made: Any) -> None:
    pickler.loads(pickler.dumps(made(SCHEMA, instant_config)))


def test_records_dead_ones_and_tombstones_come_out_in_their_order(instant_config: EngineConfig) -> None:
    fn = DecideFn(SCHEMA, instant_config)
    fn.setup()
    fn.start_bundle()
    tombstone = Forwarded(Message(Origin("t", "u", 0, 2), 0, 0, b"k", None))
    dead = Dead(example_record("", 1).message, DecodeError("bad bytes"))
    items: list[Any] = [example_record("a", 0), dead, tombstone, example_record("b", 3)]
    outputs = [out for at, item in enumerate(items) for out in process(fn, item, at)]
    outputs += fn.finish_bundle()
    assert [output.value.message.origin.offset for output in outputs] == [0, 1, 2, 3]
    assert [output.timestamp.micros // 1_000_000 for output in outputs] == [0, 1, 2, 3]
    assert outputs[1].value is dead
    assert outputs[2].value is tombstone


def after_the_proof(engine: type[HeldEngine]) -> Callable[[], Engine]:
    """A held engine that answers at once while it is being proven."""

    class Proven(engine):  # type: ignore[misc, valid-type]
        def submit(self, requests: Any) -> Any:
            futures = super().submit(requests)
            if self.finished < 3:
                self.finish(len(requests))
            return futures

    return Proven


def test_all_records_of_a_bundle_are_in_flight_together(instant_config: EngineConfig, engines: LoadEngines) -> None:
    loaded: Any = engines(after_the_proof(HeldEngine))
    fn = DecideFn(SCHEMA, instant_config)
    fn.setup()
    (engine,) = loaded
    fn.start_bundle()
    for number in range(instant_config.max_in_flight):
        assert emitted(process(fn, example_record("x", number), number)) == []
    assert len(engine.held) == instant_config.max_in_flight
    engine.finish(instant_config.max_in_flight)
    assert len(emitted(fn.finish_bundle())) == instant_config.max_in_flight


def test_an_output_carries_the_time_of_its_own_record_whenever_it_leaves(
    instant_config: EngineConfig, engines: LoadEngines
) -> None:
    loaded: Any = engines(after_the_proof(HeldEngine))
    fn = DecideFn(SCHEMA, instant_config)
    fn.setup()
    fn.start_bundle()
    assert list(process(fn, example_record("x", 0), 100, FixedWindows(10).assign(_context(100))[0])) == []
    loaded[0].finish()
    window = FixedWindows(10).assign(_context(200))[0]
    (first,) = process(fn, example_record("y", 1), 200, window)
    loaded[0].finish()
    (second,) = fn.finish_bundle()
    assert [
        (out.value.message.origin.offset, int(out.timestamp), int(out.windows[0].start)) for out in (first, second)
    ] == [
        (0, 100, 100),
        (1, 200, 200),
    ]


def _context(at: int) -> Any:
    return beam.transforms.window.WindowFn.AssignContext(at)


def dying_once() -> Callable[[], Engine]:
    """The first engine fails every read of a record; later ones are sound."""
    engines_made = 0

    def make() -> Engine:
        nonlocal engines_made
        engines_made += 1
        first, reads = engines_made == 1, 0

        def read(request: ReadRequest) -> ReadResult:
            nonlocal reads
            reads += 1
            if first and reads > 3:
                raise EngineError("out of memory")
            return hashed_read(request)

        return InstantEngine(read=read)

    return make


def test_a_dead_engine_fails_the_bundle_and_the_next_attempt_has_a_new_one(
    instant_config: EngineConfig, engines: LoadEngines
) -> None:
    loaded = engines(dying_once())
    fn = DecideFn(SCHEMA, instant_config)
    fn.setup()
    fn.start_bundle()
    with pytest.raises(EngineError, match="out of memory"):
        emitted(process(fn, example_record("x", 5)))
    with pytest.raises(EngineError, match="closed"):
        loaded[0].submit([])
    fn.start_bundle()  # a runner may reuse the instance
    assert len(emitted(process(fn, example_record("x", 5)))) == 1
    assert len(loaded) == 2


def test_two_threads_that_see_one_engine_die_load_one_new_one(
    instant_config: EngineConfig, engines: LoadEngines
) -> None:
    loaded: Any = engines(after_the_proof(HeldEngine))
    one, other = DecideFn(SCHEMA, instant_config), DecideFn(SCHEMA, instant_config)
    for number, fn in enumerate((one, other)):
        fn.setup()
        fn.start_bundle()
        assert emitted(process(fn, example_record("x", number))) == []
    loaded[0].fail(EngineError("it died"))
    with pytest.raises(EngineError, match="it died"):
        emitted(one.finish_bundle())
    one.start_bundle()
    with pytest.raises(EngineError, match="it died"):
        emitted(other.finish_bundle())
    other.start_bundle()
    for fn in (one, other):
        assert emitted(process(fn, example_record("x", 9))) == []
    loaded[1].finish(2)
    assert len(emitted(one.finish_bundle())) == len(emitted(other.finish_bundle())) == 1
    assert len(loaded) == 2


def test_a_bundle_that_was_given_up_leaves_nothing_to_the_next(
    instant_config: EngineConfig, engines: LoadEngines
) -> None:
    loaded: Any = engines(after_the_proof(HeldEngine))
    fn = DecideFn(SCHEMA, instant_config)
    fn.setup()
    fn.start_bundle()
    assert emitted(process(fn, example_record("given up", 0))) == []
    fn.start_bundle()
    assert loaded[0].held[0][1].cancelled()
    assert emitted(process(fn, example_record("x", 1), 1)) == []
    loaded[0].finish(2)
    (output,) = fn.finish_bundle()
    assert (output.value.message.origin.offset, int(output.timestamp)) == (1, 1)
