"""A service that writes orders to Kafka, as small as it can be. test_orders.py shows how it is tested."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from client_core import KafkaError, ProducerRecord

if TYPE_CHECKING:
    from client_core import KafkaProducer

TOPIC = "orders"


class NotPlacedError(Exception):
    """The order is not in Kafka. The text says why."""


class Orders:
    """Places orders. One producer serves all threads."""

    def __init__(self, producer: KafkaProducer, timeout_s: float = 10.0) -> None:
        self._producer = producer
        self._timeout_s = timeout_s

    def place(self, customer: str, order: dict[str, Any]) -> int:
        """Write an order and return its offset, when all in-sync replicas have it. Raises NotPlacedError."""
        record = ProducerRecord(TOPIC, key=customer.encode(), value=json.dumps(order).encode())
        try:
            return self._producer.send(record).result(self._timeout_s).offset
        except (KafkaError, TimeoutError) as error:
            raise NotPlacedError(f"{customer}: {error}") from error
