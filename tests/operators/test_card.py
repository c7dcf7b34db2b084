"""A checkpoint's card: it is asked only what it was trained on, in the style that it was trained in."""

import json
from pathlib import Path
from typing import Any

import pytest

from slotstream.operators.card import CARD_FILE, Card, read_card, style_for
from slotstream.operators.plan import plan_hash
from slotstream.schemas.errors import EngineNotCapable
from tests.examples import NOUL, example_schema

SCHEMA = example_schema(version="3")


def write_card(folder: Path, **changed: Any) -> str:
    card = {
        "style": "compact",
        "plan_hashes": ["0123456789abcdef", plan_hash(SCHEMA, "compact")],
        "schema_name": "example",
        "schema_version": "3",
    }
    (folder / CARD_FILE).write_text(json.dumps({**card, **changed}))
    return str(folder)


def test_a_model_without_a_card_is_a_general_model_and_asked_in_full(tmp_path: Path) -> None:
    assert read_card(str(tmp_path)) is None
    assert style_for(SCHEMA, str(tmp_path)) == "full"
    assert style_for(SCHEMA, "some/hub-id") == "full"


@pytest.mark.parametrize("style", ["full", "compact"])
def test_a_trained_checkpoint_is_asked_in_the_style_of_its_card(tmp_path: Path, style: Any) -> None:
    model = write_card(tmp_path, style=style, plan_hashes=[plan_hash(SCHEMA, style)])
    assert style_for(SCHEMA, model) == style


def test_a_fake_engine_is_asked_anything_in_full(tmp_path: Path) -> None:
    folder = write_card(tmp_path)
    assert style_for(example_schema({"refund": NOUL}, version="3"), folder, fake=True) == "full"
    assert style_for(SCHEMA, folder, fake=True) == "compact"


def test_a_card_may_tell_more_than_is_needed(tmp_path: Path) -> None:
    assert read_card(write_card(tmp_path, accuracy={"intent": 0.9}, licence="Apache-2.0")) == Card(
        style="compact",
        plan_hashes=("0123456789abcdef", plan_hash(SCHEMA, "compact")),
        schema_name="example",
        schema_version="3",
    )


@pytest.mark.parametrize(
    "other",
    [
        example_schema({"refund": NOUL}, version="3"),
        example_schema(version="4"),
        example_schema(version="3", instructions="More."),
    ],
    ids=["questions", "version", "instructions"],
)
def test_other_questions_are_refused_with_what_to_do(tmp_path: Path, other: Any) -> None:
    with pytest.raises(EngineNotCapable) as caught:
        style_for(other, write_card(tmp_path))
    message = str(caught.value)
    for part in (
        f"checkpoint {tmp_path.name!r} was trained on decision schema 'example' version 3",
        "0123456789abcdef",
        f"version {other.version} has plan {plan_hash(other, 'compact')}",
        "Set engine.model (decide: --model) to a general model, or train a checkpoint",
    ):
        assert part in message


def test_the_right_plan_in_the_wrong_style_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineNotCapable, match="knows no other"):
        style_for(SCHEMA, write_card(tmp_path, style="full"))


def test_thresholds_and_routing_do_not_ask_anything_else(tmp_path: Path) -> None:
    routed = example_schema(version="3", mass_floor=0.2, truncate="tail", draws=4, state="body")
    assert style_for(routed, write_card(tmp_path)) == "compact"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "slotstream.json"),
        (b"no json", "slotstream.json"),
        (b"\xff", "slotstream.json"),
        (b"[]", "slotstream.json"),
        (b"{}", "style"),
        (b'{"style": "long", "plan_hashes": ["a"], "schema_name": "x", "schema_version": "1"}', "style"),
        (b'{"style": "full", "plan_hashes": [], "schema_name": "x", "schema_version": "1"}', "plan_hashes"),
        (b'{"style": "full", "plan_hashes": "abc", "schema_name": "x", "schema_version": "1"}', "plan_hashes"),
    ],
)
def test_a_card_that_cannot_be_understood_stops_the_start(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / CARD_FILE).write_bytes(content)
    with pytest.raises(EngineNotCapable, match=message):
        read_card(str(tmp_path))
