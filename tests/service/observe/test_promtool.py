"""Prometheus's own tool reads a scrape of the sidecar with every series."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from client_core.testing import FakeCluster
from tests.support.promtool import check_metrics
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.tools

#: What dashboards and alerts are built on: each must be there after a look-up, a produce and a failure.
NAMES: Final = (
    "build_info",
    "metadata_update_version",
    "metadata_request_version",
    "metadata_last_refresh_success_timestamp_seconds",
    "metadata_age_seconds",
    "metadata_max_age_seconds",
    "metadata_refreshes_total",
    "metadata_refresh_duration_seconds_bucket",
    "metadata_topics",
    "metadata_partitions",
    "metadata_leaderless_partitions",
    "metadata_leader_changes_total",
    "metadata_rebootstraps_total",
    "metadata_wait_seconds_bucket",
    "cluster_info",
    "broker_in_flight_requests",
    "broker_connection_state",
    "broker_connections_total",
    "broker_reconnect_backoff_seconds",
    "request_duration_seconds_bucket",
    "network_sent_bytes_total",
    "network_received_bytes_total",
    "records_sent_total",
    "record_errors_total",
    "record_retries_total",
    "batch_splits_total",
    "batch_size_bytes_bucket",
    "batch_records_bucket",
    "record_queue_duration_seconds_bucket",
    "buffer_pool_size_bytes",
    "buffer_pool_available_bytes",
    "buffer_pool_waiters",
    "buffer_exhausted_total",
    "produce_duration_seconds_bucket",
    "http_requests_total",
    "http_request_duration_seconds_bucket",
    "http_requests_in_progress",
    "poll_loop_age_seconds",
    "poll_loop_iteration_duration_seconds_bucket",
)


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders-of-a-customer", partitions=3)
        folder: Path = tmp_path_factory.mktemp("sidecar")
        with Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers) as sidecar:
            sidecar.api.get("/v1/topics/orders-of-a-customer")
            assert sidecar.produce("orders-of-a-customer", [{"value": "a"}]).status_code == 200
            assert sidecar.produce("made-up-by-a-stranger", [{"value": "a"}], max_block_ms=50).is_error
            sidecar.api.get("/made-up-by-a-stranger")
            yield sidecar.admin.get("/metrics").text


def test_promtool_accepts_every_metric(scrape: str) -> None:
    assert check_metrics(scrape) == ""


def test_what_dashboards_are_built_on_is_there(scrape: str) -> None:
    present = set(re.findall(r"^pilotfish_(\w+)", scrape, re.MULTILINE))
    assert [name for name in NAMES if name not in present] == []


def test_no_topic_and_no_path_is_a_label(scrape: str) -> None:
    assert "orders-of-a-customer" not in scrape
    assert "made-up-by-a-stranger" not in scrape


def test_promtool_is_asked_and_not_only_run() -> None:
    assert "no help text" in check_metrics("# TYPE a_total counter\na_total 1\n")
