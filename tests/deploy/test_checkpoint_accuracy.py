"""How good the shipped checkpoint is: its bars through the real engine, and the arithmetic of `make accuracy`."""

from pathlib import Path
from typing import Any

import pytest

from slotstream.operators.reading import label_from_read
from slotstream.schemas.decision import parse_decision_schema
from tests.bench.accuracy import INJECTION, NEUTRAL, arguments, calibration, measure, quality

SCORE = parse_decision_schema({"q": {"type": "score", "criteria": ["low", "middle", "high"]}}, name="s").questions[0]


@pytest.fixture(scope="module")
def found(test_data: Path) -> dict[str, Any]:
    """A fixed third of test.csv through the engine that the whole session shares."""
    asked = ["--third", "--no-baseline", "--no-sampler", "--compare", "60", "--drift", "20"]
    return measure(arguments().parse_args(["--data", str(test_data / "banking77"), *asked]))


def test_certainty_that_comes_true_is_calibrated() -> None:
    found = calibration([0.75] * 4, [True, True, True, False])
    assert found["ece"] == 0
    assert found["reliability"][7] == {"from": 0.7, "to": 0.8, "count": 4, "probability": 0.75, "accuracy": 0.75}


def test_the_calibration_error_weighs_every_answer_alike() -> None:
    found = calibration([1.0, 1.0, 1.0, 0.5], [True, True, False, True])
    assert found["ece"] == pytest.approx(0.375)  # three answers a third too certain, one half too uncertain
    assert [row["count"] for row in found["reliability"]] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 3]


def test_a_score_is_judged_by_its_top_level_and_by_its_distance() -> None:
    labels = [
        label_from_read(SCORE, [[-0.1, -3.0, -4.0]], mass_floor=0),
        label_from_read(SCORE, [[-4.0, -3.0, -0.1]], mass_floor=0),
    ]
    judged = quality(labels, [0, 1])
    assert judged["accuracy"] == 0.5
    assert 0.4 < judged["mean_absolute_error"] < 0.6


def test_the_idle_words_are_as_long_as_the_attack() -> None:
    assert len(NEUTRAL) == len(INJECTION)


@pytest.mark.engine
@pytest.mark.slow
class TestThroughTheRealEngine:
    def test_intents_are_right_in_87_percent_or_more(self, found: dict[str, Any]) -> None:
        assert found["texts"] == 514
        assert found["questions"]["intent"]["accuracy"] >= 0.87

    def test_the_derived_questions_are_right_more_often(self, found: dict[str, Any]) -> None:
        assert found["questions"]["urgent"]["accuracy"] >= 0.97
        assert found["questions"]["severity"]["accuracy"] >= 0.92

    def test_probabilities_mean_what_they_say(self, found: dict[str, Any]) -> None:
        assert all(question["ece"] <= 0.07 for question in found["questions"].values())

    def test_nearly_all_probability_is_on_the_options(self, found: dict[str, Any]) -> None:
        assert all(question["mass"] >= 0.98 for question in found["questions"].values())

    def test_it_agrees_with_the_transformers_reference(self, found: dict[str, Any]) -> None:
        apart = found["against_transformers"]
        assert all(apart[question]["largest"] <= 1e-3 for question in ("intent", "urgent", "severity"))

    def test_text_that_poses_as_an_answer_moves_nothing(self, found: dict[str, Any]) -> None:
        assert found["injection"]["texts"] == 100
        assert found["injection"]["extra_control_tokens"] == 0
        assert found["injection"]["attacked"] <= found["injection"]["neutral"]
