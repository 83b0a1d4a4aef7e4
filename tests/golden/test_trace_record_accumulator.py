"""Replays what Java's RecordAccumulator did, operation by operation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.adapters import in_order
from tests.golden.adapters_producer import TracedAccumulator

#: What a step asks for; the rest of it is what Java answered.
_ASKED = {
    "op",
    "partition",
    "timestamp",
    "key_len",
    "value_len",
    "max_time_to_block_ms",
    "max_size",
    "ms",
    "batch",
    "leader",
    "epoch",
    "partitions_for_node_order",
}


@pytest.mark.golden("traces/record_accumulator.json")
def test_every_operation_leaves_what_it_left_in_java(case: dict[str, Any]) -> None:
    traced = TracedAccumulator(case)
    for number, step in enumerate(case["steps"]):
        answered = {name: value for name, value in step.items() if name not in _ASKED}
        assert in_order(traced.do(step)) == in_order(answered), f"step {number}: {step['op']}"
