"""Documents of advice for tests: a valid entry, and changes by a test."""

from __future__ import annotations

import json
from typing import Any, Final

#: A little before the wall time of a MockClock: 2023-11-14T22:13:20Z.
COMPUTED_AT: Final = "2023-11-14T22:00:00Z"
HOUR_MS: Final = 3_600_000


def entry(**changed: Any) -> dict[str, Any]:
    """Advice for `billing` on the cluster that fake producers and brokers name."""
    right = {
        "cluster_id": "cluster",
        "service": "billing",
        "warm_topics": ["orders", "refunds"],
        "refresh_max_age_ms": 60_000,
        "computed_at": COMPUTED_AT,
        "ttl_ms": 24 * HOUR_MS,
        "evidence": {"boots": 3},
    }
    return {**right, **changed}


def document(*entries: object, **changed: Any) -> bytes:
    """A document that holds these, or one right entry."""
    return json.dumps({"version": 1, "advice": list(entries) or [entry()], **changed}).encode()
