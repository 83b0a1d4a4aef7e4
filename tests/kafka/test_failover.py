"""Brokers are killed while records flow: nothing acknowledged is lost.

acks=all, replication factor 3, min.insync.replicas 2.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx

from tests.support.faulty_proxy import FaultyProxy
from tests.support.plain_http import NO_TLS
from tests.support.sidecar import ANSWER_TIMEOUT_S, Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster

RECORDS_PER_SECOND: Final = 200
WORKERS: Final = 40


@dataclass(slots=True)
class Load:
    """Single-record produces at a steady rate from many connections, and their outcomes."""

    sidecar: Sidecar
    topic: str
    #: The partition and the offset that each acknowledged value was answered with.
    acknowledged: dict[bytes, tuple[int, int | None]] = field(default_factory=dict)
    failed: dict[bytes, str] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        for worker in range(WORKERS):
            thread = threading.Thread(target=self._work, args=(worker,))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_TIMEOUT_S)
        assert not any(thread.is_alive() for thread in self._threads)

    def _work(self, worker: int) -> None:
        # The pace of one worker: all of them together send RECORDS_PER_SECOND.
        pause_s = WORKERS / RECORDS_PER_SECOND
        with httpx.Client(base_url=self.sidecar.api_url, timeout=ANSWER_TIMEOUT_S, verify=NO_TLS) as http:
            number = 0
            next_s = time.monotonic() + pause_s * worker / WORKERS
            while not self._stop.wait(max(0.0, next_s - time.monotonic())):
                next_s += pause_s
                value = f"{worker}-{number}"
                number += 1
                body = {"records": [{"value": value}], "value_format": "text"}
                answer = http.post(f"/v1/topics/{self.topic}/records", json=body)
                with self._lock:
                    if answer.status_code == 200:
                        (written,) = answer.json()["results"]
                        self.acknowledged[value.encode()] = written["partition"], written["offset"]
                    else:
                        self.failed[value.encode()] = answer.text


def leader_returned(sidecar: Sidecar, topic: str) -> int:
    """The leader of partition 0 as the sidecar returns it, no more than a second old."""
    query = {"partition": 0, "max_age_ms": 1_000}
    found: int = sidecar.api.get(f"/v1/topics/{topic}/leader", params=query).json()["leader"]["id"]
    return found


def test_a_killed_broker_loses_nothing_that_was_acknowledged_and_produce_resumes_by_itself(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=6, replication_factor=3, min_insync_replicas=2)
    # The brokers may still be giving leaders back to whom they belong, so both are asked until they agree.
    victim = wait_until(
        lambda: (found := kafka.admin.leader(topic, 0)) == leader_returned(sidecar, topic) and found,
        what="one leader",
    )
    version = sidecar.metric("pilotfish_metadata_update_version") or 0
    changes = sidecar.metric("pilotfish_metadata_leader_changes_total") or 0

    with Load(sidecar, topic) as load:
        wait_until(lambda: len(load.acknowledged) >= 2 * RECORDS_PER_SECOND, what="two seconds of records")
        kafka.kill(victim)
        elected = kafka.admin.wait_for_leader_other_than(topic, 0, victim)
        before = len(load.acknowledged)
        wait_until(
            lambda: len(load.acknowledged) >= before + 3 * RECORDS_PER_SECOND,
            what="produce that resumed after the election",
            last_seen=sidecar.log,
        )
        answered = leader_returned(sidecar, topic)
    assert answered == elected
    assert (sidecar.metric("pilotfish_metadata_update_version") or 0) > version
    assert (sidecar.metric("pilotfish_metadata_leader_changes_total") or 0) > changes

    read = kafka.read_back(topic)
    places = {r.value: (r.partition, r.offset) for r in read}
    wrong = {
        value: (said, places.get(value))
        for value, said in load.acknowledged.items()
        if said != places.get(value)
    }
    assert wrong == {}, "each acknowledged record is where its answer says"
    assert len(read) == len(places), "idempotence is on: no record may be there twice"
    assert load.failed == {}, "delivery.timeout.ms is far longer than an election"


def test_lookups_are_answered_from_memory_while_every_broker_is_down_and_nothing_is_called_ready(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=2, replication_factor=3, min_insync_replicas=2)
    assert sidecar.api.get(f"/v1/topics/{topic}").status_code == 200
    assert sidecar.produce(topic, [{"value": "x"}]).status_code == 200
    assert sidecar.admin.get("/readyz").status_code == 200
    remembered: dict[str, Any] = {
        path: sidecar.api.get(path).json()
        for path in (f"/topics/{topic}", f"/topics/{topic}/partitions", "/brokers", "/topics")
    }
    for broker_id in kafka.broker_ids:
        kafka.kill(broker_id)
    for path, before in remembered.items():
        answer = sidecar.api.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert answer.json() == before
    wait_until(lambda: sidecar.admin.get("/readyz", timeout=5).status_code == 503, what="not being ready")
    for query in ({"partition": "1"}, {"key": "a"}):
        looked_up = sidecar.api.get(f"/v1/topics/{topic}/leader", params=query, timeout=5)
        assert looked_up.status_code == 200
        assert int(looked_up.headers["age"]) >= 0
    assert sidecar.admin.get("/livez", timeout=5).status_code == 200

    started_s = time.monotonic()
    answer = sidecar.produce(topic, [{"value": "never sent"}], timeout_ms=3_000)
    assert time.monotonic() - started_s < patient(30.0)
    assert answer.status_code == 503, answer.text
    problem = answer.json()
    # Where the client has begun anew from its bootstrap list it waits for metadata, else for its leader.
    assert problem["phase"] in {"metadata", "delivery"}
    assert problem["written"] == "no"

    for broker_id in kafka.broker_ids:
        kafka.restart(broker_id)
    resumed = sidecar.produce(topic, [{"value": "after all"}])
    assert resumed.status_code == 200, resumed.text
    assert b"after all" in [r.value for r in kafka.read_back(topic)]


# -- all brokers move ----------------------------------------------------------------------------------------


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
    assert sorted(r.value or b"" for r in kafka.read_back(topic)) == [b"after", b"before"]
