"""A sidecar as a user runs it, with a spool: killed, refused by brokers, started again, and all arrives."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from client_core.testing.cluster import FakeCluster
from service.__main__ import main
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REQUESTS = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as cluster:
        yield cluster


class Spooling:
    """A sidecar with a spool in front of the cluster, and a topic of the test's own."""

    def __init__(self, folder: Path, cluster: FakeCluster, topic: str, **environment: str) -> None:
        self.cluster, self.topic, self.folder = cluster, topic, folder / "spool"
        cluster.create_topic(topic, partitions=1, replication_factor=3)
        self.sidecar = Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            kafka={"reconnect.backoff.max.ms": "100", "retry.backoff.max.ms": "100"},
            flags=["--spool-folder", str(self.folder), "--drain-timeout-ms", "5000"],
            environment=environment,
        )

    def spool(self, *values: str, topic: str = "") -> None:
        records = [{"value": value, "key": "k"} for value in values]
        answer = self.sidecar.produce(topic or self.topic, records, delivery="spool")
        assert answer.status_code == 202, answer.text

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.sidecar.api.get("/v1/status").json()["spool"]
        return found

    def stored(self, topic: str = "") -> list[str]:
        return [(record.value or b"").decode() for record in self.cluster.records(topic or self.topic)]

    def kill(self) -> None:
        self.sidecar.process.kill()
        self.sidecar.process.wait(timeout=patient(30))

    def until_empty(self) -> None:
        wait_until(lambda: self.status["entries"] == 0, what="an empty spool", last_seen=self.sidecar.log)


def test_records_answered_202_while_kafka_is_away_arrive_in_order_after_an_end_and_a_kill(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    spooling = Spooling(tmp_path, cluster, "away")
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id, elect=False)
    with spooling.sidecar as sidecar:
        spooling.spool("a", "b")
        assert sidecar.terminate() == 0
        assert "2 records stay in" in sidecar.log()
        sidecar.start()
        for request in range(REQUESTS):
            spooling.spool(f"{request}-a", f"{request}-b")
        assert spooling.status["entries"] == 2 + 2 * REQUESTS
        spooling.kill()
        for broker_id in cluster.broker_ids:
            cluster.revive(broker_id)
        sidecar.start()
        spooling.until_empty()
        spooling.spool("last")
        wait_until(lambda: "last" in spooling.stored(), what="the last record")
        assert sidecar.terminate() == 0
    expected = [f"{request}-{part}" for request in range(REQUESTS) for part in "ab"]
    assert spooling.stored() == ["a", "b", *expected, "last"]


def test_killed_while_it_delivers_it_delivers_the_rest_and_perhaps_some_again(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    spooling = Spooling(tmp_path, cluster, "killed")
    with spooling.sidecar as sidecar:
        for request in range(REQUESTS):
            spooling.spool(f"{request}")
        spooling.kill()
        sidecar.start()
        spooling.until_empty()
        assert sidecar.terminate() == 0
    assert set(spooling.stored()) == {str(request) for request in range(REQUESTS)}
    # What was sent again was sent in order, from some record on.
    assert list(dict.fromkeys(spooling.stored())) == [str(request) for request in range(REQUESTS)]


def test_records_that_are_forbidden_for_some_seconds_arrive_in_order_without_a_restart(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    spooling = Spooling(tmp_path, cluster, "forbidden")
    cluster.create_topic("payments")
    values = [f"{n}" for n in range(288)]
    with spooling.sidecar as sidecar:
        cluster.forbid("forbidden", describe=True)
        for first in range(0, len(values), 12):
            spooling.spool(*values[first : first + 12])
        wait_until(
            lambda: spooling.status["last_error"] == "TOPIC_AUTHORIZATION_FAILED",
            what="a refusal",
            last_seen=sidecar.log,
        )
        spooling.spool("another topic", topic="payments")
        wait_until(lambda: spooling.stored("payments"), what="the other topic", last_seen=sidecar.log)
        cluster.permit("forbidden")
        spooling.until_empty()
        assert spooling.status["set_aside"] == 0
        second = [sys.executable, "-m", "service", "serve", "--api-port", "0", "--admin-port", "0"]
        second += ["--kafka", f"bootstrap.servers={cluster.bootstrap_servers}"]
        second += ["--spool-folder", str(spooling.folder)]
        ended = subprocess.run(second, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (ended.returncode, "spool_folder: another process uses" in ended.stderr) == (2, True)
        assert sidecar.terminate() == 0
    assert spooling.stored() == values


def test_dead_letters_are_requeued_over_http_and_by_the_command_while_the_sidecar_runs(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    spooling = Spooling(tmp_path, cluster, "dead", PILOTFISH_SPOOL_TOPIC_WAIT_MS="1000")
    values = [f"{n}" for n in range(50)]
    with spooling.sidecar as sidecar:
        words = ["spool", "requeue", "--folder", str(spooling.folder), "--api-port", str(sidecar.api_port)]
        for times in (1, 2):
            cluster.forbid("dead", describe=False)
            spooling.spool(*values)
            wait_until(lambda: spooling.status["set_aside"] == 50, what="dead letters", last_seen=sidecar.log)
            cluster.permit("dead")
            if times == 1:
                answer = sidecar.api.post("/v1/spool/requeue?topic=dead")
                assert (answer.status_code, answer.json()) == (200, {"requeued": 50})
            else:
                for choice in (["--topic", "orders"], ["--reason", "too_large"]):
                    ended = CliRunner().invoke(main, [*words, *choice])
                    assert (ended.exit_code, "nothing to requeue" in ended.output) == (1, True), choice
                ended = CliRunner().invoke(main, words)
                where = f"127.0.0.1:{sidecar.api_port}"
                assert ended.exit_code == 0, ended.output
                assert ended.output == f"50 records will be delivered by the sidecar at {where}\n"
                again = CliRunner().invoke(main, words)
                assert again.output == "Error: nothing to requeue: there is no such dead letter\n"
            wait_until(
                lambda n=50 * times: len(spooling.stored()) == n,  # type: ignore[misc]
                what="all records",
                last_seen=sidecar.log,
            )
            assert spooling.status["set_aside"] == 0
        assert sidecar.terminate() == 0
    assert spooling.stored() == 2 * values


def test_a_record_that_its_trace_makes_too_large_is_refused_and_is_no_dead_letter(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    spooling = Spooling(tmp_path, cluster, "traced", PILOTFISH_KAFKA_MAX_REQUEST_SIZE="2000")
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    body = {"records": [{"topic": "traced", "value": "x" * 1_880}], "value_format": "text"}
    with spooling.sidecar as sidecar:
        answers = [
            sidecar.api.post("/v1/records", json=body, params=query, headers=headers)
            for query in ({}, {"delivery": "spool"})
            for headers in ({}, trace)
        ]
        spooling.until_empty()
        assert [answer.status_code for answer in answers] == [200, 413, 202, 413]
        assert spooling.status["set_aside"] == 0
        assert sidecar.terminate() == 0
