"""Run by tests in a process of its own, since what it is given may kill it: decode and encode Avro values.

Standard input: JSON lines {"schema": text, "datum": hex, "paths": [...]}. Standard output, one line each:
{"code": ..., "message": ...} for a dead letter, else {"fields": repr, "value": hex, "schema": text}.
"""

import json
import resource
import sys

from slotstream.operators.codecs.avro import AvroCodec
from slotstream.operators.registry import RegisteredSchema
from slotstream.schemas.errors import DecodeError
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Decision, Label
from slotstream.schemas.record import Message, Origin

MEMORY_LIMIT = 1 << 30
QUESTIONS = (("urgent", "noul"),)
LABEL = Label("urgent", "noul", True, None, 0.9, 0.99, 0.8, 0.325083, {"yes": 0.9, "no": 0.1})
DECISION = Decision("t:0:1:h", "decided", (), (LABEL,), "s", "1", "h", "m", "e", "p", 1, False, 1_700_000_000_000)
FRAME = bytes([0, 0, 0, 0, 1])


class OneSchema:
    """A registry of one input schema, that remembers the output schema."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.output = ""

    def schema(self, schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(schema_id, self.text)

    def register(self, subject: str, text: str) -> int:
        self.output = text
        return 2


def outcome(case: dict[str, object]) -> dict[str, object]:
    """What becomes of one value."""
    registry = OneSchema(str(case["schema"]))
    paths = [str(path) for path in case["paths"]]  # type: ignore[attr-defined]
    codec = AvroCodec(
        DecisionFields([("urgent", "noul")]), paths, source=registry, sink=registry, subjects={"decided": "out-value"}
    )
    value = FRAME + bytes.fromhex(str(case["datum"]))
    try:
        record = codec.decode(Message(Origin("t", "u", 0, 0), 0, 0, None, value))
    except DecodeError as error:
        return {"code": error.code, "message": str(error)}
    return {
        "fields": repr(record.fields),
        "value": codec.encode(record, DECISION).hex(),
        "schema": registry.output,
    }


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line))), flush=True)
