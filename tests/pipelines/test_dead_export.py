"""An exported letter holds everything, so that its record could be made again from the line alone."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.kafka.header_keys import RawHeaderKey
from slotstream.pipelines.dead_export import _open, exported
from slotstream.schemas.errors import ConfigError
from tests.operators.kafka.letters import letter

BYTES = st.none() | st.binary(max_size=20)


def back(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@given(BYTES, BYTES, st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=4))
def test_key_value_and_headers_come_back_byte_for_byte(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    it = letter(3, key=key, value=value, headers=tuple(headers))
    line = json.loads(json.dumps(exported(it), ensure_ascii=False))
    assert (back(line["key"]), back(line["value"])) == (key, value)
    assert [(each["key"], back(each["value"])) for each in line["headers"]] == list(it.headers)
    assert (line["origin"], line["code"], line["attempt"]) == ("tickets[0]@3", "json_invalid", 1)


def test_a_header_key_that_is_no_utf_8_has_its_bytes_beside_it() -> None:
    (first, *_) = exported(letter(headers=((RawHeaderKey(b"\xffk"), b"v"),)))["headers"]
    assert back(first["key_bytes"]) == b"\xffk"


def test_a_file_that_exists_or_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with _open(tmp_path / "new") as file:
        file.write("x")
    with pytest.raises(ConfigError, match="not overwritten"):
        _open(tmp_path / "new")
    with pytest.raises(ConfigError, match="No such file"):
        _open(tmp_path / "no" / "folder")
    with _open(Path("/dev/null")) as device:
        assert device.writable()
