"""Decide on a real in-process Beam runner."""

import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue
from apache_beam.typehints.decorators import TypeCheckError

from slotstream.operators.decide import Decide, record_of_fields
from slotstream.operators.engines import host
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import ReadRequest, ReadResult
from slotstream.operators.outcome import Dead, Decided
from slotstream.operators.testing import InstantEngine, hashed_read
from slotstream.schemas.decision import load_decision_schema
from slotstream.schemas.errors import EngineError
from tests.examples import NOUL, LoadEngines, example_record, example_schema

SCHEMA = example_schema({"refund": {**NOUL, "thresholds": {"probability": 0.9}}})


def pipeline() -> beam.Pipeline:
    return beam.Pipeline(runner=FnApiRunner())


# The transform


def fate(outcome: Any) -> tuple[Any, ...]:
    if isinstance(outcome, Dead):
        return ("dead", outcome.error.code)
    return (outcome.record.fields["id"], outcome.decision.route, outcome.decision.labels[0].value)


def test_every_element_is_in_exactly_one_of_three_outputs(instant_config: EngineConfig) -> None:
    texts: list[Any] = ["one", "two", None, "three", "x" * 9000, {"four": 4}]
    elements = [{"id": number, "text": text} for number, text in enumerate(texts)]
    sure = example_schema({"refund": NOUL})
    with pipeline() as root:
        results = root | beam.Create(elements) | Decide(sure, instant_config)
        fates = [results[tag] | f"Fate {tag}" >> beam.Map(fate) for tag in ("decided", "review", "dead")]
        decided, review, dead = fates
        assert_that(
            decided | beam.Map(lambda got: got[:2]), equal_to([(n, "decided") for n in (0, 1, 3, 5)]), "decided"
        )
        assert_that(review, equal_to([]), "review")
        assert_that(dead, equal_to([("dead", "state_empty"), ("dead", "state_too_long")]), "dead")


def test_what_is_not_certain_enough_is_in_review_with_its_reasons(instant_config: EngineConfig) -> None:
    unsure = example_schema({"refund": {**NOUL, "thresholds": {"probability": 0.95}}})
    with pipeline() as root:
        results = root | beam.Create([{"text": "one"}]) | Decide(unsure, instant_config)
        reasons = results.review | beam.FlatMap(lambda outcome: map(str, outcome.decision.reasons))
        assert_that(reasons, equal_to(["refund: probability 0.909091 is below 0.95"]))
        assert_that(results.decided, equal_to([]), "decided")


def test_records_are_taken_as_they_are(instant_config: EngineConfig) -> None:
    records = [example_record("one", 7), example_record("two", 8)]
    with pipeline() as root:
        results = root | beam.Create(records) | Decide(SCHEMA, instant_config)
        ids = results.decided | beam.Map(lambda outcome: outcome.decision.id)
        assert_that(ids, equal_to([f"topic-uuid:0:{offset}:{SCHEMA.hash}" for offset in (7, 8)]))


@pytest.mark.parametrize("window", [FixedWindows(10), SlidingWindows(20, 10)], ids=["fixed", "sliding"])
def test_timestamps_and_windows_are_kept(instant_config: EngineConfig, window: Any) -> None:
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
        after = (elements | Decide(SCHEMA, instant_config)).decided | "After" >> beam.ParDo(Seen())
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


def test_outputs_have_types_and_elements_of_another_type_are_refused_at_once(instant_config: EngineConfig) -> None:
    root = pipeline()
    results = root | beam.Create([{"text": "one"}]) | Decide(SCHEMA, instant_config)
    assert [results[tag].element_type for tag in ("decided", "review", "dead")] == [Decided, Decided, Dead]
    for wrong in (["one"], [1], [{1: "one"}]):
        with pytest.raises(TypeCheckError):
            _ = pipeline() | beam.Create(wrong) | Decide(SCHEMA, instant_config)


def test_outcomes_are_counted(instant_config: EngineConfig) -> None:
    root = pipeline()
    _ = root | beam.Create([{"text": text} for text in ("one", "two", "")]) | Decide(SCHEMA, instant_config)
    counters = root.run().metrics().query(MetricsFilter().with_namespace("slotstream"))["counters"]
    assert {counter.key.metric.name: counter.committed for counter in counters} == {"decided": 2, "dead": 1}


def test_the_example_of_the_docstring_runs(
    instant_config: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_an_engine_s_error_fails_the_pipeline_and_blames_no_record(
    instant_config: EngineConfig, engines: LoadEngines
) -> None:
    def read(request: ReadRequest) -> ReadResult:
        if loaded[0].finished >= 3:  # the proof is done
            raise EngineError("out of memory")
        return hashed_read(request)

    loaded = engines(lambda: InstantEngine(read=read))
    root = pipeline()
    _ = root | beam.Create([{"text": "one"}]) | Decide(SCHEMA, instant_config)
    with pytest.raises(Exception, match="out of memory"):
        root.run().wait_until_finish()


def test_the_clock_is_the_caller_s(instant_config: EngineConfig) -> None:
    with pipeline() as root:
        results = root | beam.Create([{"text": "one"}]) | Decide(SCHEMA, instant_config, clock=lambda: 12.5)
        assert_that(results.decided | beam.Map(lambda outcome: outcome.decision.decided_at_ms), equal_to([12_500]))
