"""The alerts on a real Prometheus: none fires for healthy sidecars, whatever their settings; and they clear.

The rules are the delivered ones, except that an alert waits for a second instead of minutes.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from client_core.testing import FakeCluster
from tests.support.prometheus import Prometheus
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.tools

RULES: Final = (Path(__file__).parents[2] / "helm" / "pilotfish" / "files" / "rules.yaml").read_text()
IMPATIENT: Final = re.sub(r"(?m)^( +for:) \w+$", r"\1 1s", RULES)

#: Producer settings by how often they have the sidecar do something.
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "short": {"request.timeout.ms": "200", "metadata.max.age.ms": "300"},
    "default": {},
    "long": {
        "request.timeout.ms": "600000",
        "delivery.timeout.ms": "1200000",
        "metadata.max.age.ms": str(2**63 - 1),
    },
}


def has_metadata(sidecar: Sidecar) -> bool:
    return sidecar.admin.get("/readyz").is_success


def target(sidecar: Sidecar) -> str:
    return f"127.0.0.1:{sidecar.admin_port}"


def test_no_alert_is_even_pending_over_healthy_sidecars_with_settings_below_the_scrape_interval(
    tmp_path: Path,
) -> None:
    with ExitStack() as running:
        cluster = running.enter_context(FakeCluster(3))
        targets = []
        for name, settings in SETTINGS.items():
            (tmp_path / name).mkdir()
            sidecar = Sidecar(tmp_path / name, bootstrap_servers=cluster.bootstrap_servers, kafka=settings)
            running.enter_context(sidecar)
            wait_until(partial(has_metadata, sidecar), what="the first metadata")
            targets.append(target(sidecar))
        prometheus = running.enter_context(
            Prometheus(tmp_path, targets=targets, rules=IMPATIENT, scraped_every="3s")
        )
        wait_until(
            lambda: prometheus.value("min(count_over_time(pilotfish_poll_loop_age_seconds[1h])) >= 4"),
            what="four scrapes of each",
        )
        assert prometheus.value("count(pilotfish_build_info)") == len(SETTINGS)
        assert prometheus.ever_alerted() == set()


def test_an_idle_sidecar_whose_brokers_are_back_is_no_alert_without_a_connection(
    tmp_path: Path,
) -> None:
    """It asked a bootstrap server, which it leaves once the brokers are known, and nobody asks it more."""
    sooner = IMPATIENT.replace(
        "pilotfish_brokers_unreachable_seconds > 30", "pilotfish_brokers_unreachable_seconds > 1"
    )
    settings = {"metadata.recovery.rebootstrap.trigger.ms": "1000"}
    with (
        FakeCluster(3) as cluster,
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, kafka=settings) as sidecar,
        Prometheus(tmp_path, targets=[target(sidecar)], rules=sooner) as prometheus,
    ):
        wait_until(partial(has_metadata, sidecar), what="metadata")
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id, elect=False)
        wait_until(
            lambda: (
                "NoBrokerConnected" in prometheus.firing()
                and sidecar.metric("pilotfish_metadata_rebootstraps_total")
            ),
            what="the alert",
            last_seen=prometheus.alerts,
        )
        for broker_id in cluster.broker_ids:
            cluster.revive(broker_id)
        wait_until(lambda: not prometheus.alerts(), what="no alert", last_seen=prometheus.alerts)


def test_a_process_that_is_gone_is_an_alert_until_it_is_back(tmp_path: Path) -> None:
    with (
        FakeCluster(3) as cluster,
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers) as sidecar,
        Prometheus(tmp_path, targets=[target(sidecar)], rules=IMPATIENT) as prometheus,
    ):
        wait_until(lambda: prometheus.value("pilotfish_build_info"), what="a scrape")
        sidecar.terminate()
        wait_until(
            lambda: prometheus.firing() == {"PilotfishDown"}, what="the alert", last_seen=prometheus.alerts
        )
        sidecar.start()
        wait_until(lambda: not prometheus.alerts(), what="no alert", last_seen=prometheus.alerts)
