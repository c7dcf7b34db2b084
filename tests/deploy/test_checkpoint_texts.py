"""Training texts, labels and the demo's messages."""

import csv
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deploy.checkpoint.augment import Mixer
from deploy.checkpoint.corpus import split_train
from deploy.checkpoint.labels import derive, load_mapping
from slotstream.operators.engines.config import PACKAGED_CHECKPOINT
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import DecisionSchema, load_decision_schema

DEMO = Path(__file__).parents[2] / "deploy" / "demo"

APPLES = ["red apples fall early", "green apples fall late", "apples taste sweet"]
TRAINS = ["slow trains stop here", "fast trains never stop", "trains run on time"]


@pytest.fixture(scope="module")
def schema() -> DecisionSchema:
    return load_decision_schema(DEMO / "tickets.yaml")


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DEMO / "messages.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def mixer() -> Mixer:
    return Mixer(APPLES + TRAINS, [0, 0, 0, 1, 1, 1], ["apples", "trains"])


def test_the_same_seed_mixes_the_same_texts(mixer: Mixer) -> None:
    one, other = ([mixer.mix(random.Random(seed)) for seed in range(50)] for _ in range(2))
    assert one == other
    assert len({mixed.text for mixed in one}) > 20


def test_a_pure_mixture_holds_only_words_of_its_own_intent(mixer: Mixer) -> None:
    rng = random.Random(1)
    for mixed in (mixer.mix(rng) for _ in range(2_000)):
        own = APPLES if mixed.source < 3 else TRAINS
        words = set(mixed.text.split())
        assert not mixed.pure or words <= {word for text in own for word in text.split()}


def test_a_mixture_of_two_intents_is_not_called_pure(mixer: Mixer) -> None:
    rng = random.Random(2)
    both = [m for m in (mixer.mix(rng) for _ in range(2_000)) if "apples" in m.text and "trains" in m.text]
    assert both
    assert not any(mixed.pure for mixed in both)


def test_disturbing_keeps_the_letters_of_the_message_or_nearly_all(mixer: Mixer) -> None:
    rng = random.Random(3)
    text = "Why was my card declined at the garage yesterday?"
    for _ in range(500):
        found = Counter(mixer.disturb(rng, text).lower())
        missing = sum((Counter(text.lower().rstrip("?")) - found).values())
        assert missing <= 2  # at most two typing errors


def test_some_disturbed_texts_pose_as_instructions_and_none_of_them_holds_a_control_token(mixer: Mixer) -> None:
    rng, tokenizer = random.Random(4), PlanTokenizer.from_model(str(PACKAGED_CHECKPOINT))
    attacks = [text for text in (mixer.disturb(rng, "hello") for _ in range(5_000)) if "<turn|>" in text]
    assert len(attacks) > 10
    assert all(tokenizer.control_ids.isdisjoint(tokenizer.encode(text)) for text in attacks)


def test_strange_texts_are_many_and_never_empty(mixer: Mixer) -> None:
    rng = random.Random(5)
    texts = [mixer.strange(rng) for _ in range(500)]
    assert all(text.strip() for text in texts)
    assert not any("{" in text for text in texts)
    assert len(set(texts)) > 300


def test_every_intent_has_one_answer_to_every_question(schema: DecisionSchema) -> None:
    for question, matrix in zip(schema.questions, derive(schema, load_mapping()).matrices, strict=True):
        assert matrix.shape == (77, len(question.options))
        assert (matrix.sum(1) == 1).all()
        assert (matrix.sum(0) > 0).all(), "an option that nothing means would never be learned"


def test_labels_for_other_intents_than_the_schemas_are_refused(schema: DecisionSchema) -> None:
    mapping = load_mapping()
    mapping.pop("age_limit")
    with pytest.raises(ValueError, match="age_limit"):
        derive(schema, mapping)


def test_a_tenth_of_every_intent_is_held_out_and_nothing_is_lost(tmp_path: Path) -> None:
    rows = [(f"text {intent} {number}", intent) for intent in ("a", "b") for number in range(25)]
    with (tmp_path / "train.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "category"), *rows])
    split = split_train(tmp_path / "train.csv", ["a", "b"])
    assert Counter(split.held_out_intents) == {0: 2, 1: 2}
    assert sorted(split.texts + split.held_out_texts) == sorted(text for text, _ in rows)
    assert split == split_train(tmp_path / "train.csv", ["a", "b"])


def test_the_demo_has_every_intent_and_enough_of_everything_else(lines: list[dict[str, Any]]) -> None:
    sound = [line for line in lines if "break" not in line]
    intents = Counter(line["expected"]["intent"] for line in sound if line["expected"])
    assert len(sound) >= 200
    assert len(intents) == 77
    assert sum(line["expected"] is None for line in sound) >= 20
    assert sum(line.get("hard", False) for line in sound) >= 10
    assert len(lines) - len(sound) >= 5
    assert len({line["record"]["ticket_id"] for line in lines}) == len(lines)


def test_the_demos_expected_answers_follow_the_written_mapping(lines: list[dict[str, Any]]) -> None:
    mapping = load_mapping()
    for line in lines:
        if line["expected"]:
            intent = line["expected"]["intent"]
            assert line["expected"] == {"intent": intent, **mapping[intent]}


def test_no_demo_message_is_copied_from_the_data_set(lines: list[dict[str, Any]], test_data: Path) -> None:
    known = set()
    for name in ("train.csv", "test.csv"):
        with (test_data / "banking77" / name).open(encoding="utf-8", newline="") as file:
            known |= {_plain(row["text"]) for row in csv.DictReader(file)}
    assert not [line["record"]["text"] for line in lines if _plain(line["record"]["text"]) in known]


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()
