"""Partitions of the output: the source's own where counts match, else by key as Java does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotstream.operators.kafka.partition import partition_for


@given(st.none() | st.binary(max_size=40), st.integers(0, 99), st.integers(1, 100))
def test_equal_counts_keep_the_partition(key: bytes | None, partition: int, count: int) -> None:
    assert partition_for(key, partition % count, count, count) == partition % count


@given(st.none() | st.binary(max_size=40), st.integers(0, 99), st.integers(1, 100), st.integers(1, 100))
def test_the_partition_always_exists(key: bytes | None, partition: int, source: int, target: int) -> None:
    assert 0 <= partition_for(key, partition, source, target) < target


@pytest.mark.parametrize(  # from Kafka's own UtilsTest.testMurmur2
    ("key", "murmur2"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_other_counts_place_by_the_hash_that_java_uses(key: bytes, murmur2: int) -> None:
    assert partition_for(key, 0, 2, 1009) == (murmur2 & 0x7FFFFFFF) % 1009


def test_without_a_key_a_source_partition_stays_in_one_place() -> None:
    assert [partition_for(None, partition, 6, 4) for partition in range(6)] == [0, 1, 2, 3, 0, 1]
