"""Between Java's traces and `client_core.client`: an operation by its name there, done here; answers as
there.

Java's node ids are texts, its infinite delays -1 in the traces. One class per traced class of Java.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from client_core.client.connection_states import ClusterConnectionStates
from client_core.client.in_flight_requests import InFlightRequest, InFlightRequests
from client_core.client.kafka_client import ClientRequest
from client_core.clock import FOREVER_MS
from client_core.errors import AuthenticationError, IllegalStateError
from client_core.protocol.api_keys import ApiKey
from tests.support.mock_resolver import MockResolver

if TYPE_CHECKING:
    from collections.abc import Callable


class TracedConnectionStates:
    """ClusterConnectionStates as the trace speaks to it."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._infinite: int = case["query_infinite_delay_written_as"]
        self._columns: list[str] = case["query_columns"]
        self._resolver = MockResolver(*case["resolver_returns"])
        self._states = ClusterConnectionStates.from_settings(
            case["reconnect_backoff_ms"],
            case["reconnect_backoff_max_ms"],
            case["connection_setup_timeout_ms"],
            case["connection_setup_timeout_max_ms"],
            self._resolver,
            Random(0),
        )

    def do(self, step: dict[str, Any]) -> dict[str, Any]:
        """Does one step; returns what the trace keeps of it."""
        states, node_id, now_ms = self._states, int(step["node"]), step["now"]
        done: dict[str, Any] = {}
        match step["op"]:
            case "connecting":
                states.connecting(node_id, now_ms, step["host"])
                done["current_address"] = states.current_address(node_id)
            case "checking_api_versions":
                states.checking_api_versions(node_id)
            case "ready":
                states.ready(node_id)
            case "disconnected":
                states.disconnected(node_id, now_ms)
            case "authentication_failed":
                states.authentication_failed(node_id, now_ms, AuthenticationError())
            case "throttle":
                states.throttle(node_id, step["until"])
            case "remove":
                states.remove(node_id)
            case "advance_time":
                now_ms += step["ms"]
            case unknown:
                raise AssertionError(f"unknown operation {unknown}")
        timed_out = states.nodes_with_connection_setup_timeout(now_ms)
        return {
            **done,
            "now_after": now_ms,
            "resolve_calls": len(self._resolver.asked),
            "has_ready_nodes": states.has_ready_nodes(now_ms),
            "nodes_with_connection_setup_timeout": sorted(map(str, timed_out)),
            "query_at_now_after": {
                node: self._query(int(node), now_ms) for node in step["query_at_now_after"]
            },
        }

    def _query(self, node_id: int, now_ms: int) -> list[bool | int]:
        states = self._states
        answers: dict[str, Callable[[], bool | int]] = {
            "can_connect": lambda: states.can_connect(node_id, now_ms),
            "is_blacked_out": lambda: states.is_blacked_out(node_id, now_ms),
            "connection_delay": lambda: self._delay(states.connection_delay_ms(node_id, now_ms)),
            "poll_delay_ms": lambda: self._delay(states.poll_delay_ms(node_id, now_ms)),
            "throttle_delay_ms": lambda: states.throttle_delay_ms(node_id, now_ms),
            "is_connecting": lambda: states.is_connecting(node_id),
            "is_preparing": lambda: states.is_preparing_connection(node_id),
            "is_ready": lambda: states.is_ready(node_id, now_ms),
            "is_connected": lambda: states.is_connected(node_id),
            "is_disconnected": lambda: states.is_disconnected(node_id),
            "has_auth_exception": lambda: states.authentication_error(node_id) is not None,
            # Java answers 0 for a node that was never tried.
            "last_connect_attempt_ms": lambda: states.last_connect_attempt_ms(node_id) or 0,
        }
        return [answers[column]() for column in self._columns]

    def _delay(self, delay_ms: int) -> int:
        return self._infinite if delay_ms == FOREVER_MS else delay_ms


class TracedInFlightRequests:
    """InFlightRequests as the trace speaks to it. Its nodes are 0 and 1."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._requests = InFlightRequests(case["max_in_flight_requests_per_connection"])
        self._by_id: dict[int, InFlightRequest] = {}

    def do(self, step: dict[str, Any]) -> dict[str, Any]:
        """Does one step; returns what the trace keeps of it."""
        try:
            done = self._do(step)
        except IllegalStateError as error:
            done = {"illegal_state": str(error)}
        requests, now_ms = self._requests, step["now"]
        timed_out = requests.nodes_with_timed_out_requests(now_ms)
        kept: dict[str, Any] = {
            **done,
            "count": requests.count(),
            "is_empty": requests.is_empty(),
            "nodes_with_timed_out_requests": sorted(map(str, timed_out)),
        }
        for node_id in (0, 1):
            kept[f"count_{node_id}"] = requests.count(node_id)
            kept[f"can_send_more_{node_id}"] = requests.can_send_more(node_id)
            kept[f"is_empty_{node_id}"] = requests.is_empty(node_id)
        return kept

    def _do(self, step: dict[str, Any]) -> dict[str, Any]:
        requests, node_id = self._requests, int(step.get("node", 0))
        match step["op"]:
            case "add":
                self._add(node_id, step["correlation_id"], step["request_timeout_ms"], step["send_time_ms"])
            case "send_completed":
                self._by_id[step["correlation_id"]].send_completed = True
            case "complete_next":
                return {"result_correlation_id": _id_of(requests.complete_next(node_id))}
            case "complete_last_sent":
                last_sent = _id_of(requests.last_sent(node_id))
                completed = _id_of(requests.complete_last_sent(node_id))
                return {"last_sent": last_sent, "result_correlation_id": completed}
            case "clear_all":
                cleared = requests.clear_all(node_id)
                return {"result_correlation_ids_in_order": [_id_of(request) for request in cleared]}
            case "increment_throttle_time":
                requests.increment_throttle_ms(node_id, step["ms"])
            case "advance_time":
                pass  # the step's own `now` is the time thereafter
            case unknown:
                raise AssertionError(f"unknown operation {unknown}")
        return {}

    def _add(self, node_id: int, correlation_id: int, request_timeout_ms: int, sent_ms: int) -> None:
        request = ClientRequest(node_id, _NoBuilder(), correlation_id, sent_ms, True, request_timeout_ms)
        in_flight = InFlightRequest(request, version=0, is_internal=False, sent_ms=sent_ms, sent_bytes=0)
        self._by_id[correlation_id] = in_flight
        self._requests.add(in_flight)


class _NoBuilder:
    """A request that is never encoded."""

    api = ApiKey.PRODUCE
    oldest_allowed_version = 0
    latest_allowed_version = 0

    def encode(self, version: int) -> bytes:
        raise AssertionError("never sent")

    def decode_response(self, body: bytes, version: int) -> object:
        raise AssertionError("never answered")


def _id_of(request: InFlightRequest) -> int:
    return request.request.correlation_id
