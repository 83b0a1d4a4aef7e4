"""Replays what Java's InFlightRequests did, operation by operation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.adapters import in_order
from tests.golden.adapters_client import TracedInFlightRequests

#: What a step asks for; the rest of it is what Java answered.
_ASKED = {"op", "node", "now", "ms", "correlation_id", "request_timeout_ms", "send_time_ms"}


@pytest.mark.golden("traces/in_flight_requests.json")
def test_every_operation_leaves_what_it_left_in_java(case: dict[str, Any]) -> None:
    traced = TracedInFlightRequests(case)
    for number, step in enumerate(case["steps"]):
        answered = {name: value for name, value in step.items() if name not in _ASKED}
        assert in_order(traced.do(step)) == in_order(answered), f"step {number}: {step['op']}"
