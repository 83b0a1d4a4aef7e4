"""A broker that died: records without a key keep away from what it leads, all others wait for it."""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core import NO_EVENTS, KafkaProducer, MetadataResult, ProducerRecord, RecordMetadata
from client_core.clock import FOREVER_MS
from client_core.events import NodeDisconnected, NodeReady
from client_core.producer.accumulator.partitioner import BuiltInPartitioner, LostLeaders, PartitionLoad
from client_core.protocol.api_keys import ApiKey
from tests.producer.batches import RECORD, TOPIC, Bench, Leaders, Owner, numbered, queued
from tests.support.live_producer import PATIENCE_S, look_up, producing, submit
from tests.support.producer_rig import ProducerRig
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client_core import EventSink
    from client_core.testing import FakeCluster

#: Batches so small that each record or two goes to another partition.
ON: Final = {"partitioner.lost.leader.probe.interval.ms": 20, "batch.size": 1_000}


# -- who is lost ---------------------------------------------------------------------------------------------


def test_a_lost_leader_is_tried_again_every_interval_until_it_is_found() -> None:
    lost = LostLeaders(300)
    assert (lost.node_ids, lost.next_probe_ms, lost.due(10**9)) == (frozenset(), FOREVER_MS, [])
    lost.lost(1, now_ms=1_000)
    lost.lost(2, now_ms=1_100)
    before = lost.node_ids
    lost.lost(1, now_ms=1_200)  # which does not put it off
    assert lost.node_ids is before == {1, 2}
    assert lost.next_probe_ms == 1_300
    assert lost.due(1_299) == []
    assert lost.due(1_300) == [1]
    assert lost.next_probe_ms == 1_400
    assert lost.due(1_400) == [2]
    assert lost.due(1_600) == [1]
    lost.found(1)
    lost.found(7)
    assert lost.node_ids == {2}
    assert repr(lost) == "<LostLeaders [2]>"


def test_without_an_interval_nobody_is_lost() -> None:
    lost = LostLeaders(0)
    lost.lost(1, now_ms=5)
    assert (lost.node_ids, lost.next_probe_ms) == (frozenset(), FOREVER_MS)


# -- where records without a key go --------------------------------------------------------------------------


def partitions_chosen(partitioner: BuiltInPartitioner, leaders: Leaders, times: int = 200) -> set[int]:
    chosen = set()
    for _ in range(times):
        chosen.add(partitioner.current_partition(leaders.cluster))
        partitioner.update(1, leaders.cluster, enable_switch=True)
    return chosen


def test_partitions_of_lost_leaders_are_not_chosen_unless_there_are_no_others() -> None:
    leaders, lost = Leaders((0, 0, 1, None)), LostLeaders(300)
    partitioner = BuiltInPartitioner(TOPIC, 1, Random(5), lost)
    assert partitions_chosen(partitioner, leaders) == {0, 1, 2}
    lost.lost(0, 0)
    assert partitions_chosen(partitioner, leaders) == {2}
    lost.lost(1, 0)
    assert partitions_chosen(partitioner, leaders) == {0, 1, 2}
    lost.found(0)
    assert partitions_chosen(partitioner, leaders) == {0, 1}
    lost.found(1)
    assert partitions_chosen(partitioner, leaders) == {0, 1, 2}


def test_the_sticky_partition_is_left_at_once_when_its_leader_is_lost_and_kept_otherwise() -> None:
    leaders, lost = Leaders((0, 1)), LostLeaders(300)
    partitioner = BuiltInPartitioner(TOPIC, 1_000, Random(5), lost)
    first = partitioner.current_partition(leaders.cluster)
    partitioner.update(100, leaders.cluster, enable_switch=True)
    lost.lost(1 - first, 0)
    assert partitioner.current_partition(leaders.cluster) == first
    lost.found(1 - first)
    lost.lost(first, 0)
    other = partitioner.current_partition(leaders.cluster)
    assert other == 1 - first
    lost.found(first)
    assert partitioner.current_partition(leaders.cluster) == other


def test_the_queues_lengths_of_before_choose_no_lost_leader() -> None:
    leaders, lost = Leaders((0, 1)), LostLeaders(300)
    partitioner = BuiltInPartitioner(TOPIC, 1, Random(5), lost)
    partitioner.load = PartitionLoad({0: 0, 1: 90}, (0, 1), 2)
    assert 0 in partitions_chosen(partitioner, leaders)
    lost.lost(0, 0)
    assert partitions_chosen(partitioner, leaders) == {1}


# -- what waits already --------------------------------------------------------------------------------------


def bench_of(**settings: Any) -> Bench:
    return Bench(lost_leader_probe_interval_ms=300, leaders=(0, 0, 1), **settings)


def sticky_partition(bench: Bench) -> int:
    """Where a first record without a key goes, that leader's partitions being those to lose."""
    bench.append([RECORD], partition=None)
    (partition,) = [p for p in range(3) if queued(bench, p)]
    return partition


def leave(bench: Bench, node_id: int) -> None:
    bench.accumulator.lost_leaders.lost(node_id, bench.now_ms)
    bench.accumulator.leave_lost_leaders(bench.leaders)


def leader_of(partition: int) -> int:
    return (0, 0, 1)[partition]


def test_what_has_no_key_and_was_not_sent_is_given_to_others_and_told_of_where_it_went() -> None:
    bench, owner = bench_of(), Owner()
    lost = sticky_partition(bench)
    bench.append(numbered(3), partition=None, owner=owner)
    assert queued(bench, lost) == [4]
    leave(bench, leader_of(lost))
    assert queued(bench, lost) == []
    (batch,) = bench.drain(1 - leader_of(lost))
    assert leader_of(batch.topic_partition.partition) != leader_of(lost)
    bench.finish(batch, base_offset=70)
    assert {receipt.partition for receipt in owner.receipts.values()} == {batch.topic_partition.partition}
    assert [owner.receipts[n].offset for n in range(3)] == [71, 72, 73]
    assert not bench.accumulator.has_incomplete
    assert bench.pool.available_bytes == bench.pool.total_bytes


@pytest.mark.parametrize("keyed_first", [True, False])
def test_a_batch_in_which_a_record_chose_its_partition_stays(keyed_first: bool) -> None:
    bench = bench_of()
    lost = sticky_partition(bench)
    if keyed_first:
        bench.drain_and_finish_all()
        bench.append([RECORD], partition=lost)
    else:
        bench.append([RECORD], partition=lost)
    bench.append([RECORD], partition=None)
    waiting = queued(bench, lost)
    assert len(waiting) == 1
    leave(bench, leader_of(lost))
    assert queued(bench, lost) == waiting


def test_what_was_sent_stays_with_its_partition() -> None:
    bench = bench_of()
    lost = sticky_partition(bench)
    (batch,) = bench.drain(leader_of(lost))
    bench.accumulator.reenqueue(batch, bench.now_ms)
    leave(bench, leader_of(lost))
    assert queued(bench, lost) == [1]


def test_where_every_leader_is_lost_nothing_moves() -> None:
    bench = bench_of()
    lost = sticky_partition(bench)
    bench.accumulator.lost_leaders.lost(1 - leader_of(lost), bench.now_ms)
    leave(bench, leader_of(lost))
    assert queued(bench, lost) == [1]


def test_several_batches_are_spread_over_those_that_are_left() -> None:
    bench = Bench(
        batch_bytes=128, lost_leader_probe_interval_ms=300, leaders=(0, 1, 2, 2, 2), random=Random(2)
    )
    for number in range(200):
        bench.append(numbered(1, number), partition=None)
    before = [len(queued(bench, p)) for p in range(5)]
    assert before[0] > 3
    leave(bench, 0)
    after = [len(queued(bench, p)) for p in range(5)]
    assert (after[0], sum(after)) == (0, sum(before))
    assert sum(now > then for then, now in zip(before, after, strict=True)) > 1
    assert sum(sum(queued(bench, p)) for p in range(5)) == 200


def test_a_flush_waits_for_what_moved() -> None:
    bench = bench_of(linger_ms=10_000)
    lost = sticky_partition(bench)
    flush = bench.accumulator.begin_flush()
    leave(bench, leader_of(lost))
    assert not flush.is_done
    bench.drain_and_finish_all()
    assert flush.is_done


# -- a whole producer ----------------------------------------------------------------------------------------


@contextmanager
def six_partitions(
    settings: dict[str, Any] | None = None, events: EventSink = NO_EVENTS
) -> Iterator[tuple[FakeCluster, KafkaProducer]]:
    """Of which each of three brokers leads two, and no other broker has a replica."""
    with producing({**ON, **(settings or {})}, brokers=3, partitions=6, events=events) as (cluster, producer):
        look_up(producer, "orders").result(MetadataResult)
        yield cluster, producer


def partitions_of(cluster: FakeCluster, broker_id: int) -> set[int]:
    return {p for p in range(6) if cluster.partition("orders", p).leader == broker_id}


def written_to(producer: KafkaProducer, count: int = 40) -> set[int]:
    """The partitions of so many records without a key, each sent when the one before was acknowledged."""
    went = set()
    for number in range(count):
        (outcome,) = submit(producer, "orders", [b"%0900d" % number]).outcomes()
        assert isinstance(outcome, RecordMetadata), outcome
        went.add(outcome.partition)
    return went


def test_records_without_a_key_go_on_while_a_broker_is_dead_and_to_it_when_it_is_back() -> None:
    events = RecordedEvents()
    with producing(ON, brokers=3, partitions=6, events=events) as (cluster, producer):
        assert written_to(producer, 200) == set(range(6))
        lost = partitions_of(cluster, 2)
        cluster.kill(2, elect=False)
        assert not written_to(producer, 200) & lost
        keyed = submit(producer, "orders", [b"keyed"], partition=min(lost))
        assert not written_to(producer, 50) & lost
        assert not keyed.is_reported
        cluster.revive(2)
        keyed.offsets()
        assert written_to(producer, 200) == set(range(6))


def test_what_waits_when_the_broker_dies_is_written_elsewhere_once() -> None:
    events = RecordedEvents()
    with six_partitions({"linger.ms": 9_000}, events) as (cluster, producer):
        first = producer.send(ProducerRecord("orders", b"first"))
        (waiting,) = [b.topic_partition.partition for b in producer._accumulator.incomplete()]
        broker_id = cluster.partition("orders", waiting).leader
        assert broker_id is not None
        cluster.kill(broker_id, elect=False)
        if any(ready.node_id == broker_id for ready in events.of(NodeReady)):
            # Else it could be sent before the end of the connection is seen, and then it is bound to it.
            events.wait_for(NodeDisconnected, lambda ended: ended.node_id == broker_id)
        second = producer.send(ProducerRecord("orders", b"second"))
        producer.flush()
        assert first.result(PATIENCE_S).partition not in partitions_of(cluster, broker_id)
        second.result(PATIENCE_S)
        written = [record.value for record in cluster.records("orders")]
        assert (written.count(b"first"), written.count(b"second")) == (1, 1)


def test_what_was_sent_waits_for_its_broker_and_is_written_once() -> None:
    with six_partitions() as (cluster, producer):
        hold = cluster.hold_next(ApiKey.PRODUCE)
        sent = submit(producer, "orders", [b"sent"])
        hold.wait_until_held()
        (batch,) = producer._accumulator.incomplete()
        broker_id = batch.sent_to
        assert broker_id is not None
        cluster.kill(broker_id, elect=False)
        hold.release()
        assert not written_to(producer) & partitions_of(cluster, broker_id)
        assert not sent.is_reported
        cluster.revive(broker_id)
        (outcome,) = sent.outcomes()
        assert isinstance(outcome, RecordMetadata)
        assert outcome.partition == batch.topic_partition.partition
        assert [r.value for r in cluster.records("orders")].count(b"sent") == 1


def test_a_new_leader_is_sent_to_although_the_old_one_is_lost() -> None:
    with producing({**ON, "metadata.max.age.ms": 200}, brokers=3, partitions=6, replication_factor=3) as (
        cluster,
        producer,
    ):
        assert written_to(producer, 200) == set(range(6))
        cluster.kill(2)
        assert written_to(producer, 200) == set(range(6))


def test_where_no_broker_is_left_records_wait_for_any() -> None:
    with six_partitions() as (cluster, producer):
        for broker_id in (1, 2, 3):
            cluster.kill(broker_id, elect=False)
        reported = [submit(producer, "orders", [b"%d" % n]) for n in range(5)]
        for broker_id in (1, 2, 3):
            cluster.revive(broker_id)
        for one in reported:
            one.offsets()


@pytest.mark.parametrize("has_option", [True, False])
def test_while_records_wait_for_a_lost_leader_another_is_asked_for_at_every_probe(
    has_option: bool,
) -> None:
    interval_ms = 300 if has_option else 0
    rig = ProducerRig(
        topics={"orders": 1},
        partitioner_lost_leader_probe_interval_ms=interval_ms,
        retry_backoff_max_ms=9_000,
    )
    node = rig.client.least_loaded_node(rig.clock.now_ms()).node
    assert node is not None
    rig.client.set_unreachable(node, 60_000)
    rig.submit("orders", b"a", turns=1)
    for _ in range(8):
        rig.metadata.request_update(False)
        rig.know({"orders": 1})  # who leads it is still the lost one, and the pauses grow
    assert rig.metadata.time_to_allow_update(rig.clock.now_ms()) > 1_000
    rig.turn_after(300)
    is_due = rig.metadata.time_to_next_update(rig.clock.now_ms()) == 0
    assert is_due is has_option


def test_without_the_option_records_wait_for_the_leader_that_they_were_given() -> None:
    with six_partitions({"linger.ms": 9_000, "partitioner.lost.leader.probe.interval.ms": 0}) as (
        cluster,
        producer,
    ):
        future = producer.send(ProducerRecord("orders", b"first"))
        (batch,) = producer._accumulator.incomplete()
        broker_id = cluster.partition("orders", batch.topic_partition.partition).leader
        assert broker_id is not None
        cluster.kill(broker_id, elect=False)
        cluster.revive(broker_id)
        producer.flush()
        assert future.result(PATIENCE_S).partition == batch.topic_partition.partition
