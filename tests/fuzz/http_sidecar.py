"""A sidecar process under hostile HTTP: it answers, it lives, and its memory is released.

    endured = endure(seed=1, until_s=time.monotonic() + 60, folder=...)

The rules for single requests are in http_listener.py and openapi_cases.py; here the process is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import schemathesis

from client_core.testing import FakeCluster
from tests.fuzz.hostile_sidecar import memory_mb
from tests.fuzz.http_listener import (
    KAFKA,
    LIMITS,
    UNKNOWN_TOPIC_WAIT_MS,
    HttpFaultError,
    bodies_hold,
    mutations_hold,
    shapes_hold,
    slow_callers_are_ended,
)
from tests.fuzz.http_prober import Prober
from tests.fuzz.openapi_cases import THERE, TOPIC, ask, follow_links, operations
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Well below the limit of the chart's container, 256 MB. Bodies of 16 MB come one after the other, each with
#: a compacted copy: together they take 130 MB.
MOST_MB: Final = 180
#: How much of that may remain with the allocator.
MOST_GROWN_MB: Final = 70
_SLOW_CALLERS: Final = 60
#: In a row: mutated requests, and cases of each operation.
_MUTATIONS: Final = 500
_CASES: Final = 4
_FLAGS: Final = ("--unknown-topic-wait-ms", str(UNKNOWN_TOPIC_WAIT_MS), "--log-level", "error")


@dataclass(slots=True)
class Endured:
    """How many of each were tried, and the process's memory before, at its peak and after, in MB."""

    shapes: int = 0
    bodies: int = 0
    slow_callers: int = 0
    mutations: int = 0
    cases: int = 0
    memory_mb: tuple[int, int, int] = (0, 0, 0)
    faults: list[str] = field(default_factory=list)
    #: The bytes of mutated requests that were answered as they must not be.
    broke: list[HttpFaultError] = field(default_factory=list)

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Notes what did not hold, and goes on."""
        try:
            yield
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - that is what is looked for
            self._note(error)

    def _note(self, error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                self._note(one)
            return
        self.faults.append(f"{type(error).__name__}: {error}")
        if isinstance(error, HttpFaultError):
            self.broke.append(error)


def endure(seed: int, *, until_s: float, folder: Path) -> Endured:
    """Until that moment of time.monotonic(), but each kind once; what did not hold is in `faults`.

    Ends before where the process ends.
    """
    endured = Endured()
    with FakeCluster(3, seed=seed) as cluster:
        cluster.create_topic(TOPIC, partitions=3, replication_factor=3)
        with Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            kafka=KAFKA,
            flags=(*_FLAGS, "--spool-folder", str(folder / "spool")),
            limits=LIMITS,
        ) as sidecar:
            before_mb = memory_mb(sidecar)
            asyncio.run(_probe(sidecar, endured))
            first = seed * 1_000_000
            while True:
                with endured.noting():
                    _ask(sidecar, endured, first, until_s)
                mutations = range(first, first + _MUTATIONS)
                with endured.noting():
                    asyncio.run(mutations_hold(_prober(sidecar), mutations))
                endured.mutations += len(mutations)
                first += _MUTATIONS
                if time.monotonic() >= until_s or sidecar.process.poll() is not None:
                    break
            with endured.noting():
                assert sidecar.process.poll() is None, f"the process ended: {sidecar.log()}"
                assert sidecar.admin.get("/livez").status_code == 200, sidecar.log()
                endured.memory_mb = (before_mb, _peak_mb(sidecar), memory_mb(sidecar))
                assert endured.memory_mb[1] < MOST_MB, f"{endured.memory_mb} MB"
                assert endured.memory_mb[2] - before_mb < MOST_GROWN_MB, f"{endured.memory_mb} MB"
                assert "Traceback" not in sidecar.log(), sidecar.log()
                assert sidecar.terminate() == 0, sidecar.log()
    return endured


def _prober(sidecar: Sidecar) -> Prober:
    return Prober(("127.0.0.1", sidecar.api_port))


async def _probe(sidecar: Sidecar, endured: Endured) -> None:
    prober = _prober(sidecar)
    with endured.noting():
        endured.shapes = await shapes_hold(prober)
    with endured.noting():
        endured.slow_callers = await slow_callers_are_ended(prober, _SLOW_CALLERS)
    with endured.noting():
        endured.bodies = await bodies_hold(prober)


def _ask(sidecar: Sidecar, endured: Endured, seed: int, until_s: float) -> None:
    """Some cases of each operation, until the time is over."""
    document: Any = schemathesis.openapi.from_url(f"{sidecar.api_url}/openapi.json")
    there = {**THERE, "cluster_id": sidecar.api.get("/v1/cluster").json()["cluster_id"]}
    for operation in operations():
        if time.monotonic() >= until_s:
            return
        with endured.noting():
            endured.cases += ask(document, operation, there, examples=_CASES, seed=seed)
    with endured.noting():
        endured.cases += follow_links(document, there, chains=_CASES, seed=seed).total()


def _peak_mb(sidecar: Sidecar) -> int:
    return memory_mb(sidecar, "VmHWM:")
