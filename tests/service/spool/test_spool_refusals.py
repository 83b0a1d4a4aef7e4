"""Brokers refuse spooled records for some seconds: they wait, in order, and arrive without a restart.

A sidecar as a user runs it, in front of a fake cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from client_core.testing.cluster import FakeCluster
from service.__main__ import main
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as cluster:
        for topic in ("orders", "payments"):
            cluster.create_topic(topic)
        yield cluster


def sidecar_of(tmp_path: Path, cluster: FakeCluster, **environment: str) -> Sidecar:
    return Sidecar(
        tmp_path,
        bootstrap_servers=cluster.bootstrap_servers,
        kafka={"reconnect.backoff.max.ms": "100", "retry.backoff.max.ms": "100"},
        flags=["--spool-folder", str(tmp_path / "spool")],
        environment=environment,
    )


def spool(sidecar: Sidecar, topic: str, *values: str) -> None:
    answer = sidecar.produce(topic, [{"value": value, "key": "k"} for value in values], delivery="spool")
    assert answer.status_code == 202, answer.text


def status_of(sidecar: Sidecar) -> dict[str, Any]:
    found: dict[str, Any] = sidecar.api.get("/v1/status").json()["spool"]
    return found


def stored(cluster: FakeCluster, topic: str = "orders") -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records(topic)]


def test_records_that_are_forbidden_for_some_seconds_arrive_in_order_without_a_restart(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_of(tmp_path, cluster) as sidecar:
        cluster.forbid("orders", describe=True)
        values = [f"{n}" for n in range(288)]
        for first in range(0, len(values), 12):
            spool(sidecar, "orders", *values[first : first + 12])
        wait_until(
            lambda: status_of(sidecar)["last_error"] == "TOPIC_AUTHORIZATION_FAILED",
            what="a refusal",
            last_seen=sidecar.log,
        )
        spool(sidecar, "payments", "another topic")
        wait_until(lambda: stored(cluster, "payments"), what="the other topic", last_seen=sidecar.log)
        cluster.permit("orders")
        wait_until(lambda: status_of(sidecar)["entries"] == 0, what="an empty spool", last_seen=sidecar.log)
        assert status_of(sidecar)["set_aside"] == 0
        assert sidecar.terminate() == 0
    assert stored(cluster) == values


@pytest.mark.parametrize("over", ["api", "command line"])
def test_dead_letters_are_requeued_while_the_sidecar_runs(
    cluster: FakeCluster, tmp_path: Path, over: str
) -> None:
    values = [f"{n}" for n in range(50)]
    with sidecar_of(tmp_path, cluster, PILOTFISH_SPOOL_TOPIC_WAIT_MS="1000") as sidecar:
        cluster.forbid("orders", describe=False)
        spool(sidecar, "orders", *values)
        wait_until(lambda: status_of(sidecar)["set_aside"] == 50, what="dead letters", last_seen=sidecar.log)
        cluster.permit("orders")
        if over == "api":
            answer = sidecar.api.post("/v1/spool/requeue?topic=orders")
            assert (answer.status_code, answer.json()) == (200, {"requeued": 50})
        else:
            words = ["spool", "requeue", "--folder", str(tmp_path / "spool")]
            ended = CliRunner().invoke(main, [*words, "--api-port", str(sidecar.api_port)])
            assert ended.exit_code == 0, ended.output
            where = f"127.0.0.1:{sidecar.api_port}"
            assert ended.output == f"50 records will be delivered by the sidecar at {where}\n"
            again = CliRunner().invoke(main, [*words, "--api-port", str(sidecar.api_port)])
            assert again.output == "Error: nothing to requeue: there is no such dead letter\n"
        wait_until(lambda: len(stored(cluster)) == 50, what="all records", last_seen=sidecar.log)
        assert status_of(sidecar)["set_aside"] == 0
        assert sidecar.terminate() == 0
    assert stored(cluster) == values
