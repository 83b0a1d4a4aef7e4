"""Brokers that create missing topics do so for a produce, but not for a look-up or for advice from a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster


def test_advised_topics_are_known_before_anyone_asks_and_missing_ones_are_not_created(
    auto_creating_kafka: KraftCluster, new_topic: NewTopic, topic_name: Callable[[], str], tmp_path: Path
) -> None:
    cluster = auto_creating_kafka
    there, foreign, missing = new_topic(on=cluster), new_topic(on=cluster), topic_name()
    of_cluster = {
        "cluster_id": cluster.cluster_id,
        "service": "billing",
        "warm_topics": [there, missing],
        "refresh_max_age_ms": 45_000,
        "computed_at": datetime.now(UTC).isoformat(),
        "ttl_ms": 60_000,
    }
    of_another = {
        **of_cluster,
        "cluster_id": "another",
        "warm_topics": [foreign],
        "refresh_max_age_ms": 20_000,
    }
    advice = tmp_path / "advice.json"
    advice.write_text(json.dumps({"version": 1, "advice": [of_another, of_cluster]}))
    settings = {"PILOTFISH_ADVICE": str(advice), "PILOTFISH_SERVICE_NAME": "billing"}
    with Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, environment=settings) as sidecar:
        wait_until(
            lambda: "1 of 2 topics exist and are kept known" in sidecar.log(),
            what="a line about the advice",
            last_seen=sidecar.log,
        )
        metadata = sidecar.api.get("/v1/status").json()["metadata"]
        assert (metadata["topics"], metadata["max_age_ms"]) == (1, 45_000)
        answer = sidecar.api.get(f"/v1/topics/{there}", params={"max_block_ms": 0})
        assert (answer.status_code, len(answer.json()["partitions"])) == (200, 3)
        assert sidecar.produce(there, [{"value": "x"}]).status_code == 200
        scraped = sidecar.admin.get("/metrics").text
        assert 'pilotfish_advice_info{outcome="used"} 1.0' in scraped
    assert missing not in cluster.admin.topics()


def test_a_produce_creates_its_topic_where_the_setting_and_the_brokers_allow_it(
    auto_creating_kafka: KraftCluster, topic_name: Callable[[], str], tmp_path: Path
) -> None:
    """acks=all on one broker: replication factor 1, min.insync.replicas 1."""
    cluster = auto_creating_kafka
    flags = ["--auto-create-topics"]
    with Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, flags=flags) as sidecar:
        looked_for, produced_to = topic_name(), topic_name()
        assert sidecar.api.get(f"/v1/topics/{looked_for}").status_code == 404
        assert looked_for not in cluster.admin.topics()
        answer = sidecar.produce(produced_to, [{"value": "x"}])
        assert answer.status_code == 200, answer.text
    assert [r.value for r in cluster.read_back(produced_to)] == [b"x"]
