"""Thirty sidecars of this machine and three real brokers: what a fault of all brokers leaves behind.

    python -m tests.operations.real_fleet --sidecars 30

Each sidecar produces a record a second. The faults, one after the other: one broker answers two seconds
late; connections carry little more than that second's record, for three times the callers, who repeat what
failed, with and without regard to Retry-After; all brokers are killed and restarted. Proxies delay and limit.

A line for each part of the run says what came to each broker a second, from all sidecars together. From ten
seconds after a fault's end, connections must be made, and metadata be asked for, at most twice as often as
before, and every record must be acknowledged. Ends with 1 where that is not so. The figures depend on the
machine: it runs 30 processes and Kafka.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx

from client_core.testing.free_ports import free_ports
from tests.support.faulty_proxy import FaultyProxy
from tests.support.java import find_java
from tests.support.kafka_jars import ensure_jars
from tests.support.kraft import KraftCluster
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOPIC: Final = "fleet"
_CONNECTIONS: Final = "pilotfish_broker_connections_total"
_BROKERS: Final = (1, 2, 3)
_BEFORE_S: Final = 30.0
_FAULT_S: Final = 20.0
_BACK_S: Final = 10.0
_AFTER_S: Final = 30.0
_LATE_MS: Final = 2_000
#: Of each connection and direction: a record of 1 kB a second over three brokers needs 370.
_SLOW_BYTES_PER_S: Final = 400
_VALUE: Final = "x" * 1_000
_TRIES: Final = 10
_MOST_CALLERS: Final = 3
#: metadata.max.age.ms: how often a sidecar refreshes when nothing happens.
_MAX_AGE_S: Final = 300


class Counts(NamedTuple):
    """What all sidecars and callers together have done since they started."""

    at_s: float
    connections: tuple[float, ...]
    metadata: float
    good: int
    bad: int


class Rates(NamedTuple):
    """The same a second, between two moments; connections by broker."""

    connections: tuple[float, ...]
    metadata: float
    good: float
    bad: float

    def __str__(self) -> str:
        made = " ".join(f"{rate:5.2f}" for rate in self.connections)
        return (
            f"connections/s by broker {made}  Metadata/s {self.metadata:5.2f}  "
            f"acknowledged/s {self.good:5.1f}  failed/s {self.bad:4.1f}"
        )


class Load:
    """Callers of all sidecars, each with a thread. A record that failed is repeated a few times."""

    def __init__(self, sidecars: Sequence[Sidecar]) -> None:
        self.good = 0
        self.bad = 0
        #: How many callers of each sidecar produce a record a second; the others wait.
        self.callers = 1
        self.honours_retry_after = True
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(sidecar, number), daemon=True)
            for sidecar in sidecars
            for number in range(_MOST_CALLERS)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, sidecar: Sidecar, number: int) -> None:
        pauses = random.Random(number)
        while not self._stop.wait(pauses.uniform(0.5, 1.5)):
            if number < self.callers:
                self._produce(sidecar)

    def _produce(self, sidecar: Sidecar) -> None:
        for _ in range(_TRIES):
            try:
                answer = sidecar.produce(_TOPIC, [{"value": _VALUE}], timeout_ms=10_000)
            except httpx.HTTPError:
                self.bad += 1
                return
            if answer.is_success:
                self.good += 1
                return
            self.bad += 1
            wait_s = float(answer.headers.get("retry-after", 1)) if self.honours_retry_after else 0.1
            if answer.status_code not in (429, 503, 504) or self._stop.wait(wait_s):
                return

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


class RealFleet:
    """The sidecars, their load and the brokers. One thread."""

    def __init__(self, sidecars: Sequence[Sidecar], load: Load) -> None:
        self._sidecars = sidecars
        self._load = load
        self._usual: Rates | None = None
        self.faults: list[str] = []

    def watch(self, what: str, seconds: float) -> Rates:
        """Prints and returns the rates of some seconds."""
        began = self._counts()
        time.sleep(seconds)
        rates = _between(began, self._counts())
        print(f"{what:>34}: {rates}", flush=True)
        return rates

    def begin(self) -> None:
        """Sees what is usual."""
        self._usual = self.watch("before", _BEFORE_S)

    def fault(self, what: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Plays a fault, and judges what comes after it."""
        usual = self._usual
        assert usual is not None
        began = self._counts()
        begin()
        time.sleep(_FAULT_S)
        end()
        print(f"{what:>34}: {_between(began, self._counts())}", flush=True)
        self.watch("the next ten seconds", _BACK_S)
        after = self.watch("then", _AFTER_S)
        for broker, rate in zip(_BROKERS, after.connections, strict=True):
            if rate > _most(usual.connections[broker - 1]):
                self.faults.append(f"after {what}: {rate:.2f} connections a second to broker {broker}")
        if after.metadata > _most(max(usual.metadata, len(self._sidecars) / _MAX_AGE_S)):
            self.faults.append(f"after {what}: {after.metadata:.2f} Metadata requests a second")
        if after.bad or after.good < 0.9 * usual.good:
            found = f"{after.good:.1f} acknowledged and {after.bad:.1f} failed a second"
            self.faults.append(f"after {what}: {found}")

    def _counts(self) -> Counts:
        connections, metadata = [0.0] * len(_BROKERS), 0.0
        for sidecar in self._sidecars:
            text = sidecar.admin.get("/metrics").text
            for number, broker in enumerate(_BROKERS):
                connections[number] += _value(
                    text, f'pilotfish_broker_connections_total{{broker="{broker}"}}'
                )
            metadata += _value(text, 'pilotfish_request_duration_seconds_count{api="Metadata"}')
        return Counts(time.monotonic(), tuple(connections), metadata, self._load.good, self._load.bad)


def _most(usual: float) -> float:
    """Twice the usual rate a second, and three standard deviations of what comes at random."""
    return 2 * usual + 3 * sqrt(max(usual, 1 / _AFTER_S) / _AFTER_S)


def _value(scrape: str, series: str) -> float:
    found = (line.rpartition(" ")[2] for line in scrape.splitlines() if line.startswith(f"{series} "))
    return float(next(found, "0"))


def _between(began: Counts, now: Counts) -> Rates:
    took_s = now.at_s - began.at_s
    return Rates(
        tuple((b - a) / took_s for a, b in zip(began.connections, now.connections, strict=True)),
        (now.metadata - began.metadata) / took_s,
        (now.good - began.good) / took_s,
        (now.bad - began.bad) / took_s,
    )


def _restart(kafka: KraftCluster) -> None:
    for broker in _BROKERS:
        kafka.restart(broker)


def _play(fleet: RealFleet, load: Load, kafka: KraftCluster, proxies: Sequence[FaultyProxy]) -> None:
    def kill_all() -> None:
        for broker in _BROKERS:
            kafka.kill(broker)

    def overload() -> None:
        load.callers = _MOST_CALLERS
        for proxy in proxies:
            proxy.limit(_SLOW_BYTES_PER_S)

    def relieve() -> None:
        load.callers = 1
        for proxy in proxies:
            proxy.heal()

    fleet.begin()
    fleet.fault("one broker two seconds late", lambda: proxies[0].delay(_LATE_MS), proxies[0].heal)
    fleet.fault("overload", overload, relieve)
    load.honours_retry_after = False
    fleet.fault("overload, no Retry-After", overload, relieve)
    # The last one: afterwards one broker leads all partitions.
    fleet.fault("all brokers restarted", kill_all, lambda: _restart(kafka))


def main() -> int:
    """Runs the fleet; returns 1 if it did not recover by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sidecars", type=int, default=30)
    given = parser.parse_args()
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="pilotfish-fleet-")))
        ports = dict(zip(_BROKERS, free_ports(len(_BROKERS)), strict=True))
        kafka = KraftCluster(find_java().path, ensure_jars(), folder / "kafka", proxied_ports=ports)
        running.enter_context(kafka)
        kafka.admin.create_topic(_TOPIC, partitions=6, replication_factor=3)
        proxies = [
            running.enter_context(FaultyProxy(kafka.proxied_target(broker), port=port))
            for broker, port in ports.items()
        ]
        servers = ",".join(proxy.bootstrap_servers for proxy in proxies)

        def start(number: int) -> Sidecar:
            own = folder / str(number)
            own.mkdir()
            return running.enter_context(Sidecar(own, bootstrap_servers=servers))

        with ThreadPoolExecutor(4) as starting:
            sidecars = list(starting.map(start, range(given.sidecars)))
        print(f"{len(sidecars)} sidecars have started", flush=True)
        load = Load(sidecars)
        time.sleep(_BACK_S)
        fleet = RealFleet(sidecars, load)
        _play(fleet, load, kafka, proxies)
        load.stop()
    for fault in fleet.faults:
        print(f"NOT RECOVERED: {fault}", flush=True)
    return 1 if fleet.faults else 0


if __name__ == "__main__":
    sys.exit(main())
