"""Dead letters carry the input's own bytes, and shrink only as far as they must."""

import hashlib

from slotstream.operators.kafka.dead_letter import dead_letter, smaller
from slotstream.operators.kafka.headers import Stamp
from slotstream.schemas.errors import DecodeError
from slotstream.schemas.record import Message, Origin

STAMP = Stamp("cafe", "labels", "0.1.0")
MESSAGE = Message(Origin("in", "u", 0, 9), 5, 0, b"k" * 2000, b"\x00v" * 5000, (("own", b"x" * 3000),))
LETTER = dead_letter(MESSAGE, STAMP, DecodeError("bad"), time_ms=1)


def test_a_letter_is_the_message_as_it_was_read() -> None:
    assert (LETTER.route, LETTER.key, LETTER.value, LETTER.headers[0]) == (
        "dead",
        MESSAGE.key,
        MESSAGE.value,
        MESSAGE.headers[0],
    )


def test_a_letter_that_is_too_large_says_what_it_left_out() -> None:
    less = smaller(LETTER)
    assert less is not None
    told = dict(less.headers)
    assert (less.value, less.key, told["own"]) == (b"", MESSAGE.key, b"x" * 3000)
    assert told["slotstream.payload.omitted"] == b"true"
    assert told["slotstream.payload.size"] == b"10000"
    assert told["slotstream.payload.sha256"] == hashlib.sha256(b"\x00v" * 5000).hexdigest().encode()


def test_the_last_resort_goes_without_key_and_foreign_headers() -> None:
    once = smaller(LETTER)
    assert once is not None
    twice = smaller(once)
    assert twice is not None
    told = dict(twice.headers)
    assert (twice.key, "own" in told, told["slotstream.key.size"]) == (None, False, b"2000")
    assert told["slotstream.error.code"] == b"decode_error"
    assert told["__connect.errors.topic"] == b"in"
    assert twice.least_bytes() < 2500
    assert smaller(twice) is None


def test_sizes_count_key_value_and_headers() -> None:
    assert LETTER.least_bytes() > 2000 + 10_000 + 3000
