"""Replays what Java's ProducerMetadata did, operation by operation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.adapters import in_order
from tests.golden.adapters_metadata import TracedProducerMetadata

#: What a step asks for; the rest of it is what Java answered.
_ASKED = {"op", "args"}


@pytest.mark.parametrize("reuses", [True, False], ids=["reusing", "reading anew"])
@pytest.mark.golden("traces/producer_metadata.json")
def test_every_operation_leaves_what_it_left_in_java(case: dict[str, Any], reuses: bool) -> None:
    traced = TracedProducerMetadata(case, reuses=reuses)
    for number, step in enumerate(case["steps"]):
        answered = {name: value for name, value in step.items() if name not in _ASKED}
        assert in_order(traced.do(step)) == in_order(answered), f"step {number}: {step['op']}"
