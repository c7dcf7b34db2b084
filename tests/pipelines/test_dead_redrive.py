"""What a redrive says before and after it writes: numbers that add up, and what is wrong with the topic."""

from pathlib import Path

import pytest
import yaml

from slotstream.operators.kafka.letter import LetterFilter
from slotstream.operators.kafka.redrive_choice import LEFT_OUT, Attempts, Choice
from slotstream.operators.kafka.topics import TopicSettings
from slotstream.pipelines.config import PipelineConfig, load_config
from slotstream.pipelines.dead_redrive import choice_lines, topic_faults, topic_notes


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    path = tmp_path / "my.yaml"
    settings = {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "input": {"topic": "tickets", "group": "g", "format": "json"},
        "decision_schema": "questions.yaml",
        "output": {"decided": "decided", "review": "review", "dead": "dead"},
    }
    path.write_text(yaml.safe_dump(settings))
    return load_config(path)


def topic(name: str, partitions: int = 1, **configs: str) -> dict[str, TopicSettings]:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return {name: TopicSettings(name, partitions, 1, named)}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (topic("tickets", 6), "--topic tickets.redrive --partitions 6 --config retention.ms=-1"),
        ({}, "--partitions 1"),
        (topic("tickets.redrive", cleanup_policy="compact,delete"), "Set cleanup.policy=delete"),
    ],
)
def test_a_topic_that_cannot_be_written_is_told_with_what_to_do(
    config: PipelineConfig, found: dict[str, TopicSettings], words: str
) -> None:
    (fault,) = topic_faults(config, found)
    assert words in fault


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (topic("tickets.redrive", retention_ms="604800000"), "what is deleted counts as not redriven"),
        (topic("decided", cleanup_policy="compact"), "let run catch up"),
    ],
)
def test_what_one_should_know_is_noted(config: PipelineConfig, found: dict[str, TopicSettings], words: str) -> None:
    (note,) = topic_notes(config, found)
    assert words in note


def test_a_sound_topic_has_neither_fault_nor_note(config: PipelineConfig) -> None:
    found = topic("tickets.redrive", cleanup_policy="delete", retention_ms="-1") | topic(
        "decided", cleanup_policy="delete"
    )
    assert topic_faults(config, found) == list(topic_notes(config, found)) == []


def test_every_letter_is_in_the_numbers() -> None:
    choice = Choice("tickets", LetterFilter(), latest=Attempts(), redriven=Attempts())
    choice.read, choice.meant = 2_000, 1_200
    choice.codes.update(json_invalid=1_000, state_empty=100)
    choice.left_out.update(redriven=90, cut=10)
    assert list(choice_lines(choice, "tickets.redrive", 1_100, write=False)) == [
        "2,000 letters read, 1,200 of them match the filters",
        "1,100 would be written to tickets.redrive",
        "     1,000  json_invalid",
        "       100  state_empty",
        "left out:",
        f"        90  {LEFT_OUT['redriven']}",
        f"        10  {LEFT_OUT['cut']}",
    ]
