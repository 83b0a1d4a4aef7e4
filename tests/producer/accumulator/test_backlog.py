"""Which records wait for which node, and which requests for which topic."""

from __future__ import annotations

from typing import Any

from client_core.cluster import TopicPartition
from client_core.producer.accumulator.backlog import Backlog, BatchCount, TopicWait
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Phase
from tests.support.producer_rig import ProducerRig, full_buffer_rig
from tests.support.sender_rig import produced


def to(topic: str, partition: int) -> ProducerRecord:
    return ProducerRecord(topic, b"x", partition=partition)


def unreachable_rig(**settings: Any) -> ProducerRig:
    """A producer that knows orders with two partitions, and can't reach their leader, broker 0."""
    rig = ProducerRig(topics={"orders": 2}, **settings)
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 10_000)
    return rig


def test_nothing_waits_in_an_idle_client_nor_what_was_acknowledged() -> None:
    rig = ProducerRig(topics={"orders": 1})
    assert rig.producer.backlog() == Backlog()
    waiting = rig.submit("orders", b"x", turns=2)
    rig.answer(produced(TopicPartition("orders", 0), offset=7))
    assert waiting.offsets == [7]
    assert rig.producer.backlog() == Backlog()


def test_records_in_batches_wait_for_the_leader_of_their_partition() -> None:
    rig = unreachable_rig()
    begun_ms = rig.clock.now_ms()
    rig.submit("orders", to("orders", 0), to("orders", 1), to("orders", 1))
    rig.clock.advance(500)
    rig.submit("orders", to("orders", 0))
    count = BatchCount(batches=2, records=4, partitions=2, oldest_created_ms=begun_ms)
    backlog = rig.producer.backlog()
    assert backlog.queued == {0: count}
    assert backlog.in_flight == {}
    assert backlog.by_node == {0: count}


def test_records_that_were_sent_wait_for_the_node_that_has_them() -> None:
    rig = ProducerRig(topics={"orders": 2})
    rig.submit("orders", to("orders", 0), turns=2)
    backlog = rig.producer.backlog()
    assert backlog.queued == {}
    assert {node_id: count.records for node_id, count in backlog.in_flight.items()} == {0: 1}
    assert {node_id: count.records for node_id, count in backlog.by_node.items()} == {0: 1}


def test_records_of_a_topic_that_is_gone_wait_for_no_node_and_are_named() -> None:
    rig = unreachable_rig()
    rig.submit("orders", to("orders", 1), to("orders", 0))
    rig.know({"other": 1})
    backlog = rig.producer.backlog()
    assert {node_id: count.records for node_id, count in backlog.queued.items()} == {None: 2}
    assert backlog.leaderless == (TopicPartition("orders", 0), TopicPartition("orders", 1))


def test_requests_for_an_unknown_topic_are_counted_since_the_oldest_came() -> None:
    rig = ProducerRig(topics={"orders": 1})
    first_ms = rig.clock.now_ms()
    rig.submit("nope", b"x")
    rig.clock.advance(200)
    rig.submit("nope", b"x", turns=1)
    (wait,) = rig.producer.backlog().topic_waits
    assert wait == TopicWait("nope", Phase.METADATA, requests=2, oldest_submitted_ms=first_ms)


def test_requests_for_a_missing_partition_and_those_that_wait_for_memory_are_distinguished() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.submit("orders", to("orders", 7), turns=1)
    (wait,) = rig.producer.backlog().topic_waits
    assert (wait.topic, wait.lacks_partition) == ("orders", True)
    rig = full_buffer_rig()
    rig.submit("other", b"x" * 800, turns=1)
    (wait,) = rig.producer.backlog().topic_waits
    assert (wait.topic, wait.phase, wait.requests) == ("other", Phase.BUFFER, 1)
