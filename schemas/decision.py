"""The decision schema: a named, versioned set of typed questions about the text of a record.

Question maps of TypeSafe's System One API load unchanged (only ids that cannot be column names are refused); slotstream
adds what a stream needs: how a record becomes the text, and from which certainty on an answer counts.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from slotstream.schemas.errors import ConfigError, DecisionSchemaError
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.question import ChoiceQuestion, NoulQuestion, Question, ScoreQuestion, Thresholds
from slotstream.schemas.schema_faults import schema_faults
from slotstream.schemas.state import StateTemplate
from slotstream.schemas.strict_yaml import parse_yaml, written

__all__ = [
    "ChoiceQuestion",
    "DecisionSchema",
    "NoulQuestion",
    "Question",
    "ScoreQuestion",
    "Thresholds",
    "load_decision_schema",
    "parse_decision_schema",
]

_NAME = r"^[A-Za-z0-9_.-]{1,80}$"


class DecisionSchema(BaseModel):
    """Questions about one kind of record. Two hashes name it:

    `hash` covers everything (it is part of every record's id); `wording` covers what the model is asked and nothing of
    how answers are routed: it is what a read plan's hash is made of.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="Short name, stands on every record.", pattern=_NAME)
    version: str = Field("1", description="Version of the questions, stands on every record.")
    instructions: str = Field("", description="Context that stands before the questions.")
    state: StateTemplate = Field(description="How a record becomes the text that the questions are about.")
    truncate: Literal["no", "head", "tail", "middle"] = Field(
        "no", description="Which part of a text that is too long is cut away; no: the record goes to dead."
    )
    mass_floor: float = Field(
        0.01, ge=0, le=1, description="Below this mass a read is no answer at all and the record goes to dead."
    )
    draws: int = Field(1, ge=1, le=16, description="Reads per canvas, each with its own noise; answers are averaged.")
    questions: tuple[Question, ...] = Field(description="Question id to question, in the order they are asked.")

    @field_validator("version", mode="before")
    @classmethod
    def _integers_are_versions(cls, value: Any) -> Any:
        if isinstance(value, float):  # 1.10 would be known as 1.1 for ever
            raise ValueError(f"a version with a point is a number to YAML: put it in quotes, got {written(value)}")
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("truncate", mode="before")
    @classmethod
    def _yaml_no_is_no(cls, value: Any) -> Any:
        return "no" if value is False else value  # YAML reads a bare no as a boolean

    @field_validator("questions", mode="before")
    @classmethod
    def _ids_are_keys(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"questions is a map of question id to question, got {written(value)}")
        if not value:
            raise ValueError("a decision schema asks at least one question, got none")
        for key, question in value.items():
            if not isinstance(question, Mapping):
                raise ValueError(f"question {key!r} is a map with type and criteria, got {written(question)}")
            if "id" in question:
                raise ValueError(f"question {key!r}: its key is its id, remove the field 'id'")
        return tuple({"id": key, **question} for key, question in value.items())

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        try:
            DecisionFields([(question.id, question.type) for question in self.questions], probabilities=True)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _text_is_unicode(self) -> Self:
        try:
            _ = self.hash
        except ValueError as error:
            raise ValueError(f"some text is no Unicode: half of a surrogate pair ({error})") from None
        return self

    @property
    def hash(self) -> str:
        """16 hex digits over the whole schema, thresholds included."""
        return _digest(self.model_dump(mode="json"))

    @property
    def wording(self) -> dict[str, Any]:
        """Everything that decides what the model reads, as JSON values."""
        return {
            "name": self.name,
            "version": self.version,
            "instructions": self.instructions,
            "questions": [question.model_dump(mode="json", exclude={"thresholds"}) for question in self.questions],
        }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()[:16]


def parse_decision_schema(data: Any, *, name: str) -> DecisionSchema:
    """A decision schema from parsed YAML or JSON.

    A bare System One question map (every value is a map with a `type`) gets `name` as its name and `text` as its state.
    So does a System One request body, which is known by its `model`: only its `questions` are taken.

    Raises:
        DecisionSchemaError: names the place, the rule and the value got.
    """
    return _parsed(data, name, repr(name))


def _parsed(data: Any, name: str, called: str) -> DecisionSchema:
    if not isinstance(data, Mapping):
        raise DecisionSchemaError(
            f"decision schema {called}: must be a map with questions, got {written(data)}; "
            "write questions: and under it a map of question id to question"
        )
    if data and all(isinstance(value, Mapping) and isinstance(value.get("type"), str) for value in data.values()):
        data = {"questions": data}
    elif "model" in data and "questions" in data:
        data = {"questions": data["questions"]}
    if "name" not in data and not re.fullmatch(_NAME, name):
        raise DecisionSchemaError(
            f"decision schema {called}: it has no name, and {name!r} cannot stand for it (1 to 80 letters, digits, "
            "dots, hyphens and underscores); write name: and a short name"
        )
    whole = {"name": name, "state": "text", **data}
    try:
        return DecisionSchema.model_validate(whole)
    except ValidationError as error:
        lines = [f"  {line}" for line in schema_faults(error, whole, DecisionSchema)]
        raise DecisionSchemaError(
            f"decision schema {called} breaks {len(lines)} rule(s):\n" + "\n".join(lines)
        ) from None


def load_decision_schema(path: str | Path) -> DecisionSchema:
    """Read a decision schema from a YAML or JSON file.

    Raises:
        DecisionSchemaError: the file is missing, is no YAML, or breaks a rule; the message names the file.
    """
    path = Path(path)
    try:
        data = parse_yaml(path.read_bytes())
    except OSError as error:
        raise DecisionSchemaError(f"decision schema {path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise DecisionSchemaError(f"decision schema {path}: {error}") from None
    return _parsed(data, path.stem, str(path))
