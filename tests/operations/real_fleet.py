"""Thirty sidecars of this machine, and three real brokers that are restarted: what comes to the brokers.

    python -m tests.operations.real_fleet --sidecars 30

Each sidecar produces a record a second. Every few seconds a line says how many connections and Metadata
requests a second all sidecars together made, and how many records a second were acknowledged or failed. The
figures depend on the machine: it has to run 30 processes and Kafka.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx

from benchmarks.brokers import TOPIC, three_brokers
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kraft import KraftCluster

_EVERY_S: Final = 5.0
_BEFORE_S: Final = 20
_AFTER_S: Final = 40


class Counts(NamedTuple):
    """What all sidecars together have done since they started."""

    connections: float
    metadata: float


def counts_of(sidecars: list[Sidecar]) -> Counts:
    """Returns the sums of the sidecars' own counters."""
    connections = metadata = 0.0
    for sidecar in sidecars:
        connections += sidecar.metric("pilotfish_broker_connections_total") or 0.0
        metadata += sidecar.metric("pilotfish_request_duration_seconds_count", api="Metadata") or 0.0
    return Counts(connections, metadata)


class Load:
    """A record a second for each sidecar."""

    def __init__(self, sidecars: list[Sidecar]) -> None:
        self.good = 0
        self.bad = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(one,), daemon=True) for one in sidecars]
        for thread in self._threads:
            thread.start()

    def _work(self, sidecar: Sidecar) -> None:
        while not self._stop.wait(1.0):
            try:
                answer = sidecar.produce(TOPIC, [{"value": "x" * 100}], timeout_ms=10_000)
            except httpx.HTTPError:
                self.bad += 1
                continue
            self.good += answer.is_success
            self.bad += not answer.is_success

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(15)


def _measure(sidecars: list[Sidecar], load: Load, what: str, until: Callable[[], bool]) -> None:
    counted, began_s, good, bad = counts_of(sidecars), time.monotonic(), load.good, load.bad
    while not until():
        time.sleep(_EVERY_S)
        now, now_s = counts_of(sidecars), time.monotonic()
        took_s = now_s - began_s
        made, asked = now.connections - counted.connections, now.metadata - counted.metadata
        print(
            f"{what:>8}  {took_s:4.1f} s  connections/s {made / took_s:6.2f}"
            f"  Metadata/s {asked / took_s:6.2f}"
            f"  acknowledged/s {(load.good - good) / took_s:5.1f}  failed/s {(load.bad - bad) / took_s:5.1f}",
            flush=True,
        )
        counted, began_s, good, bad = now, now_s, load.good, load.bad


def _restart(cluster: KraftCluster) -> None:
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    for broker_id in cluster.broker_ids:
        cluster.restart(broker_id)


def _for(seconds: float) -> Callable[[], bool]:
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() >= end_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sidecars", type=int, default=30)
    given = parser.parse_args()
    with three_brokers() as cluster, ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="pilotfish-fleet-")))

        def start(number: int) -> Sidecar:
            own = folder / str(number)
            own.mkdir()
            return running.enter_context(Sidecar(own, bootstrap_servers=cluster.bootstrap_servers))

        with ThreadPoolExecutor(4) as starting:
            sidecars = list(starting.map(start, range(given.sidecars)))
        print(f"{len(sidecars)} sidecars have started", flush=True)
        load = Load(sidecars)
        time.sleep(_EVERY_S)
        _measure(sidecars, load, "before", _for(_BEFORE_S))
        restarting = threading.Thread(target=_restart, args=(cluster,))
        restarting.start()
        _measure(sidecars, load, "restart", lambda: not restarting.is_alive())
        _measure(sidecars, load, "after", _for(_AFTER_S))
        load.stop()


if __name__ == "__main__":
    main()
