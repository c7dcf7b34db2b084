"""Thresholds: below any of them a record goes to review, with the reason."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.route import review_reasons
from slotstream.schemas.label import Label, Reason
from tests.examples import CHOICE, NOUL, example_schema

LABEL = Label("q", "noul", True, None, 0.8, 0.9, 0.6, 0.5, {"yes": 0.8, "no": 0.2})


def reasons(label: Label = LABEL, **thresholds: Any) -> tuple[Reason, ...]:
    return review_reasons(example_schema({"q": {**NOUL, "thresholds": thresholds}}), [label])


@pytest.mark.parametrize(
    ("thresholds", "failed"),
    [
        ({}, []),
        ({"probability": 0.8}, []),
        ({"probability": 0.800001}, ["probability"]),
        ({"margin": 0.6}, []),
        ({"margin": 0.61}, ["margin"]),
        ({"mass": 0.9}, []),
        ({"mass": 0.91}, ["mass"]),
        ({"probability": 1.0, "margin": 1.0, "mass": 1.0}, ["probability", "margin", "mass"]),
        ({"probability": 0.5, "margin": 0.9, "mass": 0.5}, ["margin"]),
        ({"probability": 0.0, "margin": 0.0, "mass": 0.0}, []),
    ],
)
def test_a_value_below_its_threshold_is_a_reason_and_one_at_it_is_none(
    thresholds: dict[str, Any], failed: list[str]
) -> None:
    got = reasons(**thresholds)
    assert [reason.metric for reason in got] == failed
    for reason in got:
        assert (reason.question, reason.value) == ("q", getattr(LABEL, reason.metric))
        assert reason.threshold == thresholds[reason.metric]


def test_half_of_the_mass_is_asked_for_by_default() -> None:
    assert [str(reason) for reason in reasons(replace(LABEL, mass=0.499999))] == ["q: mass 0.499999 is below 0.5"]
    assert reasons(replace(LABEL, mass=0.5)) == ()


def test_entropy_and_the_answer_itself_route_nothing() -> None:
    assert reasons(replace(LABEL, value=False, entropy=9.0)) == ()


def test_reasons_stand_in_question_order_each_with_its_own_threshold() -> None:
    questions: dict[str, Any] = {
        "a": {**NOUL, "thresholds": {"probability": 0.9}},
        "b": CHOICE,
        "c": {**NOUL, "thresholds": {"margin": 0.7, "probability": 0.85}},
    }
    labels = [replace(LABEL, question=name) for name in "abc"]
    got = review_reasons(example_schema(questions), labels)
    assert [(reason.question, reason.metric, reason.threshold) for reason in got] == [
        ("a", "probability", 0.9),
        ("c", "probability", 0.85),
        ("c", "margin", 0.7),
    ]


def test_labels_of_other_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="argument"):
        review_reasons(example_schema({"a": NOUL, "b": NOUL}), [LABEL])


_SHARES = st.integers(0, 10**6).map(lambda millionths: millionths / 10**6)


@given(value=_SHARES, threshold=_SHARES, metric=st.sampled_from(["probability", "margin", "mass"]))
def test_a_threshold_is_the_least_value_that_is_decided(value: float, threshold: float, metric: str) -> None:
    sure = Label("q", "noul", True, None, 1.0, 1.0, 1.0, 0.0, {"yes": 1.0, "no": 0.0})
    read: dict[str, Any] = {metric: value}
    got = reasons(replace(sure, **read), **{"mass": 0.0, metric: threshold})
    assert bool(got) == (value < threshold)
