"""A topic that is not held any more leaves nothing behind, and no record is lost or doubled by that."""

from __future__ import annotations

import gc
from random import Random
from typing import TYPE_CHECKING, Final
from weakref import ref

import pytest

from client_core.cluster import TopicPartition
from client_core.producer.accumulator.batch_drain import DrainOrder
from client_core.producer.accumulator.partitioner import BuiltInPartitioner
from client_core.producer.accumulator.topic_queues import WaitingQueues
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.transaction_manager import MOST_LEFT
from tests.golden.adapters_producer import cluster_of
from tests.producer.batches import RECORD, TOPIC, Bench, CountingSequences
from tests.producer.sequence_rig import PRODUCER, drain, first_in_flight_sequence, manager
from tests.soak.simulated import SimulatedSoak
from tests.support.hostile_runs import without_log
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import ORDERS_0, ORDERS_1

if TYPE_CHECKING:
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.sender.transaction_manager import TransactionManager

IDLE_MS: Final = 400_000


def nothing_is_held(_: str) -> bool:
    return False


# -- the accumulator -----------------------------------------------------------------------------------------


def test_queues_and_sequences_go_with_a_topic_that_is_not_held_and_stay_with_one_that_is() -> None:
    for is_held, topics, left in (
        (nothing_is_held, [], [TopicPartition(TOPIC, 0)]),
        (TOPIC.__eq__, [TOPIC], []),
    ):
        sequences = CountingSequences()
        bench = Bench(sequences=sequences)
        bench.append([RECORD])
        bench.drain_and_finish_all()
        bench.accumulator.forget_topics(is_held)
        assert (list(bench.accumulator._queues.topics), sequences.left) == (topics, left)


def test_a_topic_with_a_batch_that_waits_keeps_its_queues_and_one_in_flight_comes_back_to_it() -> None:
    bench = Bench(retry_backoff_ms=0, retry_backoff_max_ms=0)
    bench.append([RECORD])
    bench.accumulator.forget_topics(nothing_is_held)
    (batch,) = bench.drain()
    assert batch.record_count == 1
    bench.accumulator.forget_topics(nothing_is_held)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    assert bench.drain() == [batch]


# -- the accumulator -----------------------------------------------------------------------------------------


def test_an_append_to_queues_that_were_just_forgotten_takes_the_new_ones() -> None:
    bench = Bench()
    appender = bench.accumulator.appender
    old = appender.queues_of(TOPIC)

    class Stale(WaitingQueues):
        """Returns the old queues once more, as if they had been forgotten right after they were found."""

        __slots__ = ("asked",)

        def topic(self, name: str) -> object:  # type: ignore[override]
            if not hasattr(self, "asked"):
                self.asked = True
                return old
            return bench.accumulator._queues.topic(name)

    bench.accumulator.forget_topics(nothing_is_held)
    appender._queues = Stale(lambda _: old.partitioner)
    bench.append([RECORD])
    assert not old.partitions
    assert bench.accumulator._queues.topics[TOPIC].partitions.keys() == {0}


def test_the_drain_order_forgets_topics_without_queues_and_brokers_that_left() -> None:
    order = DrainOrder()
    order.use(cluster_of([0, 1]), {"t"})
    order.got_round(1)
    order.use(cluster_of([0, 0]), set())
    assert not order._places
    assert not order._starts


# -- snapshots of the past -----------------------------------------------------------------------------------


def test_an_unused_partitioner_keeps_no_snapshot() -> None:
    partitioner = BuiltInPartitioner("t", 1, Random(1))
    cluster = cluster_of([0, 1])
    partitioner.current_partition(cluster)
    gone = ref(cluster)
    del cluster
    gc.collect()
    assert gone() is None


def test_the_short_way_of_records_keeps_no_snapshot_but_the_last() -> None:
    rig = ProducerRig(topics={"orders": 1, "other": 1}, linger_ms=1_000)
    for topic in ("orders", "orders", "other", "other"):
        rig.producer.send(ProducerRecord(topic, b"v"))
        rig.know({"orders": 1, "other": 1})
    rig.producer.send(ProducerRecord("other", b"v"))
    quick = rig.producer._quick_append
    assert quick._known.cache is rig.metadata.cache
    assert list(quick._known.topics) == ["other"]


# -- sequences -----------------------------------------------------------------------------------------------


def acknowledged(made: TransactionManager, topic_partition: TopicPartition) -> ProducerBatch:
    batch = drain(made, topic_partition=topic_partition)
    made.handle_completed_batch(batch, 0)
    return batch


def left_one() -> TransactionManager:
    """Which has left a partition that had a batch."""
    made = manager()
    acknowledged(made, ORDERS_0)
    made.leave([ORDERS_0])
    return made


def new_epoch(made: TransactionManager) -> None:
    made.request_epoch_bump(ORDERS_1)
    made.bump_epoch_if_required()


def test_within_an_epoch_a_partition_that_comes_back_goes_on_with_its_numbers_and_is_not_forgotten() -> None:
    made = left_one()
    batch = drain(made, topic_partition=ORDERS_0)
    assert batch.base_sequence == 1
    new_epoch(made)
    assert first_in_flight_sequence(made, ORDERS_0) == 1


LEFT: Final = [TopicPartition("gone", number) for number in range(MOST_LEFT + 1)]


def test_many_partitions_that_were_left_ask_for_an_epoch_that_forgets_them() -> None:
    made = manager()
    for topic_partition in (*LEFT, ORDERS_0):
        acknowledged(made, topic_partition)
    at_rest = []
    for partitions in (LEFT[:-1], LEFT[-1:]):
        made.leave(partitions)
        at_rest.append(made.is_at_rest)
    assert at_rest == [True, False]
    made.bump_epoch_if_required()
    assert list(made._partitions) == [ORDERS_0]
    again = drain(made, topic_partition=LEFT[0])
    assert (again.producer_epoch, again.base_sequence) == (1, 0)


def test_a_partition_that_came_back_does_not_count_for_that_epoch() -> None:
    made = manager()
    for topic_partition in LEFT:
        acknowledged(made, topic_partition)
    made.leave(LEFT[:-1])
    acknowledged(made, LEFT[0])
    made.leave(LEFT[-1:])
    assert made.is_at_rest


def test_a_partition_of_which_a_batch_may_be_in_the_log_is_not_forgotten() -> None:
    made = manager()
    acknowledged(made, ORDERS_0)
    lost = drain(made, topic_partition=ORDERS_0)
    made.remove_in_flight_batch(lost)
    made.mark_sequence_unresolved(lost)
    made.leave([ORDERS_0])
    new_epoch(made)
    assert ORDERS_0 in made._partitions


def test_a_new_producer_id_forgets_them_too() -> None:
    made = manager(epoch=2**15 - 1)
    acknowledged(made, ORDERS_0)
    made.leave([ORDERS_0])
    new_epoch(made)
    made.init_sent()
    producer = made.producer_id_and_epoch
    assert producer is None
    made.init_succeeded(PRODUCER._replace(producer_id=78))
    assert ORDERS_0 not in made._partitions


# -- all together, to brokers that know duplicates -----------------------------------------------------------


@pytest.mark.parametrize("has_new_epoch", [False, True])
def test_no_record_is_lost_or_doubled_when_a_topic_is_used_again(has_new_epoch: bool) -> None:
    soak = SimulatedSoak(1)
    topic = "steady-0"

    def write(times: int) -> int:
        for _ in range(times):
            soak._submit(topic)
            soak._turn_for(1_000)
        return sum(log.end_offset for log in soak.brokers.state.logs.values())

    with without_log():
        stored = write(20)
        soak._turn_for(IDLE_MS)
        soak._look_up("another")  # a refresh: now the topic's time is judged
        soak._turn_for(IDLE_MS)
        assert not soak.producer._accumulator._queues.topics
        manager_of_it = soak.producer._transaction_manager
        assert manager_of_it is not None
        if has_new_epoch:
            manager_of_it.request_epoch_bump(TopicPartition("another", 0))
            soak._turn_for(1_000)
        before = soak.metrics._records_sent.value
        now_stored = write(20)
        acknowledged_since = soak.metrics._records_sent.value - before
        assert now_stored == stored + acknowledged_since
        assert acknowledged_since >= 20 * 0.5
        soak.close()
