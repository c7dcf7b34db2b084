"""Which columns a decision adds, and their values."""

import pytest

from slotstream.schemas.errors import ConfigError
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Decision, Label, QuestionType, Reason

QUESTIONS: tuple[tuple[str, QuestionType], ...] = (("urgent", "noul"), ("intent", "choice"), ("anger", "score"))
LABELS = (
    Label("urgent", "noul", False, None, 0.75, 0.99, 0.5, 0.562335, {"yes": 0.25, "no": 0.75}),
    Label("intent", "choice", "refund", None, 0.9, 0.98, 0.8, 0.325083, {"refund": 0.9, "other": 0.1}),
    Label("anger", "score", 0.25, "calm", 0.8, 0.97, 0.65, 0.6, {"calm": 0.8, "cross": 0.15, "furious": 0.05}),
)
DECISION = Decision(
    id="uuid:0:7:hash",
    route="review",
    reasons=(Reason("urgent", "probability", 0.75, 0.8), Reason("anger", "margin", 0.65, 0.7)),
    labels=LABELS,
    schema_name="tickets",
    schema_version="3",
    schema_hash="hash",
    model="tiny",
    engine="vllm 0.32.0",
    prompt_hash="prompt",
    draws=2,
    truncated=True,
    decided_at_ms=1_700_000_000_123,
)

MADE = {
    "decision_id": "uuid:0:7:hash",
    "decision_route": "review",
    "decision_reasons": "urgent: probability 0.75 is below 0.8; anger: margin 0.65 is below 0.7",
    "decision_schema": "tickets",
    "decision_schema_version": "3",
    "decision_schema_hash": "hash",
    "decision_model": "tiny",
    "decision_engine": "vllm 0.32.0",
    "decision_prompt_hash": "prompt",
    "decision_draws": 2,
    "decision_truncated": True,
    "decided_at": 1_700_000_000_123,
}


def test_each_question_has_its_value_and_its_numbers_in_order() -> None:
    fields = DecisionFields(QUESTIONS)
    assert dict(zip(fields.names, fields.values(DECISION), strict=True)) == {
        "urgent": False,
        "urgent_probability": 0.75,
        "urgent_mass": 0.99,
        "urgent_margin": 0.5,
        "urgent_entropy": 0.562335,
        "intent": "refund",
        "intent_probability": 0.9,
        "intent_mass": 0.98,
        "intent_margin": 0.8,
        "intent_entropy": 0.325083,
        "anger": 0.25,
        "anger_level": "calm",
        "anger_probability": 0.8,
        "anger_mass": 0.97,
        "anger_margin": 0.65,
        "anger_entropy": 0.6,
        **MADE,
    }


def test_each_field_has_the_type_of_its_values() -> None:
    kinds = {field.name: field.kind for field in DecisionFields(QUESTIONS, probabilities=True).fields}
    expected = {
        "urgent": "boolean",
        "intent": "string",
        "anger": "double",
        "anger_level": "string",
        "anger_mass": "double",
        "anger_probabilities": "probabilities",
        "decision_draws": "int",
        "decision_truncated": "boolean",
        "decided_at": "timestamp",
    }
    assert {name: kinds[name] for name in expected} == expected


def test_the_full_distribution_is_added_on_request_in_the_schemas_order() -> None:
    fields = DecisionFields(QUESTIONS, probabilities=True)
    values = dict(zip(fields.names, fields.values(DECISION), strict=True))
    assert values["intent_probabilities"] == [
        {"option": "refund", "probability": 0.9},
        {"option": "other", "probability": 0.1},
    ]
    assert [item["option"] for item in values["anger_probabilities"]] == ["calm", "cross", "furious"]
    assert fields.names.index("urgent_probabilities") == fields.names.index("intent") - 1


def test_a_prefix_stands_before_every_name() -> None:
    plain, prefixed = DecisionFields(QUESTIONS), DecisionFields(QUESTIONS, prefix="ai_")
    assert prefixed.names == tuple("ai_" + name for name in plain.names)


def test_without_reasons_the_field_is_null() -> None:
    fields = DecisionFields(QUESTIONS)
    decided = Decision("i", "decided", (), LABELS, "s", "1", "h", "m", "e", "p", 1, False, 0)
    assert dict(zip(fields.names, fields.values(decided), strict=True))["decision_reasons"] is None


def test_labels_may_come_in_another_order_than_the_questions() -> None:
    fields = DecisionFields(QUESTIONS)
    turned = Decision("i", "decided", (), LABELS[::-1], "s", "1", "h", "m", "e", "p", 1, False, 0)
    assert dict(zip(fields.names, fields.values(turned), strict=True))["intent"] == "refund"


@pytest.mark.parametrize(
    ("questions", "named"),
    [
        ([("intent", "choice"), ("intent_mass", "noul")], "intent_mass"),
        ([("anger", "score"), ("anger_level", "choice")], "anger_level"),
        ([("decision_id", "choice")], "decision_id"),
        ([("decided_at", "noul")], "decided_at"),
    ],
)
def test_two_fields_of_one_name_are_refused(questions: list[tuple[str, QuestionType]], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        DecisionFields(questions)


@pytest.mark.parametrize("prefix", ["Ai_", "1", "a-b", "a.b", " "])
def test_a_prefix_that_is_no_column_name_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"output\.field_prefix"):
        DecisionFields(QUESTIONS, prefix=prefix)


@pytest.mark.parametrize("name", ["intent", "INTENT", "Decision_Id", "anger_level"])
def test_a_name_that_differs_in_case_only_clashes(name: str) -> None:
    fields = DecisionFields(QUESTIONS)
    assert fields.clashes(["text", name]) == [name]
    with pytest.raises(ConfigError, match=rf"input schema A.*{name}.*output\.field_prefix"):
        fields.refuse_clash("input schema A", [name])
