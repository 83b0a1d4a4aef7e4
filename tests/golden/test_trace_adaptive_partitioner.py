"""Which partition Java's BuiltInPartitioner chooses for each random number, given the queues' lengths."""

from __future__ import annotations

from typing import Any

import pytest

from client_core.producer.accumulator.partitioner import BuiltInPartitioner, PartitionLoad
from tests.golden.adapters_producer import GivenRandom, cluster_of

#: The topic that the trace's note describes: partition 2 has no leader.
_UNIFORM = (0, 0, None, 0)


def _load(case: dict[str, Any]) -> PartitionLoad:
    sizes = dict(zip(case["partition_ids"], case["queue_sizes"], strict=True))
    return PartitionLoad(sizes, case["partition_ids"][: case["length"]], len(case["queue_sizes"]))


@pytest.mark.golden("traces/adaptive_partitioner.json")
def test_the_frequencies_end_where_javas_do(case: dict[str, Any]) -> None:
    frequencies = _load(case).cumulative_frequencies()
    assert bool(frequencies) == case["adaptive"]
    assert (frequencies[-1] if frequencies else 0) == case["range_end"]


@pytest.mark.golden("traces/adaptive_partitioner.json")
def test_each_random_number_chooses_javas_partition(case: dict[str, Any]) -> None:
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
