"""Labels and decisions: what travels stays as it was, and a reason reads as a sentence."""

import pickle
from dataclasses import FrozenInstanceError, fields

import pytest

from slotstream.schemas.label import Decision, Label, Reason

LABEL = Label("intent", "choice", "refund", None, 0.9, 0.99, 0.8, 0.3, {"refund": 0.9, "other": 0.1})
REASON = Reason("intent", "probability", 0.9, 0.95)
DECISION = Decision(
    id="u:0:1:h",
    route="review",
    reasons=(REASON,),
    labels=(LABEL,),
    schema_name="tickets",
    schema_version="1",
    schema_hash="h",
    model="m",
    engine="instant 1",
    prompt_hash="p",
    draws=1,
    truncated=False,
    decided_at_ms=1,
)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (REASON, "intent: probability 0.9 is below 0.95"),
        (Reason("urgent", "mass", 0.123456, 0.5), "urgent: mass 0.123456 is below 0.5"),
        (Reason("urgent", "margin", 0.0, 1.0), "urgent: margin 0 is below 1"),
    ],
)
def test_a_reason_reads_as_a_sentence(reason: Reason, sentence: str) -> None:
    assert str(reason) == sentence


@pytest.mark.parametrize("travels", [LABEL, REASON, DECISION])
def test_what_travels_survives_pickling_and_cannot_be_changed(travels: Label | Reason | Decision) -> None:
    assert pickle.loads(pickle.dumps(travels)) == travels
    assert not hasattr(travels, "__dict__")
    with pytest.raises(FrozenInstanceError):
        setattr(travels, fields(travels)[0].name, "other")
