"""Java's murmur2 and the partitions that come of it, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from client_core.producer.accumulator.partitioner import murmur2, partition_for_key


@pytest.mark.golden("murmur2_partitions.json")
def test_a_keys_hash_and_partition_are_javas(case: dict[str, Any]) -> None:
    key = bytes.fromhex(case["key"])
    assert murmur2(key) == case["murmur2_signed"] & 0xFFFFFFFF
    assert murmur2(key) & 0x7FFFFFFF == case["to_positive"]
    for count, partition in case["partition"].items():
        assert partition_for_key(key, int(count)) == partition
