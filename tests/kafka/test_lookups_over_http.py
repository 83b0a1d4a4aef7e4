"""The sidecar returns the same metadata as another client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.shared_sidecar import SharedSidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster
    from tests.support.sidecar import Sidecar


@pytest.fixture(scope="module")
def shared_sidecar(
    kafka_of_the_session: KraftCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedSidecar]:
    settings = {"metadata.max.age.ms": "1000"}
    folder = tmp_path_factory.mktemp("lookups")
    with SharedSidecar(folder, kafka_of_the_session, settings=settings) as shared:
        yield shared


@pytest.fixture
def sidecar(kafka: KraftCluster, shared_sidecar: SharedSidecar) -> Sidecar:
    return shared_sidecar.running()


def test_brokers_are_those_that_another_client_sees(kafka: KraftCluster, sidecar: Sidecar) -> None:
    answer = sidecar.api.get("/v1/cluster").json()
    assert {b["id"]: (b["host"], b["port"]) for b in answer["brokers"]} == kafka.admin.brokers()
    assert answer["cluster_id"] == kafka.cluster_id


def test_leaders_replicas_and_isr_are_those_that_another_client_sees(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=6, replication_factor=3, min_insync_replicas=2)
    seen = kafka.admin.partitions(topic)
    assert seen is not None
    answer = sidecar.api.get(f"/v1/topics/{topic}").json()
    assert [
        (p["partition"], p["leader"]["id"], sorted(p["replicas"]), sorted(p["isr"]))
        for p in answer["partitions"]
    ] == [(s.partition, s.leader, sorted(s.replicas), sorted(s.isr)) for s in seen]
    for partition in seen:
        leader = sidecar.api.get(
            f"/v1/topics/{topic}/leader", params={"partition": partition.partition}
        ).json()
        assert leader["leader"]["id"] == partition.leader
        assert (leader["leader"]["host"], leader["leader"]["port"]) == kafka.address(partition.leader or 0)


def test_the_list_of_topics_names_them_all(
    new_topic: NewTopic, kafka: KraftCluster, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=5)
    listed = {t["name"]: t for t in sidecar.api.get("/v1/topics").json()["topics"]}
    assert listed[topic]["partition_count"] == 5
    assert set(listed) == {name for name in kafka.admin.topics() if not name.startswith("__")}


def test_a_topic_created_after_the_first_lookup_appears_within_max_block_ms(
    kafka: KraftCluster, topic_name: Callable[[], str], sidecar: Sidecar
) -> None:
    topic = topic_name()
    assert sidecar.api.get(f"/v1/topics/{topic}").status_code == 404
    kafka.admin.create_topic(topic, partitions=2, replication_factor=1)
    answer = sidecar.api.get(f"/v1/topics/{topic}", params={"max_block_ms": 10_000})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["partitions"]) == 2


def test_a_topic_deleted_and_created_again_is_followed_by_lookups_and_produces(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    """acks=all, replication factor 3, min.insync.replicas 2."""
    topic = new_topic(partitions=2, replication_factor=3, min_insync_replicas=2)
    assert sidecar.produce(topic, [{"value": "before", "partition": 0}]).status_code == 200
    before = sidecar.api.get(f"/v1/topics/{topic}").json()
    kafka.admin.delete_topic(topic)
    kafka.admin.create_topic(topic, partitions=4, replication_factor=3, config={"min.insync.replicas": "2"})
    answer = sidecar.produce(topic, [{"value": "after", "partition": 3}], max_block_ms=30_000)
    assert answer.status_code == 200, answer.text
    after = wait_until(
        lambda: (found := sidecar.api.get(f"/v1/topics/{topic}").json())["id"] != before["id"] and found,
        what="the new topic's id",
    )
    assert len(after["partitions"]) == 4
    assert [(r.partition, r.value) for r in kafka.read_back(topic)] == [(3, b"after")]


def test_offsets_are_those_that_another_client_sees_also_after_the_leader_has_moved(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=2, replication_factor=3, min_insync_replicas=2)

    def seen() -> list[dict[str, int]]:
        paths = [f"{api}/topics/{topic}/partitions/1/offsets" for api in ("/v1", "")]
        answers = [sidecar.api.get(path) for path in paths]
        assert [answer.status_code for answer in answers] == [200, 200], [a.text for a in answers]
        return [answer.json() for answer in answers]

    assert seen() == [{"beginning_offset": 0, "end_offset": 0}] * 2
    records = [{"topic": topic, "value": n, "partition": 1} for n in range(3)]
    assert sidecar.api.post("/v1/records", json={"records": records}).status_code == 200
    assert seen() == [{"beginning_offset": 0, "end_offset": 3}] * 2
    assert kafka.admin.high_watermarks(topic)[1] == 3
    kafka.admin.move_leader(topic, 1)
    assert seen() == [{"beginning_offset": 0, "end_offset": 3}] * 2


def test_a_refresh_moves_the_version(sidecar: Sidecar) -> None:
    before = sidecar.metric("pilotfish_metadata_update_version")
    answer = sidecar.api.post("/v1/metadata/refresh", params={"max_block_ms": 5_000})
    assert answer.status_code == 200, answer.text
    after = sidecar.metric("pilotfish_metadata_update_version")
    assert before is not None
    assert after is not None
    assert after > before
