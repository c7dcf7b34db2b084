"""Header keys are any bytes: such a record is read, and its key written again as it was."""

import pickle

import pytest
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from slotstream.operators.kafka.header_keys import RawHeaderKey, accept_any_header_key


def batch(keys: list[bytes], compression: int = 0) -> bytes:
    builder = MemoryRecordsBuilder(magic=2, compression_type=compression, batch_size=1 << 20)
    for number, key in enumerate(keys):
        builder.append(timestamp=1000 + number, key=b"k", value=b"v%d" % number, headers=[(RawHeaderKey(key), b"x")])
    builder.close()
    return bytes(builder.buffer())


@pytest.mark.parametrize("compression", [0, 3])
def test_a_bad_header_key_in_the_middle_of_a_batch_harms_no_record(compression: int) -> None:
    accept_any_header_key()
    accept_any_header_key()
    keys = [b"good", b"\xff\xfe", "ключ".encode(), b"\xc3(", b""]
    records = list(MemoryRecords(batch(keys, compression)).next_batch())
    assert [record.value for record in records] == [b"v0", b"v1", b"v2", b"v3", b"v4"]
    assert [record.timestamp for record in records] == [1000, 1001, 1002, 1003, 1004]
    assert [record.headers[0][0].encode("utf-8") for record in records] == keys


def test_a_raw_key_reads_as_escaped_text_and_survives_pickling() -> None:
    key = RawHeaderKey(b"a\xff")
    assert str(key) == "a\\xff"
    assert pickle.loads(pickle.dumps(key)).encode("utf-8") == b"a\xff"
