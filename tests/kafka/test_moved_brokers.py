"""All brokers stop and come back on other ports; of the bootstrap list one address survives, a TCP proxy.

acks=all, replication factor 3, min.insync.replicas 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.faulty_proxy import FaultyProxy
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster


def test_brokers_that_moved_altogether_are_found_again_without_a_restart(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=3, replication_factor=3, min_insync_replicas=2)
    with FaultyProxy(kafka.address(1)) as proxy:
        host, port = proxy.address
        bootstrap = f"{host}:{port},{kafka.bootstrap_servers.split(',')[1]}"
        with Sidecar(tmp_path, bootstrap_servers=bootstrap) as sidecar:
            assert sidecar.produce(topic, [{"value": "before"}]).status_code == 200
            old = {b["id"]: b["port"] for b in sidecar.api.get("/v1/cluster").json()["brokers"]}
            kafka.move_all_brokers()
            proxy.retarget(kafka.address(1))
            answer = sidecar.produce(topic, [{"value": "after"}])
            assert answer.status_code == 200, answer.text
            new = wait_until(
                lambda: (
                    (found := {b["id"]: b["port"] for b in sidecar.api.get("/v1/cluster").json()["brokers"]})
                    != old
                    and found
                ),
                what="the brokers' new ports",
                last_seen=sidecar.log,
            )
            assert new == {broker_id: kafka.address(broker_id)[1] for broker_id in kafka.broker_ids}
            assert (sidecar.metric("pilotfish_metadata_rebootstraps_total") or 0) >= 1
    # A broker that was killed knows a high watermark of some seconds ago, until its followers have asked.
    wait_until(
        lambda: sorted(r.value or b"" for r in kafka.read_back(topic)) == [b"after", b"before"],
        what="both records, and no other",
    )
