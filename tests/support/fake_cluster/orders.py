"""What a test wants for the next requests of an API, kept in the order in which it was said.

A reaction is about how the answer is sent (reactions.py), a change about what stands in it. The first order
that fits a request is taken, and counts down. Guarded by the cluster's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.fake_cluster.reactions import Hold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.protocol.api_keys import ApiKey
    from tests.support.fake_cluster.reactions import Reaction
    from tests.support.fake_cluster.requests import Response


@dataclass(slots=True)
class Order:
    """A reaction or a change, for so many requests of an API, to one broker or to any."""

    api: ApiKey
    broker_id: int | None
    times_left: int
    reaction: Reaction | None = None
    change: Callable[[Any], Response] | None = None

    def take(self, api: ApiKey, broker_id: int) -> bool:
        """Whether the order is for this request; counts it down if so."""
        is_meant = self.api is api and self.broker_id in {None, broker_id} and self.times_left > 0
        self.times_left -= is_meant
        return is_meant


class Orders:
    """The orders that a test has given."""

    def __init__(self) -> None:
        self._orders: list[Order] = []

    def add(self, order: Order) -> None:
        self._orders.append(order)

    def forget_spent(self) -> None:
        """Drops the orders that no request is left for."""
        self._orders = [order for order in self._orders if order.times_left > 0]

    def reaction(self, api: ApiKey, broker_id: int) -> Reaction | None:
        """How to send the answer to this request; None where nobody has said."""
        for order in self._orders:
            if order.reaction is not None and order.take(api, broker_id):
                return order.reaction
        return None

    def changed(self, api: ApiKey, broker_id: int, response: Response) -> Response:
        """The answer as the test wants it."""
        for order in self._orders:
            if order.change is not None and order.take(api, broker_id):
                return order.change(response)
        return response

    def holds(self) -> Sequence[Hold]:
        """Every Hold that was ordered, to be let go at the end."""
        return [order.reaction for order in self._orders if isinstance(order.reaction, Hold)]
