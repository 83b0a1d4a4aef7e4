"""Brokers that replicate: what they acknowledge, keep, drop and forget, as a producer sees it."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from client_core import NO_EVENTS, ProducerConfig, ProducerRecord, RecordFailure, Result, Written
from client_core.testing.controller import TopicConfig
from tests.simulation.brokers import ReplicatedBrokers
from tests.simulation.replication import REPLICA_LAG_MS, SESSION_MS
from tests.simulation.sidecar import SimulatedProducer
from tests.simulation.world import SimulatedClock, World

TOPIC: Final = "orders"
PLACE: Final = (TOPIC, 0)
#: Partition 0 is led by it at first.
LEADER: Final = 1
_SETTINGS: Final = {
    "bootstrap.servers": "10.0.0.1:9001",
    "linger.ms": "0",
    "request.timeout.ms": "300",
    "metadata.max.age.ms": "500",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "100",
}


class Cluster:
    """Three brokers, a topic of one partition, and a producer."""

    def __init__(
        self,
        *,
        seed: int = 1,
        partitions: int = 1,
        min_insync_replicas: int = 2,
        unclean: bool = False,
        delivery_timeout_ms: int = 5_000,
    ) -> None:
        self.world = World(1)
        self.brokers = ReplicatedBrokers(self.world, Random(1))
        config = TopicConfig(min_insync_replicas=min_insync_replicas)
        self.brokers.create_topic(TOPIC, partitions, config, unclean=unclean)
        self.producer = SimulatedProducer(
            self.world,
            self.brokers,
            ProducerConfig.from_mapping({**_SETTINGS, "delivery.timeout.ms": str(delivery_timeout_ms)}),
            SimulatedClock(self.world),
            Random(seed),
            "client",
            events=NO_EVENTS,
        )
        self.producer.start()

    def send(self, value: bytes, *, within_ms: int = 4_000) -> list[Result]:
        """Submits a record; its result is in the list once it is known."""
        results: list[Result] = []
        now_ms = self.world.now_ms
        self.producer.submit(
            TOPIC,
            [ProducerRecord(TOPIC, value)],
            block_deadline_ms=now_ms + within_ms,
            deadline_ms=now_ms + within_ms,
            done=results.append,
        )
        return results

    def sent(self, value: bytes) -> Result:
        """The same, and runs until the result is known."""
        results = self.send(value)
        assert self.world.run_until(lambda: bool(results), 10_000)
        return results[0]

    def run_for(self, ms: int) -> None:
        self.world.run_until(lambda: False, ms)

    def values(self, broker_id: int) -> list[bytes | None]:
        return [record.value for record in self.brokers.replica(broker_id, PLACE).log.records(0)]

    @property
    def leader(self) -> int | None:
        return self.brokers.true(PLACE).leader

    @property
    def isr(self) -> list[int]:
        return list(self.brokers.true(PLACE).isr)


def test_a_record_is_acknowledged_when_all_in_sync_replicas_have_it() -> None:
    cluster = Cluster()
    cluster.sent(b"a")
    cluster.brokers.slow[2] = 150
    results = cluster.send(b"b")
    cluster.run_for(100)
    assert not results
    assert cluster.values(LEADER) == [b"a", b"b"]
    assert cluster.values(2) == [b"a"]
    cluster.run_for(100)
    assert results
    assert results[0].any_acknowledged
    assert cluster.values(2) == [b"a", b"b"]


def test_a_leader_with_old_metadata_waits_for_a_replica_that_it_has_let_in() -> None:
    """Seed 532413: it acknowledged without that one, which was the next leader."""
    cluster = Cluster()
    cluster.brokers.kill(2)
    cluster.sent(b"a")
    cluster.run_for(5_000)
    assert 2 not in cluster.isr
    cluster.brokers.state.controller.freeze(LEADER)
    cluster.brokers.start(2)
    cluster.run_for(500)
    assert 2 in cluster.isr
    cluster.brokers.slow[2] = 150
    results = cluster.send(b"b")
    cluster.run_for(100)
    assert not results
    cluster.run_for(100)
    assert results
    assert results[0].any_acknowledged
    assert cluster.values(2) == [b"a", b"b"]


def test_a_replica_that_is_too_slow_leaves_the_in_sync_replicas_and_returns() -> None:
    cluster = Cluster()
    cluster.sent(b"a")
    cluster.brokers.slow[2] = 10 * REPLICA_LAG_MS
    assert cluster.sent(b"b").any_acknowledged
    assert cluster.isr == [1, 3]
    cluster.brokers.slow.clear()
    cluster.run_for(20 * REPLICA_LAG_MS)
    assert cluster.isr == [1, 2, 3]


def test_without_enough_replicas_nothing_is_acknowledged() -> None:
    cluster = Cluster(min_insync_replicas=3)
    cluster.sent(b"a")
    cluster.brokers.kill(2)
    outcome = cluster.sent(b"b").outcomes[0]
    assert isinstance(outcome, RecordFailure)
    assert outcome.written is Written.UNKNOWN, "it was in the leader's log before the replica left"
    cluster.brokers.start(2)
    cluster.run_for(2_000)
    assert cluster.sent(b"c").any_acknowledged


def test_another_replica_leads_after_the_session_of_a_dead_leader() -> None:
    cluster = Cluster()
    cluster.sent(b"a")
    cluster.brokers.kill(LEADER)
    cluster.run_for(SESSION_MS - 1)
    assert cluster.leader == LEADER
    cluster.run_for(2)
    assert cluster.leader == 2
    assert cluster.sent(b"b").any_acknowledged
    assert cluster.values(3) == [b"a", b"b"]


def test_what_only_the_old_leader_has_is_cut_off_when_it_follows() -> None:
    cluster = Cluster(delivery_timeout_ms=400)
    cluster.sent(b"a")
    cluster.brokers.isolate(LEADER)
    alone = cluster.send(b"alone")
    cluster.run_for(SESSION_MS + 1_000)
    assert isinstance(alone[0].outcomes[0], RecordFailure), "a fenced leader acknowledges nothing"
    assert cluster.values(LEADER) == [b"a", b"alone"]
    cluster.brokers.rejoin(LEADER)
    cluster.run_for(500)
    assert cluster.values(LEADER) == cluster.values(2)
    assert cluster.brokers.truncated == {b"alone"}
    assert not cluster.brokers.lost_by_kafka


def test_an_unclean_leader_loses_what_was_acknowledged_and_that_is_noted() -> None:
    cluster = Cluster(min_insync_replicas=1, unclean=True)
    cluster.sent(b"a")
    for broker_id in (2, 3):
        cluster.brokers.kill(broker_id)
    cluster.run_for(SESSION_MS + 1)
    assert cluster.sent(b"b").any_acknowledged
    cluster.brokers.kill(LEADER)
    cluster.brokers.start(3)
    cluster.run_for(SESSION_MS + 2 * REPLICA_LAG_MS)
    assert cluster.leader == 3
    assert cluster.brokers.lost_by_kafka == {b"b"}
    cluster.brokers.heal()
    cluster.run_for(2_000)
    assert cluster.values(LEADER) == [b"a"]


def test_a_clean_election_waits_for_the_last_replica_in_sync() -> None:
    cluster = Cluster(min_insync_replicas=1)
    cluster.sent(b"a")
    for broker_id in (2, 3):
        cluster.brokers.kill(broker_id)
    cluster.run_for(SESSION_MS + 1)
    assert cluster.sent(b"b").any_acknowledged
    cluster.brokers.kill(LEADER)
    cluster.brokers.start(3)
    cluster.run_for(SESSION_MS + 2 * REPLICA_LAG_MS)
    assert cluster.leader is None
    cluster.brokers.start(LEADER)
    cluster.run_for(2_000)
    assert cluster.values(3) == [b"a", b"b"]


def test_a_request_that_a_cut_link_holds_arrives_later_and_is_stored_once() -> None:
    cluster = Cluster()
    cluster.sent(b"a")
    link = cluster.brokers.links[LEADER]
    link.answers_pass = False
    results = cluster.send(b"b")
    cluster.run_for(200)
    assert cluster.values(LEADER) == [b"a", b"b"]
    assert not results
    link.heal()
    cluster.run_for(1_000)
    assert results[0].any_acknowledged
    assert cluster.values(LEADER) == [b"a", b"b"]


def test_a_topic_that_is_deleted_takes_its_records_with_it() -> None:
    cluster = Cluster()
    cluster.sent(b"a")
    cluster.brokers.delete_topic(TOPIC)
    cluster.brokers.create_topic(TOPIC, 1, TopicConfig(min_insync_replicas=2), unclean=False)
    assert cluster.sent(b"b").any_acknowledged
    assert [cluster.values(broker_id) for broker_id in (1, 2, 3)] == [[b"b"]] * 3


def test_a_leader_that_does_not_know_of_the_end_of_its_topic_acknowledges_nothing() -> None:
    cluster = Cluster()
    cluster.sent(b"a")
    cluster.brokers.isolate(LEADER)
    results = cluster.send(b"b", within_ms=1_000)
    cluster.run_for(5)
    cluster.brokers.delete_topic(TOPIC)
    cluster.run_for(1_100)
    outcome = results[0].outcomes[0]
    assert isinstance(outcome, RecordFailure)
    assert outcome.written is Written.UNKNOWN, "that leader has it"


@pytest.mark.parametrize("seed", range(8))
def test_a_record_without_a_key_goes_to_a_partition_that_there_is(seed: int) -> None:
    """Seed 204 of `make simulate`: the sticky partition was one that the topic had before it was deleted."""
    cluster = Cluster(partitions=5, seed=seed)
    assert cluster.sent(b"a").any_acknowledged
    cluster.brokers.delete_topic(TOPIC)
    cluster.brokers.create_topic(TOPIC, 1, TopicConfig(min_insync_replicas=2), unclean=False)
    cluster.run_for(1_000)
    assert cluster.sent(b"b").any_acknowledged
    assert cluster.values(LEADER) == [b"b"]
