"""Every code that a dead letter can have: what causes it, what happened to the record, what to do.

A code's class and stage, and whether another attempt may help by itself, come from schemas/errors.py. The text is that
of docs/errors.md and `slotstream errors`.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slotstream.schemas import errors

__all__ = ["ERROR_CODES", "ErrorCode", "unknown_code"]

_HAPPENED = {
    "decode": "It could not be read, so nothing was asked about it. It is on the dead topic as it was read.",
    "decide": "It was read, but there is no sound answer. It is on the dead topic as it was read.",
    "encode": "It was decided, but the decision cannot be written behind it. It is on the dead topic as it was read.",
    "write": "It was decided, but its output topic did not take it. It is on the dead topic as it was read.",
}


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code. cause: what is the matter with the record.  advice: what to do."""

    code: str
    error: type[errors.RecordError]
    cause: str
    advice: str

    @property
    def happened(self) -> str:
        """What became of the record."""
        return _HAPPENED[self.error.stage]


def _codes(error: type[errors.RecordError], *told: tuple[str, str, str]) -> Iterator[ErrorCode]:
    return (ErrorCode(code, error, cause, advice) for code, cause, advice in told)


_WRITER = "Look at the marked byte in `slotstream dead show`, and at the program that wrote it."
_OTHER_SCHEMA = (
    "Most often the producer wrote with another schema than the id in front names. Compare the two, correct the "
    "producer, and have it send the record again."
)
_SEND_AGAIN = "Correct the producer and have it send the record again: a redrive brings the same bytes."

_ALL = (
    *_codes(
        errors.DecodeError,
        ("decode_error", "The value cannot be read; the message says why.", _WRITER),
        (
            "framing_empty",
            "The value is empty, yet no tombstone: a tombstone is null.",
            f"Producers that mean a tombstone must send null. {_SEND_AGAIN}",
        ),
        (
            "framing_unknown",
            "The value does not begin as the configured framing does; the message names the bytes seen.",
            "If all letters have it, `input.format` or `input.framing` is wrong: set it and redrive. If few have it, "
            "another program writes to the topic.",
        ),
        (
            "schema_not_found",
            "The registry does not know the schema id in front of the value, also after a second look.",
            "Is `registry.urls` the registry that the producer registers at? Correct it, or register the schema, and "
            "redrive. An id that looks like text is no id: the value is not framed.",
        ),
        (
            "schema_not_avro",
            "The schema id names a JSON Schema or Protobuf schema.",
            "Such values are not read as Avro. Send them to a topic, and a run, of their own.",
        ),
        (
            "avro_schema_invalid",
            "The writer schema itself breaks a rule of Avro; the message names place and rule.",
            "Register a corrected schema and have the producer use it. A schema never changes under its id.",
        ),
        ("avro_truncated", "The datum ends before its schema does.", _OTHER_SCHEMA),
        ("avro_trailing_bytes", "Bytes are left over behind the datum.", _OTHER_SCHEMA),
        ("avro_enum_out_of_range", "An enum has an index that its schema has no symbol for.", _OTHER_SCHEMA),
        ("avro_union_out_of_range", "A union has an index that its schema has no branch for.", _OTHER_SCHEMA),
        ("avro_negative_length", "A text, bytes or block has a negative length.", _OTHER_SCHEMA),
        ("avro_varint_too_long", "A number takes more bytes than a number can.", _OTHER_SCHEMA),
        ("avro_block_size", "A block of an array or map is not as long as it says.", _WRITER),
        (
            "avro_count_too_large",
            "Arrays claim more than 65,536 items that take no bytes, which a few bytes can do.",
            f"{_WRITER} No sound producer writes this.",
        ),
        (
            "avro_too_deep",
            "The datum is nested deeper than 100 levels.",
            "Flatten what the producer sends: other readers break on it as well.",
        ),
        (
            "avro_invalid_utf8",
            "A text that is asked about is not UTF-8.",
            f"Declare it as `bytes`, or encode it as UTF-8. {_SEND_AGAIN}",
        ),
        (
            "avro_invalid_boolean",
            "A boolean that is asked about is neither 0 nor 1: readers disagree on what it means.",
            _OTHER_SCHEMA,
        ),
        (
            "json_invalid",
            "The value is no JSON; the message has the character.",
            f"If all letters have it, `input.format` is wrong: set it and redrive. If few have it: {_SEND_AGAIN}",
        ),
        ("json_invalid_utf8", "The value is no UTF-8, as JSON must be.", _SEND_AGAIN),
        (
            "json_not_an_object",
            "The value is JSON, but an array, text, number or null: there is no place for decision fields.",
            "Wrap it into an object at the producer.",
        ),
        (
            "json_duplicate_key",
            "The object has a key twice: readers take either.",
            _SEND_AGAIN,
        ),
        (
            "json_too_deep",
            "The value, or a field that is asked about, is nested too deeply.",
            "Ask about a field further inside (`state`), or flatten what the producer sends.",
        ),
        ("json_lone_surrogate", "A text that is asked about holds half of a surrogate pair.", _SEND_AGAIN),
        (
            "json_field_clash",
            "The object has a key that is, but for case, the name of a decision field.",
            "Set `output.field_prefix` and redrive.",
        ),
        (
            "text_invalid_utf8",
            "The value is no UTF-8.",
            f"If all letters have it, the producer uses another encoding. {_SEND_AGAIN}",
        ),
        (
            "state_field_missing",
            "The record lacks a field that the decision schema asks about.",
            "Is the field misspelt in `state`? Correct it. Where producers leave nulls out, set `absent: empty`. Then "
            "redrive. A changed decision schema has another hash, so the decision has another id.",
        ),
        (
            "state_empty",
            "All fields that are asked about are empty: there is nothing to decide.",
            "Nothing to do if that is so; else ask about further fields and redrive.",
        ),
        (
            "state_not_text",
            "A field that is asked about has no text form, such as bytes that are not UTF-8.",
            "Ask about another field, or send it as text.",
        ),
        (
            "line_blank",
            "A line of `slotstream decide` is blank; it has an answer, so that line N belongs to line N.",
            "Nothing, or remove the line. This code never occurs on a topic.",
        ),
    ),
    *_codes(
        errors.RecordError,
        ("record_error", "The record cannot be decided; the message says why.", "Report it: it should have a code."),
    ),
    *_codes(
        errors.StateTooLong,
        (
            "state_too_long",
            "The text is longer than the prompt has room for, and the decision schema does not cut.",
            "Set `truncate: head|tail|middle`, ask about fewer fields, or raise `engine.max_model_len`; then redrive.",
        ),
    ),
    *_codes(
        errors.MassTooLow,
        (
            "mass_too_low",
            "The listed options hold nearly none of the model's probability: it would answer something else.",
            "Read the record. Often an option is missing (`other`), or the text is in a form the model cannot read.",
        ),
    ),
    *_codes(
        errors.ReadNotFinite,
        (
            "read_not_finite",
            "The model gives NaN for this record alone, twice, while it reads others soundly.",
            "Redrive once. If it comes back, report the record with the model's and vLLM's versions.",
        ),
    ),
    *_codes(
        errors.ReadTimeout,
        (
            "read_timeout",
            "The engine did not finish this read in time although it finished others.",
            "Redrive. If it comes back, raise `engine.read_timeout_s`.",
        ),
    ),
    *_codes(
        errors.EngineCrash,
        (
            "engine_crash",
            "The engine died three times at this record, and again when it was read alone.",
            "Do not redrive it to the same engine version: it would die again. Report the record with vLLM's version.",
        ),
    ),
    *_codes(
        errors.EncodeError,
        (
            "encode_error",
            "A decision field has a value that cannot be written, such as a number that is not finite.",
            "Report it with the message; redrive after an update.",
        ),
    ),
    *_codes(
        errors.RecordTooLarge,
        (
            "record_too_large",
            "The record with its decision is larger than the output topic takes.",
            "Raise `max.message.bytes` of the output topic (and `output.max_request_bytes`), or turn "
            "`output.probabilities` off; then redrive.",
        ),
    ),
    *_codes(
        errors.RecordRefused,
        (
            "record_refused",
            "The output topic does not take the record, such as one without a key on a compacted topic.",
            "Correct the topic's settings (`slotstream check` names them), or give records keys; then redrive.",
        ),
        (
            "timestamp_refused",
            "The output topic does not take the record's time stamp: it is too far from now.",
            "Raise `message.timestamp.before.max.ms` or `message.timestamp.after.max.ms` of the output topic; then "
            "redrive.",
        ),
    ),
)
ERROR_CODES = {each.code: each for each in sorted(_ALL, key=lambda each: each.code)}
"""Code to its meaning, in the order of the alphabet."""


def unknown_code(text: str, known: Iterable[str] = ERROR_CODES) -> str:
    """What to tell somebody who asks for a code that is none of `known`."""
    near = difflib.get_close_matches(text, list(known), n=3)
    meant = f"did you mean {' or '.join(near)}?" if near else "`slotstream errors` lists all"
    return f"no error code is {text!r}; {meant}"
