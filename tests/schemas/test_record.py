"""Messages and records: identity, travel, and text that stays out of logs."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.schemas.record import Message, Origin, Record

ORIGIN = Origin("tickets", "c7nWcmUtQdiS8gpNb8ZkAw", 3, 42)
MESSAGE = Message(ORIGIN, 1_700_000_000_000, 0, b"k", b"v", (("trace", b"\xff"), ("trace", None), ("ключ", b"")))
RECORD = Record(MESSAGE, {"text": "secret words", "n": 1}, schema_id=7)


def test_an_origin_reads_as_people_write_it() -> None:
    assert str(ORIGIN) == "tickets[3]@42"


def test_the_decision_id_is_topic_uuid_partition_offset_and_schema_hash() -> None:
    assert ORIGIN.decision_id("0123456789abcdef") == "c7nWcmUtQdiS8gpNb8ZkAw:3:42:0123456789abcdef"


def test_a_topic_that_was_made_again_gives_other_ids_and_its_name_does_not_matter() -> None:
    assert replace(ORIGIN, topic_id="another").decision_id("h") != ORIGIN.decision_id("h")
    assert replace(ORIGIN, topic="renamed").decision_id("h") == ORIGIN.decision_id("h")


_ORIGINS = st.builds(Origin, st.just("t"), st.uuids().map(str), st.integers(0, 99), st.integers(0))


@given(_ORIGINS, _ORIGINS)
def test_two_records_have_one_id_only_when_they_are_one_record(one: Origin, other: Origin) -> None:
    assert (one.decision_id("h") == other.decision_id("h")) == (one == other)


def test_a_record_s_text_is_not_in_its_repr() -> None:
    message = replace(MESSAGE, key=b"secret key", value=b"secret words", headers=(("name", b"secret name"),))
    assert "secret" not in repr(replace(RECORD, message=message))
    assert "tickets" in repr(message)


@pytest.mark.parametrize("travels", [ORIGIN, MESSAGE, RECORD, replace(MESSAGE, key=None, value=None, headers=())])
def test_what_travels_survives_pickling(travels: object) -> None:
    again = pickle.loads(pickle.dumps(travels))
    assert again == travels
    assert not hasattr(again, "__dict__")
