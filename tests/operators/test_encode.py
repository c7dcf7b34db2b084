"""Encode: what is written for each outcome, and where it goes."""

import json
from typing import Any

import pytest

from slotstream.operators.codec import ValueConfig
from slotstream.operators.dead_letter_limit import DeadLetterLimitConfig, limit_for
from slotstream.operators.decode import CodecSource
from slotstream.operators.encode import EncodeFn, encode
from slotstream.operators.kafka.headers import Stamp, header_value
from slotstream.operators.kafka.sink import Outgoing
from slotstream.operators.outcome import Dead, Decided, Forwarded
from slotstream.schemas.errors import (
    ConfigError,
    DeadLetterLimitReached,
    DecodeError,
    EncodeError,
    OutputSchemaRefused,
    RegistryUnavailable,
    StateTooLong,
)
from slotstream.schemas.label import Decision, Label, Reason
from slotstream.schemas.record import Message, Origin, Record
from tests.examples import NOUL, example_schema

SCHEMA = example_schema({"refund": NOUL})
SOURCE = CodecSource(ValueConfig(format="json"), SCHEMA, {"decided": "d", "review": "r"})
STAMP = Stamp(schema_hash="cafe", group="g", version="1")
HEADERS = (("trace", b"\xff"), ("trace", None), ("__value_schema_id", b"id"))
MESSAGE = Message(Origin("in", "uuid", 1, 5), 123, 0, b"key", b'{"text": "secret"}', HEADERS)
REASON = Reason("refund", "mass", 0.4, 0.5)


def decided(*reasons: Reason, record: Record | None = None) -> Decided:
    label = Label("refund", "noul", True, None, 0.9, 0.99, 0.8, 0.3, {"yes": 0.9, "no": 0.1})
    decision = Decision(
        id="uuid:1:5:cafe",
        route="review" if reasons else "decided",
        reasons=reasons,
        labels=(label,),
        schema_name="example",
        schema_version="1",
        schema_hash="cafe",
        model="m",
        engine="instant 1",
        prompt_hash="p",
        draws=1,
        truncated=False,
        decided_at_ms=1,
    )
    return Decided(record or Record(MESSAGE, {"text": "secret"}), decision)


def encoded(outcome: Any, codec: Any = None) -> Outgoing:
    return encode(outcome, codec or SOURCE.codec(), STAMP, time_ms=99)


class BrokenCodec:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def decode(self, message: Message) -> Record:
        raise self._error

    def encode(self, record: Any, decision: Any) -> bytes:
        raise self._error


def test_a_decided_record_is_its_own_value_with_the_decision_behind() -> None:
    written = encoded(decided())
    assert written.route == "decided"
    assert written.value is not None
    assert written.value.startswith(b'{"text": "secret","refund":true,')
    assert json.loads(written.value)["decision_id"] == "uuid:1:5:cafe"
    assert header_value(written.headers, "slotstream.decision_id") == "uuid:1:5:cafe"


def test_a_record_for_review_says_why_in_its_headers() -> None:
    written = encoded(decided(REASON))
    assert written.route == "review"
    assert header_value(written.headers, "slotstream.review.reason") == "refund: mass 0.4 is below 0.5"


def test_headers_pass_in_order_with_repeated_and_null_ones() -> None:
    assert encoded(decided()).headers[:2] == HEADERS[:2]


def test_headers_that_name_the_input_schema_are_left_out_of_a_new_value_only() -> None:
    assert "__value_schema_id" not in dict(encoded(decided()).headers)
    assert "__value_schema_id" in dict(encoded(Dead(MESSAGE, DecodeError("x"))).headers)


def test_a_dead_letter_is_the_message_as_it_came_and_says_why_without_its_text() -> None:
    written = encoded(Dead(MESSAGE, StateTooLong("the state has 9 tokens")))
    assert (written.route, written.value, written.key) == ("dead", MESSAGE.value, b"key")
    assert written.headers[: len(HEADERS)] == HEADERS
    assert header_value(written.headers, "slotstream.error.code") == "state_too_long"
    assert header_value(written.headers, "slotstream.time") == "99"
    assert not any(b"secret" in (value or b"") for _, value in written.headers)


def test_a_tombstone_goes_to_decided_as_a_tombstone() -> None:
    written = encoded(Forwarded(MESSAGE))
    assert (written.route, written.value) == ("decided", None)
    assert header_value(written.headers, "slotstream.decision_id") == "uuid:1:5:cafe"


def test_a_decision_that_cannot_be_written_is_dead_at_the_encode_stage() -> None:
    written = encoded(decided(), BrokenCodec(EncodeError("no room")))
    assert (written.route, written.value) == ("dead", MESSAGE.value)
    assert header_value(written.headers, "slotstream.error.stage") == "encode"
    assert header_value(written.headers, "slotstream.error.code") == "encode_error"


@pytest.mark.parametrize("error", [RegistryUnavailable("x"), OutputSchemaRefused("x"), ConfigError("x")])
def test_no_record_is_blamed_for_registry_or_configuration(error: Exception) -> None:
    with pytest.raises(type(error)):
        encoded(decided(), BrokenCodec(error))


def test_the_step_watches_the_share_of_dead_records() -> None:
    config = DeadLetterLimitConfig(min_records=4, window_records=8, share=0.5)
    step = EncodeFn(SOURCE, STAMP, limit=config)

    def bundle(*outcomes: Any) -> None:
        step.start_bundle()
        for outcome in outcomes:
            list(step.process(outcome))
        step.finish_bundle()

    bundle(decided(), Forwarded(MESSAGE), Dead(MESSAGE, DecodeError("x")))
    limit_for(config).check()
    bundle(*[Dead(MESSAGE, DecodeError("x", code="json_invalid"))] * 4)
    with pytest.raises(DeadLetterLimitReached, match=r"json_invalid 2 times, such as in\[1\]@5"):
        limit_for(config).check()
    with pytest.raises(DeadLetterLimitReached):
        step.start_bundle()


def test_a_bundle_that_failed_does_not_count() -> None:
    config = DeadLetterLimitConfig(min_records=1, window_records=3)
    step = EncodeFn(SOURCE, STAMP, limit=config)
    step.start_bundle()
    list(step.process(Dead(MESSAGE, DecodeError("x"))))
    step.start_bundle()
    step.finish_bundle()
    limit_for(config).check()
