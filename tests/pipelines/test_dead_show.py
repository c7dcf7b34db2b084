"""One letter as a person sees it: what happened, what to do, and the byte where reading stopped, marked."""

import pytest

from slotstream.operators.codec import ValueConfig
from slotstream.operators.letter_value import ValueFound, read_value
from slotstream.pipelines.dead_show import MOST_LETTERS, MOST_LINES, dump, letter_lines, value_lines
from slotstream.schemas.avro.partial import Piece
from slotstream.schemas.error_codes import ERROR_CODES
from slotstream.schemas.errors import RecordTooLarge
from tests.operators.kafka.letters import letter


def test_a_letter_says_which_record_what_went_wrong_and_what_to_do() -> None:
    it = letter(7, attempt=2, key=b"\xff\x00", headers=(("trace", b"a\x1b[2J"), ("n", None)), timestamp_ms=1_000)
    text = "\n".join(letter_lines(it, ["dead[0]@4 (attempt 1)"], prefix="slotstream"))
    for line in (
        "record      tickets[0]@7\n",
        "letter      dead[0]@0; also dead[0]@4 (attempt 1)\n",
        "attempt     2, of decision schema cafe\n",
        "code        json_invalid, at stage decode\n",
        "error       no JSON\n",
        "key         2 bytes ff 00\n",
        '  trace = "a\\u001b[2J"\n',
        "  n = null\n",
    ):
        assert line in text + "\n", line
    assert ERROR_CODES["json_invalid"].advice.split()[0] in text


@pytest.mark.parametrize(
    ("it", "line"),
    [
        (letter(value=None), "value       none: a tombstone"),
        (letter(value=b""), "value       empty, 0 bytes"),
        (
            letter(value=b"12345", cut=True, error=RecordTooLarge("x")),
            "value       left out: too large for the dead topic",
        ),
    ],
)
def test_a_value_that_is_not_there_is_told(it: object, line: str) -> None:
    assert line in "\n".join(letter_lines(it, [], prefix="slotstream"))  # type: ignore[arg-type]


def test_the_byte_where_reading_stops_is_marked() -> None:
    value = b'{"text": "hello", "n": }  '
    lines = list(value_lines(value, read_value(value, ValueConfig(format="json"), None)))
    assert lines == [
        "value       26 bytes, JSON",
        '  {"text": "hello", "n": ',
        "  reading stops at byte 23 of 26: no JSON: Expecting value",
        '  00000000  7b 22 74 65 78 74 22 3a 20 22 68 65 6c 6c 6f 22  {"text": "hello"',
        '  00000010  2c 20 22 6e 22 3a 20 7d 20 20                    , "n": }',
        "                                 ^^ byte 23",
    ]


@pytest.mark.parametrize(
    ("length", "at", "rows"),
    [
        (0, 0, ["00000000"]),
        (16, 16, ["00000000", "00000010"]),
        (200, 100, ["00000040", "00000050", "00000060", "00000070", "00000080"]),
        (5, 2, ["00000000"]),
    ],
)
def test_a_dump_holds_the_bytes_around_the_mark_and_exactly_one_mark(length: int, at: int, rows: list[str]) -> None:
    lines = list(dump(bytes(length), at))
    assert [line.split()[0] for line in lines if "^^" not in line] == rows
    assert [line.strip() for line in lines if "^^" in line] == [f"^^ byte {at}"]


def test_avro_values_are_told_one_a_line_with_their_notes() -> None:
    pieces = (Piece("a.b", "x\ny", 0, 4), Piece("", b"\xff", 4, 6), Piece("t", "?", 6, 8, "not UTF-8 at byte 7"))
    assert list(value_lines(b"12345678", ValueFound("Avro", pieces))) == [
        "value       8 bytes, Avro",
        '  a.b = "x\\ny"',
        "  (value) = 1 bytes ff",
        '  t = "?"   <- not UTF-8 at byte 7',
        "  read to its end",
    ]


def test_what_is_shown_of_a_huge_value_is_bounded() -> None:
    pieces = tuple(Piece(f"[{n}]", "x" * 100_000, n, n + 1) for n in range(1_000))
    lines = list(value_lines(b"v" * 5_000_000, ValueFound("Avro", pieces, more=7, stopped_at=2_500_000)))
    assert len(lines) < MOST_LINES + 20
    assert max(map(len, lines)) < MOST_LETTERS + 60
    assert "  ... and 807 more" in lines
    long_text = ValueFound("JSON", text="y" * 5_000_000, stopped_at=5_000_000)
    assert sum(map(len, value_lines(b"y" * 5_000_000, long_text))) < 2_000
