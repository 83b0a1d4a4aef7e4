"""Lines of event v1 for tests: one good event of each type, and that with other values."""

from __future__ import annotations

import json
from typing import Any, Final

from pipeline import event_v1

_COMMON: Final[dict[str, Any]] = {
    "cluster_id": "kUv2tEaCQmCl1r2gJ1dBcA",
    "sidecar_id": "checkout-7d9f",
    "service": "checkout",
    "boot_id": 7_340_000_000_000_000_001,
    "seq": 42,
    "observed_at": "2026-11-21T10:00:00.123000Z",
}

_OF_TYPE: Final[dict[str, dict[str, Any]]] = {
    event_v1.PARTITION: {
        "topic": "orders",
        "topic_id": "0Rz4cQvtR6S9xkPlY0Zz1w",
        "partition": 3,
        "leader": 2,
        "leader_epoch": 17,
        "isr": [2, 3],
        "replicas": [2, 3, 1],
        "offline": [],
        "metadata_version": 12,
        "broker": 1,
        "reason": "interval",
    },
    event_v1.TOPIC: {
        "topic": "orders",
        "topic_id": None,
        "change": "gone",
        "partitions": None,
        "metadata_version": 13,
    },
    event_v1.REFRESH: {
        "duration_us": 1_800,
        "broker": 1,
        "topics": 4,
        "partitions": 48,
        "changed": 0,
        "reason": "interval",
        "outcome": "ok",
        "metadata_version": 13,
    },
    event_v1.WINDOW: {
        "topic": "orders",
        "partition": 3,
        "broker": 2,
        "started_at": "2026-11-21T09:59:50.000000Z",
        "records": 1_000,
        "batches": 12,
        "bytes": 2**40,
        "retries": 1,
        "errors": {"NOT_LEADER_OR_FOLLOWER": 3},
        "latency_us": {"40": 900, "41": 100},
    },
    event_v1.CONNECTION: {"broker": 2, "state": "ready", "reason": None},
    event_v1.HEARTBEAT: {
        "uptime_ms": 60_000,
        "dropped": 0,
        "topics": 4,
        "partitions": 48,
        "metadata_max_age_ms": 300_000,
        "version": "0.1.0",
    },
}


def good(kind: str) -> dict[str, Any]:
    """The members of an event of that type, every one of them there, in the order of event v1."""
    return {"v": event_v1.VERSION, "type": kind, **_COMMON, **_OF_TYPE[kind]}


def line(kind: str = event_v1.PARTITION, /, *, without: str = "", **members: Any) -> str:
    """The event with these members instead, and without one, as a sidecar writes it."""
    event = good(kind) | members
    event.pop(without, None)
    return json.dumps(event, separators=(",", ":"))
