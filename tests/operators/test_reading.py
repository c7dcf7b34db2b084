"""From log-probabilities to labels: definitions, laws and edges."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotstream.operators.engines.protocol import ReadResult
from slotstream.operators.plan import ReadPlan
from slotstream.operators.reading import is_finite, label_from_read, labels_from_reads
from slotstream.operators.testing import hashed_read
from slotstream.schemas.decision import Question
from slotstream.schemas.errors import MassTooLow, ReadNotFinite
from slotstream.schemas.label import Label
from tests.examples import CHOICE, NOUL, SCORE, choice_of, example_plan, example_schema

NAN, INF = math.nan, math.inf


def question(asked: dict[str, Any]) -> Question:
    return example_schema({"q": asked}).questions[0]


def label(asked: dict[str, Any], *draws: Sequence[float], floor: float = 0.01) -> Label:
    """The label of probabilities over the vocabulary, one sequence a draw."""
    logs = [[math.log(p) if p else -INF for p in draw] for draw in draws]
    return label_from_read(question(asked), logs, mass_floor=floor)


# Values


def test_a_noul_answer_is_true_when_yes_is_more_probable() -> None:
    got = label(NOUL, [0.6, 0.2])
    assert (got.value, got.level, got.probability) == (True, None, 0.75)
    assert got.probabilities == {"yes": 0.75, "no": 0.25}


def test_the_probability_of_a_noul_answer_is_that_of_the_side_that_it_names() -> None:
    got = label(NOUL, [0.2, 0.6])
    assert (got.value, got.probability) == (False, 0.75)


def test_a_choice_answer_is_the_most_probable_option_s_name() -> None:
    got = label(CHOICE, [0.1, 0.5, 0.4])
    assert (got.question, got.type, got.value, got.level, got.probability) == ("q", "choice", "card_lost", None, 0.5)
    assert list(got.probabilities) == ["refund", "card_lost", "other"]


def test_a_score_answer_is_the_expectation_over_the_levels_from_0_and_names_the_top_level() -> None:
    got = label(SCORE, [0.1, 0.2, 0.5])  # of 0.8
    assert got.value == pytest.approx((0 * 0.1 + 1 * 0.2 + 2 * 0.5) / 0.8, abs=1e-6)
    assert (got.level, got.probability) == ("furious", 0.625)


@pytest.mark.parametrize(("asked", "value"), [(NOUL, True), (CHOICE, "refund"), (SCORE, 1.0)])
def test_of_equal_options_the_first_is_the_answer(asked: dict[str, Any], value: object) -> None:
    got = label(asked, [0.3] * len(question(asked).options))
    assert got.value == value
    assert got.margin == 0.0


def test_mass_margin_and_entropy_are_what_their_names_say() -> None:
    got = label(CHOICE, [0.4, 0.08, 0.32])
    assert got.mass == 0.8
    assert got.margin == 0.1
    assert got.entropy == pytest.approx(-sum(p * math.log(p) for p in (0.5, 0.1, 0.4)), abs=1e-6)


def test_a_certain_answer_has_entropy_zero_and_no_sign() -> None:
    got = label(CHOICE, [0.0, 0.9, 0.0])
    assert (got.probability, got.margin, got.mass) == (1.0, 1.0, 0.9)
    assert str(got.entropy) == "0.0"
    assert got.probabilities == {"refund": 0.0, "card_lost": 1.0, "other": 0.0}


# Draws


def test_draws_are_averaged_as_probabilities() -> None:
    got = label(NOUL, [0.9, 0.1], [0.3, 0.5])
    assert got.probabilities == {"yes": round(1.2 / 1.8, 6), "no": round(0.6 / 1.8, 6)}
    assert got.mass == 0.9


def test_the_order_of_draws_does_not_matter() -> None:
    draws = [[0.7, 0.1], [0.2, 0.3], [0.05, 0.9]]
    assert label(NOUL, *draws) == label(NOUL, *reversed(draws))


# Edges


@pytest.mark.parametrize(("mass", "floor"), [(0.00999, 0.01), (0.0, 0.0), (0.0, 0.01), (1e-200, 1e-100)])
def test_a_read_below_the_mass_floor_is_no_answer(mass: float, floor: float) -> None:
    with pytest.raises(MassTooLow, match=rf"question 'q': the options hold .* and the floor is {floor:g}"):
        label(NOUL, [mass, 0.0], floor=floor)


@pytest.mark.parametrize(("mass", "floor"), [(0.5, 0.5), (1.0, 1.0), (1e-200, 0.0)])
def test_a_read_at_the_mass_floor_is_an_answer(mass: float, floor: float) -> None:
    assert label(NOUL, [mass, 0.0], floor=floor).value is True


@pytest.mark.parametrize(
    ("log_probs", "finite"),
    [
        ([-1.0, -2.0], True),
        ([0.0, -INF], True),
        ([-INF, -INF], True),
        ([1e-4, -9.0], True),
        ([0.1, -9.0], False),
        ([NAN, -1.0], False),
        ([-1.0, NAN], False),
        ([INF, -1.0], False),
    ],
)
def test_a_log_probability_is_a_number_of_at_most_zero(log_probs: list[float], finite: bool) -> None:
    assert is_finite([ReadResult(((-1.0, -1.0), tuple(log_probs)))]) == finite
    assert is_finite([ReadResult(((-1.0,),)), ReadResult((tuple(log_probs),))]) == finite


def test_an_engine_s_rounding_above_one_does_not_leave_the_unit_interval() -> None:
    got = label_from_read(question(NOUL), [[5e-4, -7.0]], mass_floor=0.01)
    assert got.mass == 1.0
    assert sum(got.probabilities.values()) == pytest.approx(1.0, abs=1e-6)
    assert got.probability <= 1.0


def test_nan_in_any_read_of_a_record_is_an_error_and_no_label() -> None:
    plan = example_plan(example_schema(draws=2))
    results = [hashed_read(request) for request in plan.reads("x").requests]
    results[1] = ReadResult((*results[1].log_probs[:2], (-1.0, NAN, -1.0)))
    with pytest.raises(ReadNotFinite):
        labels_from_reads(plan, results)


def test_options_without_any_probability_are_mass_too_low_and_no_label() -> None:
    plan = example_plan(example_schema({"q": NOUL}))
    with pytest.raises(MassTooLow, match="'q': the options hold 0 of"):
        labels_from_reads(plan, [ReadResult(((-INF, -INF),))])


# A record's labels


def _one_hot(plan: ReadPlan, number: int) -> list[ReadResult]:
    """Every slot answers option `number` of its question."""
    return [
        ReadResult(tuple(tuple(-0.1 if i == number else -5.0 for i in range(len(marks))) for marks in request.mark_ids))
        for request in plan.reads("x").requests
    ]


@pytest.mark.parametrize("canvas_length", [8, 12, 64])
@pytest.mark.parametrize("draws", [1, 3])
def test_labels_stand_in_the_schema_s_order_however_questions_were_asked(canvas_length: int, draws: int) -> None:
    questions = {"a": {**NOUL, "alone": True}, "b": choice_of(4), "c": {**SCORE, "alone": True}, "d": NOUL}
    plan = example_plan(example_schema(questions, draws=draws), canvas_length=canvas_length)
    labels = labels_from_reads(plan, _one_hot(plan, 1))
    assert [(got.question, got.value if got.level is None else got.level) for got in labels] == [
        ("a", False),
        ("b", "option 1"),
        ("c", "cross"),
        ("d", False),
    ]


def test_each_canvas_is_averaged_over_its_own_draws() -> None:
    plan = example_plan(example_schema({"a": NOUL, "b": {**NOUL, "alone": True}}, draws=2))
    yes, no = ReadResult(((math.log(0.8), math.log(0.1)),)), ReadResult(((math.log(0.1), math.log(0.8)),))
    labels = labels_from_reads(plan, [yes, yes, no, no])
    assert [got.value for got in labels] == [True, False]


# Laws

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip)
_DISTINCT = st.lists(_TEXTS, min_size=2, max_size=10, unique=True)
_ASKED = st.one_of(
    st.fixed_dictionaries({"type": st.just("noul"), "instructions": _TEXTS, "alone": st.booleans()}),
    st.fixed_dictionaries({"type": st.just("choice"), "criteria": _DISTINCT, "alone": st.booleans()}),
    st.fixed_dictionaries({"type": st.just("score"), "criteria": _DISTINCT, "alone": st.booleans()}),
)


@settings(max_examples=50)
@given(
    questions=st.lists(_ASKED, min_size=1, max_size=8),
    draws=st.integers(1, 3),
    canvas_length=st.integers(8, 64),
    style=st.sampled_from(["full", "compact"]),
    state=_TEXTS,
)
def test_whatever_is_asked_is_answered_with_one_of_its_options(
    questions: list[Any], draws: int, canvas_length: int, style: str, state: str
) -> None:
    schema = example_schema({f"q{number}": asked for number, asked in enumerate(questions)}, draws=draws)
    plan = example_plan(schema, style=style, canvas_length=canvas_length)
    requests = plan.reads(state).requests
    labels = labels_from_reads(plan, [hashed_read(request) for request in requests])
    assert [got.question for got in labels] == [asked.id for asked in schema.questions]
    for got, asked in zip(labels, schema.questions, strict=True):
        assert tuple(got.probabilities) == asked.options
        if got.type == "choice":
            assert got.value in asked.options
        elif got.type == "score":
            assert got.level in asked.options


_LOGS = st.floats(min_value=-60, max_value=0, allow_nan=False) | st.just(-INF)


@st.composite
def _reads(draw: st.DrawFn) -> tuple[dict[str, Any], list[list[float]]]:
    questions: list[dict[str, Any]] = [NOUL, CHOICE, SCORE, choice_of(26), choice_of(255)]
    asked = draw(st.sampled_from(questions))
    size = len(question(asked).options)
    draws = draw(st.lists(st.lists(_LOGS, min_size=size, max_size=size), min_size=1, max_size=3))
    # Log-probabilities over a vocabulary: together at most 1.
    shifted = [[value - math.log(size) for value in logs] for logs in draws]
    return asked, shifted


@given(_reads())
def test_every_label_keeps_the_laws(case: tuple[dict[str, Any], list[list[float]]]) -> None:
    asked, draws = case
    try:
        got = label_from_read(question(asked), draws, mass_floor=0.0)
    except MassTooLow:
        assert all(value == -INF for logs in draws for value in logs)
        return
    size = len(got.probabilities)
    top, second = sorted(got.probabilities.values(), reverse=True)[:2]
    assert sum(got.probabilities.values()) == pytest.approx(1.0, abs=size * 5e-7 + 1e-9)
    assert 0.0 <= got.mass <= 1.0
    assert 0.0 <= got.probability <= 1.0
    assert got.probability == top
    assert got.margin == pytest.approx(top - second, abs=1.6e-6)
    assert -1e-9 <= got.entropy <= math.log(size) + 1e-6
    for number in (got.mass, got.probability, got.margin, got.entropy, *got.probabilities.values()):
        assert number == round(number, 6)
    if got.type == "score":
        assert isinstance(got.value, float)
        assert 0.0 <= got.value <= size - 1
        assert got.value == pytest.approx(sum(i * p for i, p in enumerate(got.probabilities.values())), abs=1e-5)
        assert got.level is not None
        assert got.probabilities[got.level] == got.probability
    else:
        name = ("yes" if got.value else "no") if got.type == "noul" else str(got.value)
        assert got.probabilities[name] == got.probability


@given(_reads())
def test_only_the_mass_depends_on_what_the_rest_of_the_vocabulary_holds(
    case: tuple[dict[str, Any], list[list[float]]],
) -> None:
    asked, draws = case
    halved = [[value - math.log(2) for value in logs] for logs in draws]
    try:
        one, other = (label_from_read(question(asked), logs, mass_floor=0.0) for logs in (draws, halved))
    except MassTooLow:
        return
    assert other.mass == pytest.approx(one.mass / 2, abs=1e-6)
    assert list(other.probabilities.values()) == pytest.approx(list(one.probabilities.values()), abs=1.1e-6)
