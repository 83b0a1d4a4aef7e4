"""Replays when Java's BuiltInPartitioner left its sticky partition, and for which one."""

from __future__ import annotations

from typing import Any

import pytest

from client_core.producer.accumulator.partitioner import BuiltInPartitioner
from tests.golden.adapters_producer import GivenRandom, cluster_of


@pytest.mark.golden("traces/sticky_partitioner.json")
def test_the_sticky_partition_changes_when_javas_does(case: dict[str, Any]) -> None:
    random = GivenRandom()
    cluster = cluster_of([0] * case["partitions"])
    partitioner = BuiltInPartitioner("t", case["sticky_batch_size"], random)
    assert partitioner.current_partition(cluster) == 0
    for number, step in enumerate(case["steps"]):
        random.number = step["random"]
        partitioner.update(step["appended_bytes"], cluster, enable_switch=step["enable_switch"])
        assert partitioner.current_partition(cluster) == step["partition_after"], f"step {number}"
