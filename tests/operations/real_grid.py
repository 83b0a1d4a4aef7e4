"""The delivered rules on real Prometheus servers, unchanged, in real time: twenty minutes.

    python -m tests.operations.real_grid

Sidecars with short, default and long settings, busy and idle ones, are scraped every 15, 30 and 60 s, by a
server for each interval. For twelve minutes all is well: no alert may fire. Then every broker is gone for
four minutes, and back. Critical alerts must end within a minute of the first scrape after that, and none may
fire again. Prints what fired and when it ended; ends with 1 where that is not so. test_alert_grid.py does the
same in simulated time, with promtool.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from client_core.testing import FakeCluster
from tests.deploy.test_rules_on_prometheus import RULES, SETTINGS, target
from tests.support.prometheus import Prometheus
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOPIC: Final = "orders"
_INTERVALS_S: Final = (15, 30, 60)
_HEALTHY_S: Final = 720
_AWAY_S: Final = 240
_AFTER_S: Final = 240
_LOOK_S: Final = 5
#: A reconnect, the evaluation, and our own look.
_ENDS_WITHIN_S: Final = 60
_BUSY: Final = "busy"

#: An alert's name, severity and sidecar.
Fired = tuple[str, str, str]


class Grid:
    """What fires on each server, by its scrape interval, and for how long."""

    def __init__(self, servers: Mapping[int, Prometheus], names: Mapping[str, str]) -> None:
        """`names` of sidecars are by Prometheus' label `instance`."""
        self._servers = servers
        self._names = names
        self.faults: list[str] = []
        #: When each one was last seen to fire, in seconds of the present watch, and how often it began.
        self.last_s: dict[tuple[int, Fired], float] = {}
        self.begun: dict[tuple[int, Fired], int] = {}
        self._now: dict[int, set[Fired]] = {interval_s: set() for interval_s in servers}

    def watch(self, seconds: float, *, is_healthy: bool = False) -> None:
        """Looks for so long. While all is healthy, each alert that fires is a fault."""
        began_s = time.monotonic()
        while (at_s := time.monotonic() - began_s) < seconds:
            for interval_s, server in self._servers.items():
                now = {(name, severity, self._names[at]) for name, severity, at in server.firing_where()}
                for one in now:
                    self.last_s[interval_s, one] = at_s
                for one in now - self._now[interval_s]:
                    self.begun[interval_s, one] = self.begun.get((interval_s, one), 0) + 1
                    if is_healthy:
                        self.faults.append(f"every {interval_s} s, after {at_s:.0f} s: {one} fires")
                self._now[interval_s] = now
            time.sleep(_LOOK_S)

    def judge(self) -> None:
        """After the watch that began when the brokers were back."""
        for (interval_s, one), last_s in sorted(self.last_s.items()):
            name, severity, sidecar = one
            begun = self.begun[interval_s, one]
            ended = f"{name} ({severity}) of {sidecar} ended {last_s:.0f} s after"
            print(f"every {interval_s} s: {ended}", flush=True)
            if begun > 1:
                self.faults.append(f"every {interval_s} s: {one} began {begun} times")
            if severity == "critical" and last_s > interval_s + _ENDS_WITHIN_S:
                self.faults.append(f"every {interval_s} s: {one} lasted {last_s:.0f} s too long")


def _load(sidecar: Sidecar, ends: threading.Event) -> None:
    while not ends.wait(1.0):
        try:
            sidecar.produce(_TOPIC, [{"value": "x"}], timeout_ms=2_000)
            sidecar.api.get(f"/v1/topics/{_TOPIC}/leader?partition=0&max_block_ms=1000")
        except httpx.HTTPError:
            continue


def main() -> int:
    """Runs the grid; returns 1 if an alert was false, late or came again."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="pilotfish-grid-")))
        cluster = running.enter_context(FakeCluster(3))
        cluster.create_topic(_TOPIC, partitions=6, replication_factor=3)
        ends = threading.Event()
        names: dict[str, str] = {}
        for how in (_BUSY, "idle"):
            for setting, kafka in SETTINGS.items():
                own = folder / f"{setting}-{how}"
                own.mkdir()
                sidecar = running.enter_context(
                    Sidecar(own, bootstrap_servers=cluster.bootstrap_servers, kafka=kafka)
                )
                wait_until(lambda it=sidecar: it.admin.get("/readyz").is_success, what="metadata")  # type: ignore[misc]
                names[target(sidecar)] = own.name
                if how == _BUSY:
                    threading.Thread(target=_load, args=(sidecar, ends), daemon=True).start()
        running.callback(ends.set)
        servers = {}
        for interval_s in _INTERVALS_S:
            own = folder / f"every-{interval_s}"
            own.mkdir()
            server = Prometheus(own, targets=list(names), rules=RULES, scraped_every=f"{interval_s}s")
            servers[interval_s] = running.enter_context(server)
        grid = Grid(servers, names)
        grid.watch(_HEALTHY_S, is_healthy=True)
        print(f"{_HEALTHY_S} s of health: {grid.faults or 'no alert'}", flush=True)
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id, elect=False)
        grid.watch(_AWAY_S)
        for broker_id in cluster.broker_ids:
            cluster.revive(broker_id)
        grid.last_s = dict.fromkeys(grid.last_s, 0.0)
        grid.watch(_AFTER_S)
        grid.judge()
        if "NoBrokerConnected" not in {name for _, (name, _, _) in grid.last_s}:
            grid.faults.append("NoBrokerConnected never fired")
        for fault in grid.faults:
            print(f"NOT SO: {fault}", flush=True)
        return 1 if grid.faults else 0


if __name__ == "__main__":
    sys.exit(main())
