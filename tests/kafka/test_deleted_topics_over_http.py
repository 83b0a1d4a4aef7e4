"""Topics that real brokers don't know: a deleted one costs few requests, a live one survives a restart."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster

#: How often the sidecar asks by itself; so many such times pass after the topic is gone.
MAX_AGE_MS: Final = 1_000
AGES: Final = 10


@pytest.fixture
def sidecar(kafka: KraftCluster, tmp_path: Path) -> Iterator[Sidecar]:
    settings = {"metadata.max.age.ms": str(MAX_AGE_MS)}
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, kafka=settings) as running:
        yield running


def refreshes(sidecar: Sidecar, **labels: str) -> float:
    return sidecar.metric("pilotfish_metadata_refreshes_total", **labels) or 0


def status_of_look_up(sidecar: Sidecar, topic: str) -> int:
    return sidecar.api.get(f"/v1/topics/{topic}/leader", params={"partition": "0"}).status_code


def test_a_deleted_topic_costs_a_handful_of_requests(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    kept, deleted = (new_topic(replication_factor=3) for _ in range(2))
    for topic in (kept, deleted):
        assert sidecar.produce(topic, [{"value": "x"}]).status_code == 200
    kafka.admin.delete_topic(deleted)

    def in_cache() -> bool:
        return deleted in sidecar.api.get("/v1/topics").text

    wait_until(lambda: not in_cache(), what="a topic that was dropped", last_seen=sidecar.log)
    by_age = refreshes(sidecar, reason="expired", outcome="success")
    others = refreshes(sidecar, outcome="success") - by_age

    def aged() -> float:
        return refreshes(sidecar, reason="expired", outcome="success") - by_age

    wait_until(lambda: aged() >= AGES, what="refreshes by age", last_seen=sidecar.log)
    assert refreshes(sidecar, outcome="success") - by_age - aged() - others <= 1
    assert status_of_look_up(sidecar, kept) == 200


def test_a_broker_that_restarts_makes_no_live_topic_a_missing_one(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=6, replication_factor=3)
    assert sidecar.produce(topic, [{"value": "x"}]).status_code == 200
    over = threading.Event()
    answers: list[int] = []

    def look_up() -> None:
        while not over.wait(0.02):
            answers.append(status_of_look_up(sidecar, topic))

    looking = threading.Thread(target=look_up)
    looking.start()
    try:
        for broker_id in kafka.broker_ids:
            kafka.restart(broker_id)
            before = refreshes(sidecar, outcome="success")
            wait_until(
                lambda before=before: refreshes(sidecar, outcome="success") >= before + 3,  # type: ignore[misc]
                what="answers after the restart",
                last_seen=sidecar.log,
            )
    finally:
        over.set()
        looking.join()
    assert set(answers) <= {200, 503}
    assert answers[-1] == 200
    assert sidecar.produce(topic, [{"value": "x"}]).status_code == 200
