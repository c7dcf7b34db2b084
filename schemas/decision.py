"""The decision schema: a named, versioned set of typed questions about the text of a record.

Question maps of TypeSafe's System One API load unchanged (`type`, `instructions`, `criteria`); slotstream adds what a
stream needs: how a record becomes the text, and from which certainty on an answer counts.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from slotstream.schemas.errors import DecisionSchemaError
from slotstream.schemas.label import QuestionType
from slotstream.schemas.state import StateTemplate
from slotstream.schemas.strict_yaml import parse_yaml

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

_ID = re.compile(r"[a-z_][a-z0-9_]*\Z")
_FROZEN = ConfigDict(frozen=True, extra="forbid")


class Thresholds(BaseModel):
    """From which certainty on an answer counts; below any of them the record goes to review."""

    model_config = _FROZEN

    probability: float = Field(0.0, ge=0, le=1, description="Least probability of the answer.")
    margin: float = Field(0.0, ge=0, le=1, description="Least distance between the two most probable options.")
    mass: float = Field(0.5, ge=0, le=1, description="Least share of the vocabulary's probability on the options.")


class _QuestionFields(BaseModel):
    model_config = _FROZEN

    id: str = Field(description="The key of the question: names the output fields; never shown to a general model.")
    instructions: str | None = Field(None, description="What is asked, as the model reads it.")
    thresholds: Thresholds = Field(Thresholds(), description="When a record goes to review because of this question.")
    alone: bool = Field(False, description="Give the question a prompt and a read of its own.")

    @field_validator("id")
    @classmethod
    def _is_a_column_name(cls, value: str) -> str:
        if not _ID.match(value):
            raise ValueError(
                f"a question id becomes a column name in tables and must match [a-z_][a-z0-9_]*, got {value!r}"
            )
        return value


class NoulQuestion(_QuestionFields):
    """A yes/no question; `criteria` may say what counts as yes (`true`) and as no (`false`)."""

    type: Literal["noul"]
    criteria: Mapping[Literal["true", "false"], str | None] = Field(
        default_factory=dict, description="What counts as yes, and what as no."
    )

    @property
    def options(self) -> tuple[str, ...]:
        """ "yes" first."""
        return ("yes", "no")

    @field_validator("criteria", mode="before")
    @classmethod
    def _yaml_booleans_are_keys(cls, value: Any) -> Any:
        # YAML reads the bare keys true and false as booleans.
        if isinstance(value, Mapping):
            return {str(k).lower() if isinstance(k, bool) else k: v for k, v in value.items()}
        return {} if value is None else value

    @model_validator(mode="after")
    def _something_is_asked(self) -> Self:
        if not self.instructions and not any(self.criteria.values()):
            raise ValueError(f"question {self.id!r}: a noul question needs instructions or criteria, got neither")
        return self


class ChoiceQuestion(_QuestionFields):
    """One of 2 to 255 named options; `criteria` maps each name to a description or null (or lists the names)."""

    type: Literal["choice"]
    criteria: Mapping[str, str | None] = Field(description="Option name to its description, or null.")

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.criteria)

    @field_validator("criteria", mode="before")
    @classmethod
    def _a_list_names_options(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            if len(set(map(str, value))) != len(value):
                raise ValueError("an option is listed twice")
            return dict.fromkeys(value)
        return value

    @field_validator("criteria")
    @classmethod
    def _between_2_and_255(cls, value: Mapping[str, str | None]) -> Mapping[str, str | None]:
        if not 2 <= len(value) <= 255:
            raise ValueError(f"a choice question has 2 to 255 options, got {len(value)}")
        if blank := [name for name in value if not name.strip()]:
            raise ValueError(f"an option needs a name, got {blank[0]!r}")
        return value


class ScoreQuestion(_QuestionFields):
    """An ordered scale of 2 to 10 levels, lowest first; the answer is the expectation over the 0-based levels."""

    type: Literal["score"]
    criteria: tuple[str, ...] = Field(description="The levels' names, lowest first.")

    @property
    def options(self) -> tuple[str, ...]:
        return self.criteria

    @field_validator("criteria")
    @classmethod
    def _between_2_and_10(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not 2 <= len(value) <= 10:
            raise ValueError(f"a score question has 2 to 10 levels, got {len(value)}")
        if len(set(value)) != len(value):
            raise ValueError("two levels have the same name")
        if not all(name.strip() for name in value):
            raise ValueError("a level needs a name, got a blank one")
        return value


Question = Annotated[NoulQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


class DecisionSchema(BaseModel):
    """Questions about one kind of record. Two hashes name it:

    `hash` covers everything (it is part of every record's id); `wording` covers what the model is asked and nothing of
    how answers are routed: it is what a read plan's hash is made of.
    """

    model_config = _FROZEN

    name: str = Field(description="Short name, stands on every record.", pattern=r"^[A-Za-z0-9_.-]{1,80}$")
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
    def _numbers_are_versions(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("truncate", mode="before")
    @classmethod
    def _yaml_no_is_no(cls, value: Any) -> Any:
        return "no" if value is False else value  # YAML reads a bare no as a boolean

    @field_validator("questions", mode="before")
    @classmethod
    def _ids_are_keys(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"questions is a map of question id to question, got {type(value).__name__}")
        if not value:
            raise ValueError("a decision schema asks at least one question, got none")
        for key, question in value.items():
            if not isinstance(question, Mapping):
                raise ValueError(f"question {key!r} is a map with type and criteria, got {type(question).__name__}")
            if "id" in question:
                raise ValueError(f"question {key!r}: its key is its id, remove the field 'id'")
        return tuple({"id": key, **question} for key, question in value.items())

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

    def question_type(self, question_id: str) -> QuestionType:
        return next(question.type for question in self.questions if question.id == question_id)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()[:16]


def parse_decision_schema(data: Any, *, name: str) -> DecisionSchema:
    """A decision schema from parsed YAML or JSON.

    A bare System One question map (every value is a map with a `type`) gets `name` as its name and `text` as its state;
    so does its request body, of which `questions` and `instructions` are taken.

    Raises:
        DecisionSchemaError: names the place, the rule and the value got.
    """
    if not isinstance(data, Mapping):
        raise DecisionSchemaError(f"decision schema {name!r} is a map, got {type(data).__name__}")
    if "questions" not in data and data and all(isinstance(q, Mapping) and "type" in q for q in data.values()):
        data = {"questions": data}
    whole = {"name": name, "state": "text", **data}
    try:
        return DecisionSchema.model_validate(whole)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc'])) or '(schema)'}: {_rule(e)}" for e in error.errors()]
        raise DecisionSchemaError(
            f"decision schema {name!r} breaks {len(lines)} rule(s):\n" + "\n".join(lines)
        ) from None


def _rule(error: Any) -> str:
    message: str = error["msg"].removeprefix("Value error, ")
    shown = repr(error.get("input"))
    return message if "got" in message or len(shown) > 80 else f"{message}, got {shown}"


def load_decision_schema(path: str | Path) -> DecisionSchema:
    """Read a decision schema from a YAML or JSON file (JSON is YAML).

    Raises:
        DecisionSchemaError: the file is missing, is no YAML, or breaks a rule; the message names the file.
    """
    path = Path(path)
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DecisionSchemaError(f"decision schema {path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise DecisionSchemaError(f"decision schema {path}: {error}") from None
    try:
        return parse_decision_schema(data, name=path.stem)
    except DecisionSchemaError as error:
        raise DecisionSchemaError(f"{path}: {error}") from None
