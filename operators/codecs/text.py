"""Plain UTF-8 text in, a JSON object out."""

import json
from collections.abc import Sequence

from slotstream.operators.codecs.json_object import decision_json
from slotstream.schemas.errors import ConfigError, DecodeError
from slotstream.schemas.fields import DecisionFields
from slotstream.schemas.label import Decision
from slotstream.schemas.record import Message, Record

__all__ = ["TextCodec"]


class TextCodec:
    """Reads a value as the field `text`; writes `{"value": <the text>, <decision fields>}`.

    Raises:
        ConfigError: the state needs another field than `text`, or a decision field would be named `value`.
    """

    def __init__(self, fields: DecisionFields, paths: Sequence[str]) -> None:
        if others := [path for path in paths if path != "text"]:
            raise ConfigError(
                f"plain text values have one field, 'text'; the decision schema's state needs {others[0]!r}"
            )
        fields.refuse_clash("the output object of plain text values", ("value",))
        self._fields = fields

    def decode(self, message: Message) -> Record:
        """Raises DecodeError `text_invalid_utf8`."""
        assert message.value is not None
        return Record(message, {"text": _text(message.value)})

    def encode(self, record: Record, decision: Decision) -> bytes:
        """Raises EncodeError when a value of the decision is no JSON."""
        assert record.message.value is not None
        text = json.dumps(_text(record.message.value), ensure_ascii=False)
        return b'{"value":' + text.encode() + b"," + decision_json(self._fields, decision) + b"}"


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"value of {len(value)} bytes is no UTF-8 at byte {error.start}", code="text_invalid_utf8"
        ) from None
