"""Replays what Java's classes did, operation by operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

from tests.golden.adapters import in_order
from tests.golden.adapters_client import TracedConnectionStates, TracedInFlightRequests
from tests.golden.adapters_metadata import TracedProducerMetadata
from tests.golden.adapters_producer import TracedAccumulator

if TYPE_CHECKING:
    from collections.abc import Collection

#: The input fields of a step of each trace; the others are Java's results.
_ASKED_OF_METADATA: Final = {"op", "args"}
_ASKED_OF_CONNECTIONS: Final = {"op", "node", "now", "host", "until", "ms"}
_ASKED_OF_REQUESTS: Final = {
    "op",
    "node",
    "now",
    "ms",
    "correlation_id",
    "request_timeout_ms",
    "send_time_ms",
}
_ASKED_OF_ACCUMULATOR: Final = {
    *("op", "partition", "timestamp", "key_len", "value_len", "max_time_to_block_ms", "max_size", "ms"),
    *("batch", "leader", "epoch", "partitions_for_node_order"),
}


class _Traced(Protocol):
    def do(self, step: dict[str, Any], /) -> Any: ...


def _replay(case: dict[str, Any], traced: _Traced, asked: Collection[str]) -> None:
    for number, step in enumerate(case["steps"]):
        answered = {name: value for name, value in step.items() if name not in asked}
        assert in_order(traced.do(step)) == in_order(answered), f"step {number}: {step['op']}"


@pytest.mark.parametrize("reuses", [True, False], ids=["reusing", "reading anew"])
@pytest.mark.golden("traces/producer_metadata.json")
def test_every_operation_on_producer_metadata_leaves_what_it_left_in_java(
    case: dict[str, Any], reuses: bool
) -> None:
    _replay(case, TracedProducerMetadata(case, reuses=reuses), _ASKED_OF_METADATA)


@pytest.mark.golden("traces/cluster_connection_states.json")
def test_every_operation_on_connection_states_leaves_what_it_left_in_java(case: dict[str, Any]) -> None:
    _replay(case, TracedConnectionStates(case), _ASKED_OF_CONNECTIONS)


@pytest.mark.golden("traces/in_flight_requests.json")
def test_every_operation_on_in_flight_requests_leaves_what_it_left_in_java(case: dict[str, Any]) -> None:
    _replay(case, TracedInFlightRequests(case), _ASKED_OF_REQUESTS)


@pytest.mark.golden("traces/record_accumulator.json")
def test_every_operation_on_the_accumulator_leaves_what_it_left_in_java(case: dict[str, Any]) -> None:
    _replay(case, TracedAccumulator(case), _ASKED_OF_ACCUMULATOR)
