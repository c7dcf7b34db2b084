"""Which output partition a record goes to: the source's own where the counts match, so that order survives."""

from functools import lru_cache

from kafka.partitioner.default import murmur2

__all__ = ["partition_for"]


def partition_for(key: bytes | None, source_partition: int, source_count: int, target_count: int) -> int:
    """The partition of the output topic.

    Equal counts: the source partition (order per partition is kept). Else murmur2 of the key, as Java's and
    kafka-python's default partitioners do (order per key is kept); without a key, source partition modulo count.

    Args:
        key: the record's key bytes.
        source_partition: where the record was read.
        source_count: partitions of the topic it was read from.
        target_count: partitions of the topic it goes to, at least 1.
    """
    if source_count == target_count and source_partition < target_count:
        return source_partition
    if key is None:
        return source_partition % target_count
    return _hash(key) % target_count


@lru_cache(maxsize=4096)  # pure Python costs about 1 us a byte, and keys repeat
def _hash(key: bytes) -> int:
    return int(murmur2(key)) & 0x7FFFFFFF
