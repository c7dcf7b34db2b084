"""Decide on a real in-process Beam runner, and its DoFn by hand where a runner would hide what happens."""

import re
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, GlobalWindow, SlidingWindows, TimestampedValue
from apache_beam.typehints.decorators import TypeCheckError
from apache_beam.utils.windowed_value import WindowedValue

from slotstream.operators.decide import Decide, DecideFn, record_of_fields
from slotstream.operators.engines import host
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import Engine, ReadRequest, ReadResult
from slotstream.operators.outcome import Dead, Decided, Forwarded
from slotstream.operators.testing import HeldEngine, InstantEngine, hashed_read
from slotstream.schemas.decision import load_decision_schema
from slotstream.schemas.errors import DecodeError, EngineError
from slotstream.schemas.record import Message, Origin
from tests.examples import NOUL, example_record, example_schema
from tests.tiny_tokenizer import write_tiny_tokenizer

SCHEMA = example_schema({"refund": {**NOUL, "thresholds": {"probability": 0.9}}})


@pytest.fixture
def config(tmp_path: Path) -> Iterator[EngineConfig]:
    """An instant engine whose checkpoint folder holds a tokenizer and nothing else."""
    config = EngineConfig(kind="instant", model=str(write_tiny_tokenizer(tmp_path / "checkpoint")), read_timeout_s=0.5)
    yield config
    host.discard(config)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Engine]]:
    """`engines(make)` makes the process load what `make()` returns, and returns the list of what it loaded."""

    def load(make: Callable[[], Engine] = InstantEngine) -> list[Engine]:
        loaded: list[Engine] = []

        def open_engine(_: EngineConfig) -> Engine:
            loaded.append(make())
            return loaded[-1]

        monkeypatch.setattr(host, "open_engine", open_engine)
        return loaded

    return load


def pipeline() -> beam.Pipeline:
    return beam.Pipeline(runner=FnApiRunner())


# The transform


def fate(outcome: Any) -> tuple[Any, ...]:
    if isinstance(outcome, Dead):
        return ("dead", outcome.error.code)
    return (outcome.record.fields["id"], outcome.decision.route, outcome.decision.labels[0].value)


def test_every_element_is_in_exactly_one_of_three_outputs(config: EngineConfig) -> None:
    texts: list[Any] = ["one", "two", None, "three", "x" * 9000, {"four": 4}]
    elements = [{"id": number, "text": text} for number, text in enumerate(texts)]
    sure = example_schema({"refund": NOUL})
    with pipeline() as root:
        results = root | beam.Create(elements) | Decide(sure, config)
        fates = [results[tag] | f"Fate {tag}" >> beam.Map(fate) for tag in ("decided", "review", "dead")]
        decided, review, dead = fates
        assert_that(
            decided | beam.Map(lambda got: got[:2]), equal_to([(n, "decided") for n in (0, 1, 3, 5)]), "decided"
        )
        assert_that(review, equal_to([]), "review")
        assert_that(dead, equal_to([("dead", "state_empty"), ("dead", "state_too_long")]), "dead")


def test_what_is_not_certain_enough_is_in_review_with_its_reasons(config: EngineConfig) -> None:
    unsure = example_schema({"refund": {**NOUL, "thresholds": {"probability": 0.95}}})
    with pipeline() as root:
        results = root | beam.Create([{"text": "one"}]) | Decide(unsure, config)
        reasons = results.review | beam.FlatMap(lambda outcome: map(str, outcome.decision.reasons))
        assert_that(reasons, equal_to(["refund: probability 0.909091 is below 0.95"]))
        assert_that(results.decided, equal_to([]), "decided")


def test_records_are_taken_as_they_are(config: EngineConfig) -> None:
    records = [example_record("one", 7), example_record("two", 8)]
    with pipeline() as root:
        results = root | beam.Create(records) | Decide(SCHEMA, config)
        ids = results.decided | beam.Map(lambda outcome: outcome.decision.id)
        assert_that(ids, equal_to([f"topic-uuid:0:{offset}:{SCHEMA.hash}" for offset in (7, 8)]))


@pytest.mark.parametrize("window", [FixedWindows(10), SlidingWindows(20, 10)], ids=["fixed", "sliding"])
def test_timestamps_and_windows_are_kept(config: EngineConfig, window: Any) -> None:
    class Seen(beam.DoFn):  # type: ignore[misc]
        def process(self, element: Any, at: Any = beam.DoFn.TimestampParam, within: Any = beam.DoFn.WindowParam) -> Any:
            message = getattr(element, "message", None)
            number = element["id"] if message is None else int(element.record.fields["id"])
            yield number, float(at), (float(within.start), float(within.end))

    with pipeline() as root:
        elements = (
            root
            | beam.Create([{"id": number, "text": f"text {number}"} for number in range(40)])
            | beam.Map(lambda element: TimestampedValue(element, element["id"]))
            | beam.WindowInto(window)
        )
        before = elements | "Before" >> beam.ParDo(Seen()) | "In one" >> beam.WindowInto(_everything())
        after = (elements | Decide(SCHEMA, config)).decided | "After" >> beam.ParDo(Seen())
        expected = beam.pvalue.AsList(before)
        compared = (
            after
            | "All" >> beam.WindowInto(_everything())
            | beam.combiners.ToList()
            | beam.Map(lambda got, want: sorted(got) == sorted(want) and len(got), expected)
        )
        assert_that(compared, equal_to([40 if isinstance(window, FixedWindows) else 80]))


def _everything() -> Any:
    return beam.transforms.window.GlobalWindows()


def test_outputs_have_types_and_elements_of_another_type_are_refused_at_once(config: EngineConfig) -> None:
    root = pipeline()
    results = root | beam.Create([{"text": "one"}]) | Decide(SCHEMA, config)
    assert [results[tag].element_type for tag in ("decided", "review", "dead")] == [Decided, Decided, Dead]
    for wrong in (["one"], [1], [{1: "one"}]):
        with pytest.raises(TypeCheckError):
            _ = pipeline() | beam.Create(wrong) | Decide(SCHEMA, config)


def test_outcomes_are_counted(config: EngineConfig) -> None:
    root = pipeline()
    _ = root | beam.Create([{"text": text} for text in ("one", "two", "")]) | Decide(SCHEMA, config)
    counters = root.run().metrics().query(MetricsFilter().with_namespace("slotstream"))["counters"]
    assert {counter.key.metric.name: counter.committed for counter in counters} == {"decided": 2, "dead": 1}


def test_the_example_of_the_docstring_runs(
    config: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tickets.yaml").write_text("refund: {type: noul, instructions: Is this about money back}")
    monkeypatch.chdir(tmp_path)
    match = re.search(r"Example::\n\n((?: {8}.*\n)+)", Decide.__doc__ or "")
    assert match
    # The last line of the example is a PCollection: name it.
    *first, last = textwrap.dedent(match[1]).splitlines()
    with pipeline() as root:
        names = {
            "beam": beam,
            "Decide": Decide,
            "EngineConfig": partial(EngineConfig, kind="instant"),
            "load_decision_schema": load_decision_schema,
            "tickets": root | beam.Create([{"id": 1, "text": "Where is my money?"}, {"id": 2, "text": ""}]),
        }
        exec("\n".join([*first, f"answers = {last}"]), names)
        answers: Any = names["answers"]
        assert_that(answers | beam.Map(lambda answer: (answer[0], type(answer[1]))), equal_to([(1, bool)]))
    host.discard(EngineConfig(kind="instant", model="checkpoint"))


def test_equal_elements_have_equal_ids_and_others_have_others() -> None:
    one, same, other = ({"a": 1, "b": "ü"}, {"b": "ü", "a": 1}, {"a": 1, "b": "u"})
    ids = [record_of_fields(element).message.origin.decision_id("h") for element in (one, same, other)]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize("value", ["\ud83d", b"\xff", {"x": {1, 2}}, float("nan"), None, 10**400])
def test_an_element_of_any_values_is_a_record(value: Any) -> None:
    element = {"text": value}
    record = record_of_fields(element)
    assert record.fields == element
    assert re.fullmatch(r"[0-9a-f]{32}", record.message.origin.topic_id)


# The DoFn


def emitted(outputs: Iterator[WindowedValue]) -> list[Any]:
    return [output.value for output in outputs]


def test_one_engine_serves_all_instances_of_a_process(config: EngineConfig, engines: Any) -> None:
    loaded = engines()
    for _ in range(5):
        fn = pickler.loads(pickler.dumps(DecideFn(SCHEMA, config)))
        fn.setup()
        for _ in range(2):
            fn.start_bundle()
            assert len(emitted(fn.process(example_record("one"), 0, GlobalWindow()))) == 1
            assert emitted(fn.finish_bundle()) == []
        fn.teardown()
    assert len(loaded) == 1


@pytest.mark.parametrize("made", [DecideFn, Decide])
def test_it_travels_to_a_worker(config: EngineConfig, made: Any) -> None:
    pickler.loads(pickler.dumps(made(SCHEMA, config)))


def test_records_dead_ones_and_tombstones_come_out_in_their_order(config: EngineConfig) -> None:
    fn = DecideFn(SCHEMA, config)
    fn.setup()
    fn.start_bundle()
    tombstone = Forwarded(Message(Origin("t", "u", 0, 2), 0, 0, b"k", None))
    dead = Dead(example_record("", 1).message, DecodeError("bad bytes"))
    items: list[Any] = [example_record("a", 0), dead, tombstone, example_record("b", 3)]
    outputs = [out for at, item in enumerate(items) for out in fn.process(item, at, GlobalWindow())]
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


def test_all_records_of_a_bundle_are_in_flight_together(config: EngineConfig, engines: Any) -> None:
    loaded = engines(after_the_proof(HeldEngine))
    fn = DecideFn(SCHEMA, config)
    fn.setup()
    (engine,) = loaded
    fn.start_bundle()
    for number in range(config.max_in_flight):
        assert emitted(fn.process(example_record("x", number), number, GlobalWindow())) == []
    assert len(engine.held) == config.max_in_flight
    engine.finish(config.max_in_flight)
    assert len(emitted(fn.finish_bundle())) == config.max_in_flight


def test_an_output_carries_the_time_of_its_own_record_whenever_it_leaves(config: EngineConfig, engines: Any) -> None:
    loaded = engines(after_the_proof(HeldEngine))
    fn = DecideFn(SCHEMA, config)
    fn.setup()
    fn.start_bundle()
    assert list(fn.process(example_record("x", 0), 100, FixedWindows(10).assign(_context(100))[0])) == []
    loaded[0].finish()
    window = FixedWindows(10).assign(_context(200))[0]
    (first,) = fn.process(example_record("y", 1), 200, window)
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


def test_a_dead_engine_fails_the_bundle_and_the_next_attempt_has_a_new_one(config: EngineConfig, engines: Any) -> None:
    loaded = engines(dying_once())
    fn = DecideFn(SCHEMA, config)
    fn.setup()
    fn.start_bundle()
    with pytest.raises(EngineError, match="out of memory"):
        emitted(fn.process(example_record("x", 5), 0, GlobalWindow()))
    with pytest.raises(EngineError, match="closed"):
        loaded[0].submit([])
    fn.start_bundle()  # a runner may reuse the instance
    assert len(emitted(fn.process(example_record("x", 5), 0, GlobalWindow()))) == 1
    assert len(loaded) == 2


def test_an_engine_s_error_fails_the_pipeline_and_nothing_is_written(config: EngineConfig, engines: Any) -> None:
    engines(dying_once())
    root = pipeline()
    _ = root | beam.Create([{"text": "one"}]) | Decide(SCHEMA, config)
    with pytest.raises(Exception, match="out of memory"):
        root.run().wait_until_finish()


def test_a_bundle_that_was_given_up_leaves_nothing_to_the_next(config: EngineConfig, engines: Any) -> None:
    loaded = engines(after_the_proof(HeldEngine))
    fn = DecideFn(SCHEMA, config)
    fn.setup()
    fn.start_bundle()
    assert emitted(fn.process(example_record("given up", 0), 0, GlobalWindow())) == []
    fn.start_bundle()
    assert loaded[0].held[0][1].cancelled()
    assert emitted(fn.process(example_record("x", 1), 1, GlobalWindow())) == []
    loaded[0].finish(2)
    (output,) = fn.finish_bundle()
    assert (output.value.message.origin.offset, int(output.timestamp)) == (1, 1)


def test_the_clock_is_the_caller_s(config: EngineConfig) -> None:
    with pipeline() as root:
        results = root | beam.Create([{"text": "one"}]) | Decide(SCHEMA, config, clock=lambda: 12.5)
        assert_that(results.decided | beam.Map(lambda outcome: outcome.decision.decided_at_ms), equal_to([12_500]))
