"""A real Prometheus beside a test: it scrapes the given targets, and evaluates the given rules.

    with Prometheus(folder, targets=["127.0.0.1:9464"], rules=text) as prometheus:
        prometheus.value('pilotfish_records_sent_total')
        prometheus.firing()                                    {"MetadataStale"}

It evaluates twice a second, and by default scrapes as often, so that a test need not wait for minutes. Its
own API says what it knows: nothing here sleeps but wait_until. It ends with the test process
(process_guard.py). One thread.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Final

import httpx

from client_core.testing.free_ports import free_ports
from tests.support.plain_http import NO_TLS
from tests.support.process_guard import ProcessGuard
from tests.support.promtool import find_prometheus, find_promtool
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

INTERVAL: Final = "500ms"

_START_TIMEOUT_S: Final = patient(30.0)

_CONFIG: Final = """\
global:
  scrape_interval: {scraped_every}
  scrape_timeout: {scraped_every}
  evaluation_interval: {interval}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: pilotfish
    static_configs:
      - targets: {targets}
"""


class Prometheus:
    """One process; `targets` are "host:port", `scraped_every` a duration as Prometheus has it: "15s"."""

    def __init__(
        self, folder: Path, *, targets: Sequence[str], rules: str, scraped_every: str = INTERVAL
    ) -> None:
        self._folder = folder
        self._log = folder / "prometheus.log"
        self._config = folder / "prometheus.yaml"
        self._config.write_text(
            _CONFIG.format(interval=INTERVAL, scraped_every=scraped_every, targets=json.dumps(list(targets)))
        )
        (folder / "rules.yaml").write_text(rules)
        (self._port,) = free_ports(1)
        self._api = httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=10, verify=NO_TLS)

    def __enter__(self) -> Prometheus:
        checked = subprocess.run(
            [find_promtool(), "check", "config", self._config], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        self._guard = ProcessGuard()
        self._process = self._guard.start(
            [
                str(find_prometheus()),
                f"--config.file={self._config}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--enable-feature=exemplar-storage",
            ],
            log=self._log,
            cwd=self._folder,
        )
        try:
            wait_until(
                self._is_ready,
                what="a Prometheus that is ready",
                timeout_s=_START_TIMEOUT_S,
                last_seen=self._log.read_text,
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(timeout=patient(30))
        self._guard.close()

    def value(self, query: str) -> float | None:
        """The value of a query that has one result or none. AssertionError for more."""
        found = self._get("query", query=query)["result"]
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def alerts(self) -> dict[str, str]:
        """The alerts that are not at rest, by name: pending or firing."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self._get("alerts")["alerts"]}

    def firing(self) -> set[str]:
        """The names of those that fire."""
        return {name for name, state in self.alerts().items() if state == "firing"}

    def firing_where(self) -> set[tuple[str, str, str]]:
        """Of each alert that fires its name, its severity and its target."""
        labels = [alert["labels"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"]
        return {(it["alertname"], it["severity"], it["instance"]) for it in labels}

    def ever_alerted(self) -> set[str]:
        """The names of alerts that were pending or fired within the last hour."""
        found = self._get("query", query="count by (alertname) (count_over_time(ALERTS[1h]))")["result"]
        return {series["metric"]["alertname"] for series in found}

    def exemplars(self, query: str) -> list[dict[str, str]]:
        """The labels of the exemplars of the last minute."""
        now_s = float(self._get("query", query="time()")["result"][1])
        series = self._get("query_exemplars", query=query, start=str(now_s - 60), end=str(now_s))
        return [exemplar["labels"] for one in series for exemplar in one["exemplars"]]

    def _get(self, path: str, **parameters: str) -> Any:
        answer = self._api.get(f"/api/v1/{path}", params=parameters)
        assert answer.is_success, answer.text
        return answer.json()["data"]

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            return self._api.get("/-/ready").is_success
        except httpx.TransportError:
            return False
