"""The node to ask when any will do: decided from what is known, without doing anything about it.

`NetworkClient.least_loaded_node` calls it with the nodes of the snapshot in an order that begins at random,
so that clients spread over the brokers. I/O thread only. Source: NetworkClient.leastLoadedNode, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.client.kafka_client import LeastLoadedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from client_core.client.connection_states import ClusterConnectionStates
    from client_core.client.in_flight_requests import InFlightRequests
    from client_core.cluster import Node


def choose_least_loaded(
    nodes: Iterable[Node],
    now_ms: int,
    states: ClusterConnectionStates,
    in_flight: InFlightRequests,
    is_channel_ready: Callable[[int], bool],
    slowly_resolving: Container[int],
) -> LeastLoadedNode:
    """The node to ask, if any, and whether any connection is ready.

    Ready with nothing in flight, at once; else ready with the fewest in flight; else one that is being
    prepared; else the one that may be connected to and was tried longest ago (NET-20). Never one that is
    throttled, or in its backoff (NET-21).

    The nodes in `slowly_resolving` come last: a resolver may hang, and the other nodes need not wait for it.
    In Java the look-up blocks the whole client.

    A connection is ready, too, while its broker wants a pause: such a cluster is there, and is no reason to
    begin again with bootstrap.servers (UPD-11). Java has it otherwise, and drops all that it knows.
    """
    fewest: int | None = None
    ready: Node | None = None
    preparing: Node | None = None
    connectable: Node | None = None
    unresolved: Node | None = None
    tried_ms: int | None = None
    any_ready = False
    for node in nodes:
        if states.is_up(node.id) and is_channel_ready(node.id):
            any_ready = True  # be it throttled, or too busy to be sent more
            if states.is_ready(node.id, now_ms) and in_flight.can_send_more(node.id):
                count = in_flight.count(node.id)
                if count == 0:
                    return LeastLoadedNode(node, True)
                if fewest is None or count < fewest:
                    fewest, ready = count, node
        elif states.is_preparing_connection(node.id):
            if node.id in slowly_resolving:
                unresolved = node
            else:
                preparing = node
        elif states.can_connect(node.id, now_ms):
            last_ms = states.last_connect_attempt_ms(node.id)
            if connectable is None or (tried_ms is not None and (last_ms is None or last_ms < tried_ms)):
                connectable, tried_ms = node, last_ms
    chosen = ready or preparing or connectable or unresolved
    return LeastLoadedNode(chosen, any_ready or chosen is not None)
