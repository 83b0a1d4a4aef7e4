"""The spool on real brokers: records that were answered 202 while Kafka was away arrive, after a kill too.

acks=all, replication factor 3, min.insync.replicas 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster

REQUESTS = 50


def spool(sidecar: Sidecar, topic: str, *values: str) -> httpx.Response:
    records = [{"value": value, "key": "k"} for value in values]
    return sidecar.produce(topic, records, delivery="spool")


def entries(sidecar: Sidecar) -> int:
    found: int = sidecar.api.get("/v1/status").json()["spool"]["entries"]
    return found


def test_records_spooled_while_kafka_was_away_arrive_in_order_after_a_kill(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=3, replication_factor=3, min_insync_replicas=2)
    gone = new_topic(partitions=1, replication_factor=1)
    flags = ["--spool-folder", str(tmp_path / "spool"), "--spool-topic-wait-ms", "3000"]
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=flags) as sidecar:
        assert sidecar.produce(topic, [{"value": "warm", "key": "k"}]).status_code == 200
        for broker_id in kafka.broker_ids:
            kafka.pause(broker_id)
        assert spool(sidecar, gone, "never").status_code == 202
        for request in range(REQUESTS):
            assert spool(sidecar, topic, f"{request}-a", f"{request}-b").status_code == 202
        assert entries(sidecar) == 2 * REQUESTS + 1
        sidecar.process.kill()
        sidecar.process.wait(timeout=patient(30))
        for broker_id in kafka.broker_ids:
            kafka.resume(broker_id)
        kafka.admin.delete_topic(gone)
        sidecar.start()
        wait_until(lambda: entries(sidecar) == 0, what="an empty spool", last_seen=sidecar.log)
        status = sidecar.api.get("/v1/status").json()["spool"]
        assert sidecar.terminate() == 0
    assert status["set_aside"] == 1
    values = [(record.value or b"").decode() for record in kafka.read_back(topic)]
    # What was in flight at the kill may be there twice.
    seen = [value for value in dict.fromkeys(values) if value != "warm"]
    assert seen == [f"{request}-{part}" for request in range(REQUESTS) for part in "ab"]
