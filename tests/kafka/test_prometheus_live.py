"""A real Prometheus scrapes a running sidecar on real brokers, and its alerts fire and clear as they should.

The rules are the delivered ones, except that an alert waits for a second instead of minutes.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.prometheus import Prometheus
from tests.support.promtool import check_metrics
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster

pytestmark = pytest.mark.tools

RULES: Final = Path(__file__).parents[2] / "helm" / "pilotfish" / "files" / "rules.yaml"
UPDATES: Final = "pilotfish_metadata_update_version"
REQUESTS: Final = "pilotfish_metadata_request_version"
PRODUCES: Final = "pilotfish_produce_duration_seconds_bucket"
REQUESTED: Final = "pilotfish_http_request_duration_seconds_bucket"
MAX_AGE_MS: Final = 2_000
TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def sidecar(kafka: KraftCluster, tmp_path: Path) -> Iterator[Sidecar]:
    folder = tmp_path / "sidecar"
    folder.mkdir()
    settings = {"metadata.max.age.ms": str(MAX_AGE_MS)}
    with Sidecar(folder, bootstrap_servers=kafka.bootstrap_servers, kafka=settings) as running:
        yield running


@pytest.fixture
def prometheus(sidecar: Sidecar, tmp_path: Path) -> Iterator[Prometheus]:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    rules = re.sub(r"(?m)^( +for:) \w+$", r"\1 1s", RULES.read_text())
    rules, shortened = re.subn(r"(, |_seconds > )30\b", r"\1 1", rules)
    assert shortened == 3  # the least ages of MetadataStale, NoBrokerConnected and PollLoopStalled
    with Prometheus(folder, targets=[f"127.0.0.1:{sidecar.admin_port}"], rules=rules) as running:
        wait_until(lambda: running.value("up"), what="a scrape")
        yield running


def value(prometheus: Prometheus, query: str) -> float:
    """The value of what must be there."""
    found = prometheus.value(query)
    assert found is not None, query
    return found


def wait_for(prometheus: Prometheus, query: str) -> None:
    """Waits until Prometheus finds something by a query."""
    wait_until(
        lambda: prometheus.value(query) is not None,
        what=query,
        last_seen=lambda: prometheus.value(re.split(" [<>=]+ ", query)[0]),
    )


def test_versions_and_requests_in_flight_move_as_they_should(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar, prometheus: Prometheus
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=1)
    assert sidecar.produce(topic, [{"value": "a"}]).is_success
    wait_for(prometheus, "pilotfish_records_sent_total == 1")

    # Time alone has metadata refreshed, a topic that is new asks for itself, and callers may ask for all.
    wait_for(prometheus, f"{UPDATES} > {value(prometheus, UPDATES) + 2}")
    wait_for(prometheus, 'pilotfish_metadata_refreshes_total{reason="expired", outcome="success"} > 1')
    before = value(prometheus, REQUESTS)
    assert sidecar.api.get(f"/v1/topics/{new_topic()}").is_success
    wait_for(prometheus, f"{REQUESTS} > {before}")
    assert sidecar.api.post("/v1/metadata/refresh").is_success
    wait_for(prometheus, 'pilotfish_metadata_refreshes_total{reason="manual", outcome="success"} == 1')

    # A paused broker answers nothing: its requests are in flight until it goes on.
    leader = kafka.admin.leader(topic, 0)
    assert leader is not None
    in_flight = f'pilotfish_broker_in_flight_requests{{broker="{leader}"}}'
    kafka.pause(leader)
    with ThreadPoolExecutor(1) as caller:
        answer = caller.submit(sidecar.produce, topic, [{"value": "b"}])
        wait_for(prometheus, f"{in_flight} >= 1")
        kafka.resume(leader)
        assert answer.result().is_success
    wait_for(prometheus, f"{in_flight} == 0")
    wait_for(prometheus, "pilotfish_records_sent_total == 2")


def test_stale_metadata_is_an_alert_while_brokers_are_gone_and_none_when_they_are_back(
    kafka: KraftCluster, sidecar: Sidecar, prometheus: Prometheus
) -> None:
    wait_for(prometheus, f"{UPDATES} > 2")
    wait_until(lambda: not prometheus.alerts(), what="no alert", last_seen=prometheus.alerts)
    for broker_id in kafka.broker_ids:
        kafka.kill(broker_id)
    wait_until(
        lambda: prometheus.firing() >= {"MetadataStale", "NoBrokerConnected"},
        what="the alerts of a cluster that is gone",
        last_seen=prometheus.alerts,
    )
    assert value(prometheus, "pilotfish_metadata_age_seconds") >= 2 * MAX_AGE_MS / 1000
    for broker_id in kafka.broker_ids:
        kafka.restart(broker_id)
    wait_until(lambda: not prometheus.alerts(), what="no alert", last_seen=prometheus.alerts)
    assert value(prometheus, "pilotfish_metadata_age_seconds") < 2 * MAX_AGE_MS / 1000

    assert sidecar.terminate() == 0
    wait_until(lambda: prometheus.firing() == {"PilotfishDown"}, what="an alert", last_seen=prometheus.alerts)


def test_prometheus_keeps_exemplars_and_promtool_accepts_what_real_brokers_leave(
    new_topic: NewTopic, sidecar: Sidecar, prometheus: Prometheus
) -> None:
    topic = new_topic(partitions=1)
    sidecar.api.headers["traceparent"] = f"00-{TRACE}-00f067aa0ba902b7-01"
    assert sidecar.produce(topic, [{"value": "a"}]).is_success
    wait_for(prometheus, 'pilotfish_produce_duration_seconds_count{outcome="success"} == 1')
    for buckets in PRODUCES, REQUESTED:
        reported = wait_until(partial(prometheus.exemplars, buckets), what="an exemplar")
        assert {labels["trace_id"] for labels in reported} == {TRACE}
    assert check_metrics(sidecar.admin.get("/metrics").text) == ""
