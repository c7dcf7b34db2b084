"""Two engines' answers are compared as they say, and the command gets them from real processes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.drift import compare

ROOT = Path(__file__).resolve().parents[2]


def answer(yes: float, *, mass: float = 0.9, route: str = "decided") -> dict[str, Any]:
    label = {"probabilities": {"yes": yes, "no": 1 - yes}, "mass": mass}
    return {"route": route, "labels": {"urgent": label}}


DEAD: dict[str, Any] = {"route": "dead", "labels": {}}


def test_equal_answers_agree_and_do_not_move() -> None:
    found = compare([answer(0.9), answer(0.2)], [answer(0.9), answer(0.2)])
    assert found["records"] == 2
    assert found["route_agreement"] == 1
    urgent = found["questions"]["urgent"]
    assert (urgent["arg_max_agreement"], urgent["flipped"], urgent["probability_moved_max"]) == (1, 0, 0)


def test_a_flip_is_counted_and_its_line_named() -> None:
    one = [answer(0.9), answer(0.6, mass=0.5), answer(0.2), answer(0.9)]
    other = [answer(0.8), answer(0.4, route="review"), answer(0.2), answer(0.9)]
    found = compare(one, other)
    urgent = found["questions"]["urgent"]
    assert found["route_agreement"] == 0.75
    assert (urgent["arg_max_agreement"], urgent["flipped"], urgent["flipped_lines"]) == (0.75, 1, [2])
    assert urgent["probability_moved_max"] == pytest.approx(0.2)
    assert urgent["probability_moved_mean"] == pytest.approx(0.075)
    assert urgent["mass_moved_max"] == pytest.approx(0.4)


def test_what_died_in_one_is_counted_and_not_compared() -> None:
    found = compare([DEAD, answer(0.9), DEAD], [answer(0.9), answer(0.9), DEAD])
    assert (found["records"], found["dead_in_one"], found["questions"]["urgent"]["records"]) == (3, 1, 1)


def test_nothing_to_compare_is_said_so() -> None:
    assert compare([DEAD], [DEAD])["questions"] == {}
    assert compare([], [])["route_agreement"] is None


def test_different_numbers_of_answers_are_a_fault() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        compare([DEAD], [])


@pytest.mark.slow
def test_the_command_decides_twice_and_compares(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text('{"text": "I lost my card"}\n{"text": 1}\n{"other": 2}\n', encoding="utf-8")
    command = [sys.executable, "tests/bench/drift.py", "deploy/demo/tickets.yaml", str(records)]
    command += ["--engine", '{"kind": "instant"}', "--against", '{"kind": "instant", "max_in_flight": 1}']
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["engine"] == {"model": None, "kind": "instant"}
    assert (found["records"], found["dead_in_one"]) == (3, 0)
    assert {question["arg_max_agreement"] for question in found["questions"].values()} == {1}
    assert {question["records"] for question in found["questions"].values()} == {2}
