"""`pilotfish status` names the broker that is slow and no other, and each error with its age.

A sidecar process in front of three fake brokers; the command is called as an operator does.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from client_core.protocol.api_keys import ApiKey
from client_core.testing import Delay, FakeCluster, Silence
from service.__main__ import main
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS = 3


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as running:
        running.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
        for partition in range(PARTITIONS):
            running.move_leader("orders", partition, partition + 1)
        yield running


@contextmanager
def sidecar_of(cluster: FakeCluster, folder: Path, **kafka: str) -> Iterator[Sidecar]:
    """A sidecar that has connections to all three brokers, and has seen an error of broker 1 that is over."""
    settings = {name.replace("_", "."): value for name, value in kafka.items()}
    with Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers, kafka=settings) as sidecar:
        produce_to_all(sidecar)
        cluster.kill(1, elect=False)
        wait_until(
            lambda: error_of_node_1(sidecar) is not None, what="an error of node 1", last_seen=sidecar.log
        )
        cluster.revive(1)
        cluster.move_leader("orders", 0, 1)
        produce_to_all(sidecar)
        # What broker 1 was slow with, by its death, is over for the judgement of this moment.
        wait_until(lambda: "node 1" not in what_is_slow(sidecar), what="a node 1 that is well")
        yield sidecar


def produce(sidecar: Sidecar, partition: int) -> int:
    return sidecar.produce("orders", [{"value": "x", "partition": partition}]).status_code


def produce_to_all(sidecar: Sidecar, times: int = 1) -> None:
    for partition in list(range(PARTITIONS)) * times:
        assert produce(sidecar, partition) == 200


def error_of_node_1(sidecar: Sidecar) -> str | None:
    nodes = sidecar.api.get("/v1/status").json()["nodes"]
    return next((node["last_error"] for node in nodes if node["id"] == 1), None)


def status(sidecar: Sidecar) -> str:
    """What the command prints."""
    ports = {"PILOTFISH_API_PORT": str(sidecar.api_port), "PILOTFISH_ADMIN_PORT": str(sidecar.admin_port)}
    return CliRunner().invoke(main, ["status"], env=ports).output


def what_is_slow(sidecar: Sidecar) -> str:
    """The first part of it, empty where nothing is slow."""
    first, *_ = status(sidecar).split("\n\n")
    return first if first.startswith("Slow:") else ""


def wait_until_node_2_is_named(sidecar: Sidecar) -> str:
    """What is slow, as the first status has it that names node 2: metadata, without a node, may be before."""

    def named() -> str:
        slow = what_is_slow(sidecar)
        return slow if "node 2" in slow else ""

    said = wait_until(named, what="a slow node 2", last_seen=lambda: status(sidecar))
    assert set(re.findall(r"node (\d)", said)) == {"2"}, said
    return said


def test_a_broker_that_leaves_produces_unanswered_is_named_and_no_other(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_of(cluster, tmp_path) as sidecar, ThreadPoolExecutor(1) as caller:
        hold = cluster.hold_next(ApiKey.PRODUCE, broker_id=2)
        answered = caller.submit(produce, sidecar, 1)
        try:
            hold.wait_until_held()
            assert "1 request in flight" in wait_until_node_2_is_named(sidecar)
        finally:
            hold.release()
        assert answered.result(30) == 200


def test_a_broker_that_answers_late_is_named_between_its_answers_too(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_of(cluster, tmp_path) as sidecar:
        cluster.react_next(ApiKey.PRODUCE, Delay(1_500), broker_id=2)
        produce_to_all(sidecar)
        assert "answers late: of " in wait_until_node_2_is_named(sidecar)


def test_a_broker_that_is_slow_below_the_limit_is_named_by_comparison(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_of(cluster, tmp_path) as sidecar:
        cluster.react_next(ApiKey.PRODUCE, Delay(300), times=1_000, broker_id=2)

        def named() -> str:
            produce_to_all(sidecar)
            return what_is_slow(sidecar)

        said = wait_until(named, what="a slow broker", last_seen=lambda: status(sidecar))
        assert "node 2 answers far later than the others" in said
        assert set(re.findall(r"node (\d)", said)) == {"2"}, said


def test_a_broker_that_is_slow_with_metadata_alone_is_named(cluster: FakeCluster, tmp_path: Path) -> None:
    with sidecar_of(cluster, tmp_path) as sidecar:
        hold = cluster.hold_next(ApiKey.METADATA, broker_id=2, times=100)

        def a_refresh_is_held() -> bool:
            sidecar.api.post("/v1/metadata/refresh", params={"max_block_ms": 50})
            return hold.is_held

        try:
            # Any broker may be asked, and a busy machine may be late: until broker 2 keeps an answer.
            wait_until(a_refresh_is_held, what="a refresh that is not answered")
            wait_until_node_2_is_named(sidecar)
        finally:
            hold.release()


def test_a_broker_that_answers_nothing_any_more_is_named_while_its_connection_is_made_anew(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    timeouts = {"request_timeout_ms": "2000", "delivery_timeout_ms": "60000", "retry_backoff_max_ms": "200"}
    with sidecar_of(cluster, tmp_path, **timeouts) as sidecar, ThreadPoolExecutor(1) as caller:
        cluster.freeze_metadata(2)
        for api in (ApiKey.PRODUCE, ApiKey.API_VERSIONS, ApiKey.METADATA):
            cluster.react_next(api, Silence(), times=1_000, broker_id=2)
        answered = caller.submit(produce, sidecar, 1)
        wait_until(
            lambda: re.search(r"was not answered.*s ago", status(sidecar)),
            what="the timeout of a request",
            last_seen=lambda: status(sidecar),
        )
        wait_until_node_2_is_named(sidecar)
        cluster.move_leader("orders", 1, 3)
        assert answered.result(60) == 200


def test_each_error_has_its_age_and_each_broker_its_times(cluster: FakeCluster, tmp_path: Path) -> None:
    with sidecar_of(cluster, tmp_path) as sidecar:
        rows = {line.split()[0]: line for line in status(sidecar).splitlines() if line[:1].isdigit()}
        assert re.search(r"ready .*\S, \d+\.\d s ago$", rows["1"]), rows["1"]
        assert rows["3"].endswith(" -")
        head = next(line for line in status(sidecar).splitlines() if line.startswith("broker "))
        assert re.findall(r"\S+(?: \S+)*", head)[3:] == [
            "in flight",
            "oldest",
            "p50",
            "p99",
            "backoff",
            "last error",
        ]
