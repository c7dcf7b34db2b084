"""A checkpoint's card: which plans it was trained on, and in which style it is asked."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slotstream.operators.plan import plan_hash
from slotstream.operators.wording import Style
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import EngineNotCapable

__all__ = ["CARD_FILE", "Card", "read_card", "style_for"]

CARD_FILE = "slotstream.json"


class Card(BaseModel):
    """The part of `slotstream.json` that decides whether a checkpoint may be asked a schema (general models: none)."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # the card also tells people of data, dates and accuracy

    style: Style = Field(description="The wording that the checkpoint was trained on.")
    plan_hashes: tuple[str, ...] = Field(min_length=1, description="Hashes of the plans that it was trained on.")
    schema_name: str = Field(description="Name of the decision schema that it knows, for messages.")
    schema_version: str = Field(description="Version of that schema, for messages.")


def read_card(model: str) -> Card | None:
    """The card of a checkpoint folder; None for a model without one (a general model).

    Raises:
        EngineNotCapable: there is a card and it cannot be understood.
    """
    path = Path(model) / CARD_FILE
    if not path.is_file():
        return None
    try:
        return Card.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise EngineNotCapable(f"checkpoint card {path}: {error}") from None


def style_for(schema: DecisionSchema, model: str, *, fake: bool = False) -> Style:
    """The style in which `model` is asked: its card's, or `full` for a general model.

    Args:
        fake: the engine only takes the model's tokenizer, so that what the model was trained on is no matter.

    Raises:
        EngineNotCapable: the checkpoint was trained on other questions than `schema` asks.
    """
    card = read_card(model)
    if card is None:
        return "full"
    asked = plan_hash(schema, card.style)
    if asked not in card.plan_hashes:
        if fake:
            return "full"
        raise EngineNotCapable(
            f"checkpoint {Path(model).name!r} was trained on decision schema {card.schema_name!r} version "
            f"{card.schema_version} (plans {', '.join(card.plan_hashes)}) and knows no other; schema {schema.name!r} "
            f"version {schema.version} has plan {asked}. Set engine.model (decide: --model) to a general model, "
            "or train a checkpoint on these questions."
        )
    return card.style
