"""Real brokers: a change is in the first answer after it, and silent brokers are reported.

`tests/service/lookup/test_staleness.py` has all routes and callers, in simulated time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster

#: Each answer is refreshed first, as one that is older than five seconds would be.
ALWAYS_FIRST: Final = ("--lookup-max-stale-ms", "0")
#: With the look-up before a change as many as may be refreshed one after the other (ages.BURST).
ROUTES: Final = (
    "/v1/topics/{topic}/leader?partition={partition}",
    "/v1/topics/{topic}/partitions/{partition}",
    "/topics/{topic}/partitions/{partition}",
    "/v3/clusters/{cluster}/topics/{topic}/partitions/{partition}",
)


def _recreate(kafka: KraftCluster, topic: str) -> None:
    kafka.admin.delete_topic(topic)
    kafka.admin.create_topic(topic, partitions=5, replication_factor=3)


def _leader(answer: httpx.Response) -> int:
    leader = answer.json()["leader"]
    if isinstance(leader, int):
        return leader
    return int(leader["id"] if "id" in leader else leader["related"].rpartition("/")[2])


CHANGES: Final[dict[str, tuple[Callable[[KraftCluster, str], object], int, int]]] = {
    "deleted": (lambda kafka, topic: kafka.admin.delete_topic(topic), 0, 404),
    "made again": (_recreate, 4, 200),
    "partition added": (lambda kafka, topic: kafka.admin.add_partitions(topic, total=5), 4, 200),
    "leader moved": (lambda kafka, topic: kafka.admin.move_leader(topic, 0), 0, 200),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_first_answer_after_a_change_has_it(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path, change: str
) -> None:
    make, partition, status = CHANGES[change]
    topic = new_topic(replication_factor=3)
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=ALWAYS_FIRST) as sidecar:
        paths = [route.format(topic=topic, partition=partition, cluster=kafka.cluster_id) for route in ROUTES]
        assert sidecar.api.get(f"/v1/topics/{topic}").status_code == 200
        make(kafka, topic)
        answers = [sidecar.api.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [status] * len(ROUTES)
    if change == "leader moved":
        assert {_leader(answer) for answer in answers} == {kafka.admin.leader(topic, 0)}


def test_while_every_broker_hangs_the_last_answer_is_served_and_the_sidecar_is_not_ready(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(replication_factor=3)
    path = f"/v1/topics/{topic}/leader?partition=0"
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=ALWAYS_FIRST) as sidecar:
        assert sidecar.api.get(path).status_code == 200
        assert sidecar.admin.get("/readyz").status_code == 200
        for broker_id in kafka.broker_ids:
            kafka.pause(broker_id)
        try:

            def is_reported() -> bool:
                assert sidecar.api.get(path).status_code == 200
                return sidecar.admin.get("/readyz").status_code == 503

            wait_until(is_reported, what="a sidecar that is not ready", last_seen=sidecar.log)
            assert int(sidecar.api.get(path).headers["age"]) >= 4
            assert sidecar.api.get(f"/v1/topics/{topic}/partitions/99").status_code == 503
            assert sidecar.api.get("/v1/topics/nobody-says-that-it-is-missing").status_code == 503
        finally:
            for broker_id in kafka.broker_ids:
                kafka.resume(broker_id)

        def is_fresh() -> bool:
            answer = sidecar.api.get(path)
            return answer.headers["age"] == "0" and sidecar.admin.get("/readyz").status_code == 200

        wait_until(is_fresh, what="a ready sidecar with a fresh answer", last_seen=sidecar.log)
        assert sidecar.api.get(f"/v1/topics/{topic}/partitions/99").status_code == 404
