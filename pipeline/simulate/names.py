"""Names and ids of what is simulated: as they look in a real fleet, the same for a seed."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

_TOPICS: Final = (
    *("orders", "payments", "shipments", "invoices", "customers", "clicks"),
    *("sessions", "stock-levels", "audit", "returns", "prices", "carts"),
)
_SERVICES: Final = (
    *("checkout", "billing", "search", "inventory"),
    *("fraud-check", "newsletter", "shipping", "recommendations"),
)


def kafka_uuid(source: random.Random) -> str:
    """A cluster's or a topic's id: 16 bytes in 22 characters of URL-safe base64, as Kafka writes them."""
    return base64.urlsafe_b64encode(source.randbytes(16)).decode().rstrip("=")


def topics(count: int) -> list[str]:
    """So many names of topics."""
    return [*_TOPICS[:count], *(f"topic-{n:03d}" for n in range(len(_TOPICS) + 1, count + 1))]


def services(count: int) -> list[str]:
    """So many names of services."""
    return [*_SERVICES[:count], *(f"service-{n:02d}" for n in range(len(_SERVICES) + 1, count + 1))]
