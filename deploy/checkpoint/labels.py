"""From intents to the answers of all three questions: the mapping of labels.yaml as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from slotstream.schemas.decision import DecisionSchema

__all__ = ["Answers", "derive", "load_mapping"]


@dataclass(frozen=True, slots=True)
class Answers:
    """For each question, in the schema's order: a matrix (intents, options) whose rows say what an intent means.

    A distribution over intents times a matrix is the distribution over that question's options, so that the answers of
    one message agree with each other.
    """

    questions: tuple[str, ...]
    matrices: tuple[NDArray[np.float32], ...]


def load_mapping(path: Path | None = None) -> dict[str, Mapping[str, Any]]:
    """Intent name to its `urgent` and `severity`."""
    text = (path or Path(__file__).with_name("labels.yaml")).read_text(encoding="utf-8")
    mapping: dict[str, Mapping[str, Any]] = yaml.safe_load(text)["intents"]
    return mapping


def derive(schema: DecisionSchema, mapping: Mapping[str, Mapping[str, Any]]) -> Answers:
    """Matrices for `schema`, whose choice question `intent` lists the intents.

    Raises:
        ValueError: the mapping and the options of `intent` are not the same names.
    """
    intents: Sequence[str] = next(q.options for q in schema.questions if q.id == "intent")
    if set(intents) != set(mapping):
        raise ValueError(f"labels and options differ in {sorted(set(intents) ^ set(mapping))}")
    matrices = []
    for question in schema.questions:
        matrix = np.zeros((len(intents), len(question.options)), dtype=np.float32)
        for row, intent in enumerate(intents):
            if question.id == "intent":
                column = row
            elif question.type == "noul":
                column = 0 if mapping[intent][question.id] else 1  # "yes" is the first option
            else:
                column = int(mapping[intent][question.id])
            matrix[row, column] = 1.0
        matrices.append(matrix)
    return Answers(tuple(q.id for q in schema.questions), tuple(matrices))
