"""A sidecar of its own process under hostile HTTP: it answers, it lives, and its memory comes back.

    endured = endure(seed=1, mutations=10_000, cases=50, folder=...)

What is held to, shape by shape, is in http_listener.py and openapi_cases.py; here it is the process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import schemathesis

from tests.fuzz.hostile_sidecar import memory_mb
from tests.fuzz.http_listener import (
    KAFKA,
    SETTINGS,
    bodies_hold,
    mutations_hold,
    shapes_hold,
    slow_callers_are_ended,
)
from tests.fuzz.http_prober import Prober
from tests.fuzz.openapi_cases import TOPIC, ask, operations
from tests.support.fake_cluster import FakeCluster
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from pathlib import Path

#: The limit of the chart's container. Bodies are of 16 MB, one after the other, and compacted beside
#: themselves: 140 MB is what they come to.
MOST_MB: Final = 256
#: What may stay of all that: the allocator's, not ours.
MOST_GROWN_MB: Final = 120
_SLOW_CALLERS: Final = 60
_FLAGS: Final = tuple(
    word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))
)


@dataclass(slots=True)
class Endured:
    """How many of each were tried, and the process's memory before, at its peak and after, in MB."""

    shapes: int = 0
    bodies: int = 0
    slow_callers: int = 0
    mutations: int = 0
    cases: int = 0
    memory_mb: tuple[int, int, int] = (0, 0, 0)


def endure(seed: int, *, mutations: int, cases: int, folder: Path) -> Endured:
    """AssertionError for what did not hold; `cases` are schemathesis's for each operation."""
    endured = Endured()
    with FakeCluster(3, seed=seed) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        with Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            kafka=KAFKA,
            flags=(*_FLAGS, "--log-level", "error"),
        ) as sidecar:
            before_mb = memory_mb(sidecar)
            asyncio.run(_probe(sidecar, endured, range(seed * 1_000_000, seed * 1_000_000 + mutations)))
            endured.cases = _ask(sidecar, cases, seed)
            assert sidecar.admin.get("/livez").status_code == 200, sidecar.log()
            endured.memory_mb = (before_mb, _peak_mb(sidecar), memory_mb(sidecar))
            assert endured.memory_mb[1] < MOST_MB, endured
            assert endured.memory_mb[2] - before_mb < MOST_GROWN_MB, endured
            assert "Traceback" not in sidecar.log(), sidecar.log()
            assert sidecar.terminate() == 0, sidecar.log()
    return endured


async def _probe(sidecar: Sidecar, endured: Endured, seeds: range) -> None:
    prober = Prober(("127.0.0.1", sidecar.api_port))
    endured.shapes = await shapes_hold(prober)
    endured.slow_callers = await slow_callers_are_ended(prober, _SLOW_CALLERS)
    endured.bodies = await bodies_hold(prober)
    await mutations_hold(prober, seeds)
    endured.mutations = len(seeds)


def _ask(sidecar: Sidecar, cases: int, seed: int) -> int:
    document: Any = schemathesis.openapi.from_url(f"{sidecar.api_url}/openapi.json")
    there = {"topic": TOPIC, "cluster_id": sidecar.api.get("/v1/cluster").json()["cluster_id"]}
    return sum(ask(document, operation, there, examples=cases, seed=seed) for operation in operations())


def _peak_mb(sidecar: Sidecar) -> int:
    return memory_mb(sidecar, "VmHWM:")
