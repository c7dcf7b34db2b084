"""What the codecs' suites share: a decision, schemas in a dict, and codecs of every format."""

import json
from typing import Any

from slotstream.operators.codec import Codec, ValueConfig, build_codec
from slotstream.operators.registry import RegisteredSchema
from slotstream.schemas.decision import DecisionSchema, parse_decision_schema
from slotstream.schemas.errors import DecodeError
from slotstream.schemas.label import Decision, Label
from slotstream.schemas.record import Message, Origin

__all__ = ["ADDED", "DECIDED", "REVIEW", "SCHEMA", "Schemas", "codec", "framed", "message"]

TOPICS = {"decided": "out", "review": "unsure"}
LABEL = Label("refund", "noul", True, None, 0.9, 0.99, 0.8, 0.325083, {"yes": 0.9, "no": 0.1})
DECIDED = Decision("u:0:7:h", "decided", (), (LABEL,), "s", "1", "h", "m", "e", "p", 1, False, 1_700_000_000_123)
REVIEW = Decision("u:0:7:h", "review", (), (LABEL,), "s", "1", "h", "m", "e", "p", 1, False, 1_700_000_000_123)
# As JSON and in order: what every output must end with.
ADDED = (
    '"refund":true,"refund_probability":0.9,"refund_mass":0.99,"refund_margin":0.8,"refund_entropy":0.325083,'
    '"decision_id":"u:0:7:h","decision_route":"decided","decision_reasons":null,"decision_schema":"s",'
    '"decision_schema_version":"1","decision_schema_hash":"h","decision_model":"m","decision_engine":"e",'
    '"decision_prompt_hash":"p","decision_draws":1,"decision_truncated":false,"decided_at":1700000000123'
)
SCHEMA = {"type": "record", "name": "Ticket", "namespace": "shop", "fields": [{"name": "text", "type": "string"}]}


class Schemas:
    """A registry in a dict. registered: (subject, text) in order. fail: raised by the next register()."""

    def __init__(self, *schemas: Any) -> None:
        self.texts = [json.dumps(schema) for schema in schemas]
        self.registered: list[tuple[str, str]] = []
        self.asked: list[int] = []
        self.fail: Exception | None = None

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if not 1 <= schema_id <= len(self.texts):
            raise DecodeError(f"no schema {schema_id}", code="schema_not_found")
        return RegisteredSchema(schema_id, self.texts[schema_id - 1])

    def register(self, subject: str, text: str) -> int:
        if self.fail is not None:
            fail, self.fail = self.fail, None
            raise fail
        self.registered.append((subject, text))
        return 100 + len(self.registered)


def decision_schema(state: Any = "text") -> DecisionSchema:
    questions = {"refund": {"type": "noul", "instructions": "Does the customer want money back?"}}
    return parse_decision_schema({"questions": questions, "state": state}, name="example")


def codec(format_: str, state: Any = "text", *, schemas: Any = None, **settings: Any) -> Codec:
    config = ValueConfig.model_validate({"format": format_, **settings})
    return build_codec(config, decision_schema(state), topics=TOPICS, source=schemas)  # type: ignore[arg-type]


def message(value: bytes, *headers: tuple[str, bytes | None]) -> Message:
    return Message(Origin("in", "topic-uuid", 0, 7), 0, 0, b"key", value, headers)


def framed(datum: bytes, schema_id: int = 1) -> Message:
    return message(b"\0" + schema_id.to_bytes(4, "big") + datum)
