"""A frozen snapshot of every connection, for readers on other threads.

The I/O thread swaps in a new tuple of ConnectionFacts when a state changes, not for each request. Ages and
remaining waits are computed at the reader's time. The producer turns ConnectionStatus into NodeStatus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from client_core.errors import Cause

if TYPE_CHECKING:
    from client_core.client.in_flight_requests import InFlightLoad
    from client_core.client.node_connection_state import (
        ConnectionFailures,
        ConnectionState,
        NodeConnectionState,
    )


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """One connection at one moment."""

    node_id: int
    host: str
    port: int
    state: ConnectionState
    in_flight_requests: int
    oldest_in_flight_age_ms: int | None
    backoff_left_ms: int
    throttle_left_ms: int
    last_error: str | None
    last_error_age_ms: int | None
    #: Why there is no connection; None while it works, while it is first set up, or when it was idle.
    cause: Cause | None = None
    #: For how long the present attempt to connect has lasted; None if there is none.
    connecting_age_ms: int | None = None


class ConnectionFacts(NamedTuple):
    """The facts of a connection that change only with its state, as points in time."""

    node_id: int
    host: str
    port: int
    state: ConnectionState
    retry_ms: int | None
    throttle_until_ms: int | None
    last_error: str | None
    last_error_ms: int | None
    failures: ConnectionFailures | None
    connecting_since_ms: int | None

    @staticmethod
    def of(node: NodeConnectionState) -> ConnectionFacts:
        retry_ms = node.last_connect_attempt_ms + node.reconnect_backoff_ms if node.is_disconnected else None
        return ConnectionFacts(
            node_id=node.node_id,
            host=node.host,
            port=node.port,
            state=node.state,
            retry_ms=retry_ms,
            throttle_until_ms=node.throttle_until_ms,
            last_error=node.last_error,
            last_error_ms=node.last_error_ms,
            failures=node.failures,
            connecting_since_ms=node.last_connect_attempt_ms if node.is_preparing else None,
        )

    def at(self, now_ms: int, load: InFlightLoad) -> ConnectionStatus:
        """Converts them to ages and waits at `now_ms`. Any thread."""
        return ConnectionStatus(
            node_id=self.node_id,
            host=self.host,
            port=self.port,
            state=self.state,
            in_flight_requests=load.requests,
            oldest_in_flight_age_ms=_since(load.oldest_sent_ms, now_ms),
            backoff_left_ms=_until(self.retry_ms, now_ms),
            throttle_left_ms=_until(self.throttle_until_ms, now_ms),
            last_error=self.last_error,
            last_error_age_ms=_since(self.last_error_ms, now_ms),
            cause=self.cause(now_ms),
            connecting_age_ms=_since(self.connecting_since_ms, now_ms),
        )

    def cause(self, now_ms: int) -> Cause | None:
        """Returns why there is no connection, with its age at `now_ms`; None if no attempt has failed."""
        failures = self.failures
        if failures is None:
            return None
        node_id = self.node_id if self.node_id >= 0 else None
        since_ms = max(now_ms - failures.since_ms, 0)
        return Cause(failures.error, node_id, failures.attempts, since_ms, failures.detail, failures.reason)


def _since(then_ms: int | None, now_ms: int) -> int | None:
    return None if then_ms is None else max(now_ms - then_ms, 0)


def _until(then_ms: int | None, now_ms: int) -> int:
    return 0 if then_ms is None else max(then_ms - now_ms, 0)
