"""A simulated sidecar under load that is scraped every few seconds, and the alerts of its scrapes.

    watched = Watched(kafka={…})
    await watched.run(120, load)                   seconds of simulated time
    watched.network.down = {2}
    await watched.run(180, load)
    alerts = alerts_of({"one": watched.scrapes})   {"one": {120: {"NoBrokerConnected"}, …}}

The delivered rules are evaluated by promtool, over the scraped values. An hour costs seconds. One thread.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import httpx
import yaml  # type: ignore[import-untyped]

from service.admission.caller import ANYONE
from service.process.admin import make_registry
from service.spool.spool import Spool, spool_config
from tests.deploy.promql_terms import terms_of
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST
from tests.support.hostile_load import hostile_producer
from tests.support.hostile_network import HostileNetwork
from tests.support.promtool import find_promtool
from tests.support.simulated_sidecar import LateSink, SimulatedSidecar
from tests.support.spooling import BadDisk
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from client_core import KafkaProducer
    from service.base.watched_file import Timer
    from tests.support.mock_clock import MockClock

_ROOT: Final = Path(__file__).parents[2]
RULES: Final = _ROOT / "helm" / "pilotfish" / "files" / "rules.yaml"
_ROW: Final = re.compile(r"^\| \[(\w+)\].* (\d+) (min|h) \|$", re.MULTILINE)
#: How long each alert may last after the recovery, by docs/alerts.md.
ENDS_S: Final[Mapping[str, int]] = {
    alert: int(number) * (3600 if unit == "h" else 60)
    for alert, number, unit in _ROW.findall((_ROOT / "docs" / "alerts.md").read_text())
}
EVERY_S: Final = 15
_STEP_MS: Final = 250
#: About that of the I/O thread after a turn that raised.
_PAUSE_MS: Final = 100
_EVALUATED_EVERY_S: Final = 15
#: Prometheus' own: a target that answers.
_UP: Final = ("up", frozenset[tuple[str, str]]())

#: A series: its name and its labels.
Series = tuple[str, frozenset[tuple[str, str]]]
#: What one scrape has: the value of each series.
Scrape = dict[Series, float]


class _Timers:
    """Periodic checks of files, in simulated time."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self._due: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self._clock.now_ms() / 1000

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        one = (self.time() + delay, callback)
        self._due.append(one)
        return _Scheduled(self._due, one)

    def run(self) -> None:
        """Calls what is due."""
        for one in [one for one in self._due if one[0] <= self.time()]:
            self._due.remove(one)
            one[1]()


class _Scheduled:
    def __init__(
        self, among: list[tuple[float, Callable[[], object]]], one: tuple[float, Callable[[], object]]
    ) -> None:
        self._among, self._one = among, one

    def cancel(self) -> None:
        self._among.remove(self._one)


class Watched(SimulatedSidecar):
    """Scrapes its own registry each `every_s` of simulated time. `calls` are open until they are answered.

    With `spool_folder` it has the whole spool, over `disk` and a client of its own; with `events_folder` the
    event log; and it reads `quit_token_file` again. Their threads are turned by hand, as the client's is.
    """

    def __init__(self, *, every_s: int = EVERY_S, **given: Any) -> None:
        self.disk = BadDisk()
        self._spool_client: tuple[HostileNetwork, KafkaProducer] | None = None
        super().__init__(**given)
        self._timers = _Timers(self.clock)
        if self.app.event_log is not None:
            self.app.event_log.begin()
        if self.app.quit_token is not None:
            self.app.quit_token.watch(self._timers)
        self.every_s = every_s
        self.scrapes: list[Scrape] = []
        self.codes: list[int] = []
        #: The I/O thread does nothing while this is set.
        self.is_stalled = False
        #: The process is gone, and nothing answers a scrape.
        self.is_gone = False
        self._began_s = self.clock.wall_ms() / 1000
        self._second = 0
        self._registry: CollectorRegistry = make_registry(self.app)
        self._calls: set[asyncio.Task[None]] = set()
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), base_url="http://localhost"
        )

    def _spool(self) -> Spool | None:
        if not self.settings.spool_folder:
            return None
        network = HostileNetwork(self.clock, self.brokers, Random(7))
        events = LateSink()
        producer = hostile_producer(
            spool_config(self.settings),
            self.clock,
            network,
            Random(11),
            (HOST, FIRST_PORT),
            client_events=events,
            whole_requests=True,
        )
        events.sink = producer._refreshes
        self._spool_client = network, producer
        return Spool(self.settings, producer, self.clock, self.disk)

    @property
    def networks(self) -> Sequence[HostileNetwork]:
        """That of the client, and that of the spool's, if there is one."""
        return (self.network, *(() if self._spool_client is None else (self._spool_client[0],)))

    def call(self, method: str, path: str, **sent: Any) -> None:
        """Begins a request; whoever calls does not wait for its answer."""
        task = asyncio.ensure_future(self._call(method, path, sent))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, method: str, path: str, sent: Mapping[str, Any]) -> None:
        self.codes.append((await self._client.request(method, path, **sent)).status_code)

    async def run(
        self, seconds: int, each_second: Callable[[Watched, int], None] = lambda _, __: None
    ) -> None:
        """Lets time pass. `each_second` makes the load: it gets this object and the second."""
        for _ in range(seconds):
            if self._second % self.every_s == 0:
                self.scrapes.append(self._scrape())
            each_second(self, self._second)
            await _let_run()
            for _ in range(0, 1000, _STEP_MS):
                until_ms = self.clock.now_ms() + _STEP_MS
                while (left_ms := until_ms - self.clock.now_ms()) > 0:
                    if self.is_stalled:
                        self.clock.advance(left_ms)
                    else:
                        self._turn_guarded(left_ms)
                        self._turn_others()
                    await _let_run(3)
            self._second += 1

    def _turn_guarded(self, at_most_ms: int) -> None:
        """As the I/O thread's own loop: a turn that raises is counted, and followed by a pause."""
        try:
            self._turn(at_most_ms)
        except RuntimeError as error:
            self.producer.io_thread._uncaught.report(error, self.clock.now_ms())
            self.clock.advance(min(at_most_ms, _PAUSE_MS))

    def _turn_others(self) -> None:
        """One turn of each other thread; none lets time pass."""
        self._timers.run()
        if self.app.event_log is not None:
            self.app.event_log.turn()
        if self.app.spool is not None and self._spool_client is not None:
            network, producer = self._spool_client
            self.app.spool.writer.turn()
            self.app.spool.delivery.turn(self.clock.now_ms())
            network.wakeup()
            producer.io_thread.turn()

    async def end(self) -> None:
        """Drops what is still open."""
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._client.aclose()
        self.close()
        if self.app.spool is not None:
            self.app.spool.release()
            self.disk.let_go()

    @property
    def status(self) -> Mapping[str, Any]:
        """The answer of /v1/status."""
        return self.app.status.document(ANYONE)

    def _scrape(self) -> Scrape:
        """As Prometheus stores it: `up` is its own, and all that is left of a target that is gone."""
        if self.is_gone:
            return {_UP: 0.0}
        found: Scrape = {_UP: 1.0}
        for family in self._registry.collect():
            for sample in family.samples:
                if sample.name.startswith("pilotfish_"):
                    value = sample.value
                    if sample.name.endswith("_expiry_timestamp_seconds"):
                        value -= self._began_s  # promtool's time begins at 0
                    found[sample.name, frozenset(sample.labels.items())] = value
        return found


async def _let_run(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


# -- alerts --------------------------------------------------------------------------------------------------

_ALERTS: Final = 'ALERTS{alertstate="firing"}'
_GOT: Final = re.compile(r'__name__="ALERTS", ([^}]*)\}')
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_FAILED: Final = re.compile(r'expr: "ALERTS[^\n]*?time: ([0-9hms]+),(.*?)(?=expr: "|\Z)', re.DOTALL)
_DURATION: Final = re.compile(r"(\d+)([hms])")
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


def alerts_of(
    scrapes: Mapping[str, Sequence[Scrape]],
    folder: Path,
    *,
    every_s: int = EVERY_S,
    rules: str | None = None,
) -> dict[str, dict[int, set[tuple[str, str]]]]:
    """The alerts that fire, by instance and second, with their severity; of all instances in one Prometheus.

    Seconds are multiples of 15; those without an alert are left out.
    """
    text = RULES.read_text() if rules is None else rules
    wanted = {
        term.metric
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        for term in terms_of(rule["expr"])
    }
    (folder / "rules.yaml").write_text(text)
    last_s = max(len(of) for of in scrapes.values()) * every_s
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{_EVALUATED_EVERY_S}s",
        "tests": [
            {
                "interval": f"{every_s}s",
                "input_series": [
                    line for name, of in scrapes.items() for line in _input_series(name, of, wanted)
                ],
                "promql_expr_test": [
                    {"expr": _ALERTS, "eval_time": f"{second}s", "exp_samples": []}
                    for second in range(0, last_s, _EVALUATED_EVERY_S)
                ],
            }
        ],
    }
    (folder / "alerts.yaml").write_text(yaml.safe_dump(document, width=10**9))
    ran = subprocess.run(
        [find_promtool(), "test", "rules", "alerts.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(300),
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0 or "ALERTS" in said, said[:5_000]
    found: dict[str, dict[int, set[tuple[str, str]]]] = {name: {} for name in scrapes}
    for failed in _FAILED.finditer(said):
        second = sum(int(n) * _SECONDS[unit] for n, unit in _DURATION.findall(failed[1]))
        for labels in _GOT.findall(failed[2]):
            of = dict(_LABEL.findall(labels))
            found[of["instance"]].setdefault(second, set()).add((of["alertname"], of["severity"]))
    return found


def _input_series(instance: str, scrapes: Sequence[Scrape], wanted: set[str]) -> list[dict[str, str]]:
    """promtool's input: a series' values, `_` where a scrape lacks it, and `stale` right after."""
    values: dict[Series, list[str]] = defaultdict(list)
    for number, scrape in enumerate(scrapes):
        for series, value in scrape.items():
            if series[0] in wanted:
                row = values[series]
                row += _absent(row, number)
                row.append(f"{value:.17g}")
    for row in values.values():
        row += _absent(row, len(scrapes))
    return [
        {"series": _written(name, labels, instance), "values": " ".join(row)}
        for (name, labels), row in values.items()
    ]


def _absent(row: Sequence[str], number: int) -> list[str]:
    missing = number - len(row)
    if missing <= 0:
        return []
    return [*(["stale"] if row else ["_"]), *["_"] * (missing - 1)]


def _written(name: str, labels: frozenset[tuple[str, str]], instance: str) -> str:
    inside = ", ".join(f'{key}="{value}"' for key, value in sorted({*labels, ("instance", instance)}))
    return f"{name}{{{inside}}}"
