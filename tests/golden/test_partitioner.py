"""Java's murmur2 and BuiltInPartitioner: the partition of each key, load and random number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client_core.producer.accumulator.partitioner import (
    BuiltInPartitioner,
    PartitionLoad,
    murmur2,
    partition_for_key,
)
from tests.golden.adapters_producer import GivenRandom, cluster_of

if TYPE_CHECKING:
    from tests.golden.conftest import Cases

#: The topic that the trace's note describes: partition 2 has no leader.
_UNIFORM = (0, 0, None, 0)


def _load(case: dict[str, Any]) -> PartitionLoad:
    sizes = dict(zip(case["partition_ids"], case["queue_sizes"], strict=True))
    return PartitionLoad(sizes, case["partition_ids"][: case["length"]], len(case["queue_sizes"]))


@pytest.mark.golden("traces/adaptive_partitioner.json")
def test_the_frequencies_end_where_javas_do(cases: Cases) -> None:
    for case in cases:
        frequencies = _load(case).cumulative_frequencies()
        assert bool(frequencies) == case["adaptive"]
        assert (frequencies[-1] if frequencies else 0) == case["range_end"]


@pytest.mark.golden("traces/adaptive_partitioner.json")
def test_each_random_number_chooses_javas_partition(cases: Cases) -> None:
    for case in cases:
        random = GivenRandom()
        partitioner = BuiltInPartitioner("t", 1, random)
        partitioner.load = _load(case)
        cluster = cluster_of(_UNIFORM)
        chosen = []
        for number, _ in case["random_value_then_partition"]:
            random.number = number
            partitioner.update(2, cluster, enable_switch=True)
            chosen.append([number, partitioner.current_partition(cluster)])
        assert chosen == case["random_value_then_partition"]


@pytest.mark.golden("traces/sticky_partitioner.json")
def test_the_sticky_partition_changes_when_javas_does(cases: Cases) -> None:
    for case in cases:
        random = GivenRandom()
        cluster = cluster_of([0] * case["partitions"])
        partitioner = BuiltInPartitioner("t", case["sticky_batch_size"], random)
        assert partitioner.current_partition(cluster) == 0
        for number, step in enumerate(case["steps"]):
            random.number = step["random"]
            partitioner.update(step["appended_bytes"], cluster, enable_switch=step["enable_switch"])
            assert partitioner.current_partition(cluster) == step["partition_after"], f"step {number}"


@pytest.mark.golden("murmur2_partitions.json")
def test_a_keys_hash_and_partition_are_javas(cases: Cases) -> None:
    for case in cases:
        key = bytes.fromhex(case["key"])
        assert murmur2(key) == case["murmur2_signed"] & 0xFFFFFFFF
        assert murmur2(key) & 0x7FFFFFFF == case["to_positive"]
        for count, partition in case["partition"].items():
            assert partition_for_key(key, int(count)) == partition
