"""The questions of a decision schema: yes or no, one of many, how much; as System One writes them."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from slotstream.schemas.strict_yaml import written

__all__ = ["ChoiceQuestion", "NoulQuestion", "Question", "ScoreQuestion", "Thresholds"]

_ID = re.compile(r"[a-z_][a-z0-9_]*\Z")
_CLOSED = ConfigDict(frozen=True, extra="forbid")


def _structured_text(value: Any) -> Any:
    """System One takes objects and arrays where it takes text; the model reads them as JSON."""
    if not isinstance(value, Mapping | list | tuple):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError as error:
        raise ValueError(f"must be text, or what JSON can write ({error})") from None


Text = Annotated[str, BeforeValidator(_structured_text)]


class _FrozenDict(dict[Any, Any]):
    """Refuses changes: a schema's hashes must stay true."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a decision schema cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return _FrozenDict, (dict(self),)


_Frozen = AfterValidator(_FrozenDict)


class Thresholds(BaseModel):
    """From which certainty on an answer counts; below any of them the record goes to review."""

    model_config = _CLOSED

    probability: float = Field(0.0, ge=0, le=1, description="Least probability of the answer.")
    margin: float = Field(0.0, ge=0, le=1, description="Least distance between the two most probable options.")
    mass: float = Field(0.5, ge=0, le=1, description="Least share of the vocabulary's probability on the options.")


class _QuestionFields(BaseModel):
    model_config = _CLOSED

    id: str = Field(description="The key of the question: names the output fields; never shown to a general model.")
    instructions: Text | None = Field(None, description="What is asked, as the model reads it.")
    thresholds: Thresholds = Field(Thresholds(), description="When a record goes to review because of this question.")
    alone: bool = Field(False, description="Give the question a prompt and a read of its own.")

    @field_validator("id")
    @classmethod
    def _is_a_column_name(cls, value: str) -> str:
        if not _ID.match(value):
            raise ValueError(
                "a question id becomes a column name in tables and must match [a-z_][a-z0-9_]* (renaming it does not "
                f"change answers: a general model never sees it), got {value!r}"
            )
        return value


class NoulQuestion(_QuestionFields):
    """A yes/no question; `criteria` may say what counts as yes (`true`) and as no (`false`)."""

    type: Literal["noul"]
    criteria: Annotated[Mapping[Literal["true", "false"], Text | None], _Frozen] = Field(
        default_factory=_FrozenDict, description="What counts as yes, and what as no."
    )

    @property
    def options(self) -> tuple[str, ...]:
        """ "yes" first."""
        return ("yes", "no")

    @field_validator("criteria", mode="before")
    @classmethod
    def _yes_is_true(cls, value: Any) -> Any:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            return value
        sides = {"yes": "true", "no": "false"}
        named = {sides.get(str(key).lower(), str(key).lower()): text for key, text in value.items()}
        if len(named) != len(value):
            raise ValueError(f"a noul question has one criterion for true and one for false, got {list(value)}")
        return named

    @model_validator(mode="after")
    def _something_is_asked(self) -> Self:
        if not self.instructions and not any(self.criteria.values()):
            raise ValueError(f"question {self.id!r}: a noul question needs instructions or criteria, got neither")
        return self


class ChoiceQuestion(_QuestionFields):
    """One of 2 to 255 named options; `criteria` maps each name to a description or null (or lists the names)."""

    type: Literal["choice"]
    criteria: Annotated[Mapping[str, Text | None], _Frozen] = Field(
        description="Option name to its description, or null."
    )

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.criteria)

    @field_validator("criteria", mode="before")
    @classmethod
    def _a_list_names_options(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        if unnamed := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"an option's name must be text: put it in quotes, got {written(unnamed[0])}")
        _refuse_twins("option", value)
        return dict.fromkeys(value)

    @field_validator("criteria")
    @classmethod
    def _between_2_and_255(cls, value: Mapping[str, str | None]) -> Mapping[str, str | None]:
        if not 2 <= len(value) <= 255:
            raise ValueError(f"a choice question has 2 to 255 options, got {len(value)}")
        if blank := [name for name in value if not name.strip()]:
            raise ValueError(f"an option needs a name, got {blank[0]!r}")
        return value


def _refuse_twins(kind: str, names: Sequence[str]) -> None:
    if twins := [name for number, name in enumerate(names) if name in names[:number]]:
        raise ValueError(f"every {kind} has a name of its own, got {twins[0]!r} twice")


class ScoreQuestion(_QuestionFields):
    """An ordered scale of 2 to 10 levels, lowest first; the answer is the expectation over the 0-based levels."""

    type: Literal["score"]
    criteria: tuple[Text, ...] = Field(description="The levels' names, lowest first.")

    @property
    def options(self) -> tuple[str, ...]:
        return self.criteria

    @field_validator("criteria")
    @classmethod
    def _between_2_and_10(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not 2 <= len(value) <= 10:
            raise ValueError(f"a score question has 2 to 10 levels, got {len(value)}")
        if blank := [name for name in value if not name.strip()]:
            raise ValueError(f"a level needs a name, got {blank[0]!r}")
        _refuse_twins("level", value)
        return value


Question = Annotated[NoulQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]
