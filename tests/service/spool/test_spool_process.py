"""A sidecar as a user runs it, with a spool: killed while Kafka is away, started again, and all arrives."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from client_core.testing.cluster import FakeCluster
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

REQUESTS = 40


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=3)
        yield cluster


def sidecar_of(tmp_path: Path, cluster: FakeCluster) -> Sidecar:
    flags = ["--spool-folder", str(tmp_path / "spool"), "--drain-timeout-ms", "5000"]
    kafka = {"reconnect.backoff.max.ms": "100", "retry.backoff.max.ms": "100"}
    return Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, kafka=kafka, flags=flags)


def spool(sidecar: Sidecar, *values: str) -> httpx.Response:
    return sidecar.produce("orders", [{"value": value} for value in values], delivery="spool")


def entries(sidecar: Sidecar) -> int:
    found: int = sidecar.api.get("/v1/status").json()["spool"]["entries"]
    return found


def stored(cluster: FakeCluster) -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records("orders")]


def test_all_that_was_answered_202_arrives_in_order_though_the_sidecar_was_killed(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id, elect=False)
    with sidecar_of(tmp_path, cluster) as sidecar:
        for request in range(REQUESTS):
            answer = spool(sidecar, f"{request}-a", f"{request}-b")
            assert answer.status_code == 202, answer.text
        assert entries(sidecar) == 2 * REQUESTS
        sidecar.process.kill()
        sidecar.process.wait(timeout=patient(30))
        for broker_id in cluster.broker_ids:
            cluster.revive(broker_id)
        sidecar.start()
        wait_until(lambda: entries(sidecar) == 0, what="an empty spool", last_seen=sidecar.log)
        assert spool(sidecar, "last").status_code == 202
        wait_until(lambda: "last" in stored(cluster), what="the last record")
        assert sidecar.terminate() == 0
    expected = [f"{request}-{part}" for request in range(REQUESTS) for part in "ab"]
    assert stored(cluster) == [*expected, "last"]


def test_killed_while_it_delivers_it_delivers_the_rest_and_perhaps_some_again(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_of(tmp_path, cluster) as sidecar:
        for request in range(REQUESTS):
            assert spool(sidecar, f"{request}").status_code == 202
        sidecar.process.kill()
        sidecar.process.wait(timeout=patient(30))
        sidecar.start()
        wait_until(lambda: entries(sidecar) == 0, what="an empty spool", last_seen=sidecar.log)
        assert sidecar.terminate() == 0
    counts = Counter(stored(cluster))
    assert set(counts) == {str(request) for request in range(REQUESTS)}
    # What was sent again was sent in order, from some record on.
    first_seen = list(dict.fromkeys(stored(cluster)))
    assert first_seen == [str(request) for request in range(REQUESTS)]


def test_what_kafka_does_not_take_in_time_stays_for_the_next_start(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id, elect=False)
    with sidecar_of(tmp_path, cluster) as sidecar:
        assert spool(sidecar, "a", "b").status_code == 202
        assert sidecar.terminate() == 0
        assert "2 records stay in" in sidecar.log()
        for broker_id in cluster.broker_ids:
            cluster.revive(broker_id)
        sidecar.start()
        wait_until(lambda: stored(cluster) == ["a", "b"], what="both records", last_seen=sidecar.log)
        assert sidecar.terminate() == 0
    assert stored(cluster) == ["a", "b"]


def test_a_second_sidecar_of_one_folder_ends_the_start_with_2(cluster: FakeCluster, tmp_path: Path) -> None:
    with sidecar_of(tmp_path, cluster):
        command = [sys.executable, "-m", "service", "serve", "--api-port", "0", "--admin-port", "0"]
        command += ["--kafka", f"bootstrap.servers={cluster.bootstrap_servers}"]
        command += ["--spool-folder", str(tmp_path / "spool")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert "spool_folder: another process uses" in ended.stderr
