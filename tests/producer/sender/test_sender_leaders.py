"""Sender and metadata: leaders that move or are missing, topics that expire or are made anew.

Twins of SenderTest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.cluster import Node, TopicPartition
from client_core.error_codes import Errors
from client_core.metadata.metadata import LeaderAndEpoch
from client_core.producer.accumulator.partitioner import LostLeaders
from client_core.protocol.messages.produce_response import NodeEndpoint
from tests.support.metadata_responses import metadata_response, partition, topic, topic_id_of
from tests.support.sender_rig import (
    ORDERS_0,
    ORDERS_1,
    RETRY_BACKOFF_MS,
    SenderRig,
    SleepRecorder,
    produced,
    together,
)

if TYPE_CHECKING:
    from client_core.metadata.refresh_schedule import RefreshReason
    from client_core.producer.results.future_record_metadata import FutureRecordMetadata
    from client_core.protocol.messages.produce_response import ProduceResponse

ORDERS_2: Final = TopicPartition("orders", 2)


ONE_BROKER: Final = metadata_response(nodes=1, topics={"orders": 2})
LEADERLESS: Final = metadata_response(nodes=1, topics=[topic("orders", [partition(0, leader=None)])])


@pytest.mark.behaviour("SND-06")
def test_stale_metadata_is_asked_for_anew_even_when_the_batch_fails() -> None:
    for error in (
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
    ):
        rig = SenderRig(retries=0)
        future = rig.send()
        rig.client.prepare_metadata_update(ONE_BROKER, 13)
        rig.answer(produced(ORDERS_0, error=error))
        assert rig.metadata.update_requested, error
        failure = future.exception(0)
        assert failure is not None
        assert failure.error is error


@pytest.mark.behaviour("ACC-07", "SND-01")
def test_a_topic_without_leader_is_asked_for_again() -> None:
    rig = SenderRig()
    rig.client.update_metadata(LEADERLESS, 13)
    rig.append()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 1}, epoch=1), 13)
    rig.turn()
    assert rig.client.in_flight_request_count() == 0
    assert not rig.client.has_pending_metadata_updates
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


def test_asking_for_a_lost_leader_neither_creates_its_topic_nor_hurries_the_same_answer() -> None:
    rig = SenderRig()
    rig.append()
    rig.client.update_metadata(LEADERLESS, 13)
    added: list[bool] = []
    asked: list[bool] = []
    add, request_update = rig.metadata.add, rig.metadata.request_update

    def note_add(name: str, now_ms: int, *, may_create: bool = True) -> None:
        added.append(may_create)
        add(name, now_ms, may_create=may_create)

    def note_request(reset_equivalent_response_backoff: bool, reason: RefreshReason = "manual") -> int:
        asked.append(reset_equivalent_response_backoff)
        return request_update(reset_equivalent_response_backoff, reason)

    rig.metadata.add = note_add  # type: ignore[method-assign, assignment]
    rig.metadata.request_update = note_request  # type: ignore[method-assign]
    rig.turn()
    assert (added, asked) == ([False], [False])


def test_leftovers_of_topics_are_looked_at_once_for_each_snapshot() -> None:
    rig = SenderRig()
    looked: list[object] = []
    rig.accumulator.forget_topics = looked.append  # type: ignore[method-assign, assignment]
    rig.turn(3)
    assert len(looked) == 1
    rig.update_leaders()
    rig.turn(3)
    assert len(looked) == 2


def losing_rig() -> tuple[SenderRig, LostLeaders]:
    """A sender that has lost its one leader."""
    rig = SenderRig()
    lost = rig.sender._lost_leaders = LostLeaders(1_000)
    lost.lost(rig.node.id, rig.clock.now_ms())
    return rig, lost


def test_a_lost_leader_is_tried_again_when_it_is_time_and_found_when_it_is_ready_for_a_record() -> None:
    rig, _ = losing_rig()
    sleeps = SleepRecorder(rig)
    rig.turn()
    assert sleeps.last_ms() == 1_000
    rig.turn_after(400)
    assert sleeps.last_ms() == 600
    rig, lost = losing_rig()
    rig.send()
    assert not lost.node_ids
    assert rig.client.in_flight_request_count() == 1


def test_a_topic_that_expired_while_records_wait_is_held_again() -> None:
    rig = SenderRig(delivery_timeout_ms=2**40)
    rig.append()
    rig.client.disconnect(rig.node.id)
    rig.client.set_unreachable(rig.node, 10)
    rig.clock.advance(300_001)
    rig.client.update_metadata(ONE_BROKER, 13)
    assert not rig.metadata.contains_topic("orders")
    rig.client.prepare_metadata_update(ONE_BROKER, 13)
    rig.turn()
    assert rig.metadata.contains_topic("orders")
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


@pytest.mark.behaviour("SND-08")
def test_an_answer_by_topic_id_finds_its_batch_though_the_topic_was_created_anew_meanwhile() -> None:
    rig = SenderRig()
    future = rig.send()
    by_id = produced(ORDERS_0, offset=3)
    by_id = by_id._replace(responses=(by_id.responses[0]._replace(name="", topic_id=topic_id_of("orders")),))
    rig.client.update_metadata(
        metadata_response(nodes=1, topics=[topic("orders", 2, topic_id=topic_id_of("another"))]), 13
    )
    rig.answer(by_id)
    assert future.result(0).offset == 3


def rig_with_leader_epochs(*, partitions: int = 3, epoch: int = 100) -> SenderRig:
    """One broker that leads all partitions since that epoch; no backoff but the accumulator's."""
    rig = SenderRig(retries=10)
    rig.update_leaders(partitions, epoch=epoch)
    return rig


@pytest.mark.behaviour("ACC-08")
@pytest.mark.java("SenderTest.ProducerBatchRetriesWhenPartitionLeaderChanges")
def test_a_retry_goes_at_once_to_a_new_leader_and_waits_for_an_old_one() -> None:
    rig = rig_with_leader_epochs(partitions=2)
    future = rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER))
    assert not future.done()
    rig.update_leaders(2, epoch=101)
    rig.turn()
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) == 1
    rig.answer(produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER), turns=2)
    assert not future.done()
    assert rig.client.in_flight_request_count() == 0
    rig.turn_after(2 * RETRY_BACKOFF_MS)
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) == 1
    rig.answer(produced(ORDERS_0, offset=999))
    assert future.result(0).offset == 999


def produce_to_three(rig: SenderRig, *answers: ProduceResponse) -> list[FutureRecordMetadata]:
    """One record to each of three partitions, answered so."""
    futures = [rig.append(partition) for partition in range(3)]
    rig.turn()
    assert [len(rig.sender.in_flight_batches_of(one)) for one in (ORDERS_0, ORDERS_1, ORDERS_2)] == [1] * 3
    rig.answer(together(*answers))
    assert [future.done() for future in futures] == [False, False, True]
    return futures


@pytest.mark.behaviour("SND-06", "SND-07")
@pytest.mark.java("SenderTest.WhenProduceResponseReturnsWithALeaderShipChangeErrorButNoNewLeaderInformation")
def test_without_a_word_on_the_new_leaders_metadata_stays_and_retries_wait() -> None:
    rig = rig_with_leader_epochs()
    before = rig.metadata.fetch()
    produce_to_three(
        rig,
        produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER),
        produced(ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER),
        produced(ORDERS_2, offset=100),
    )
    assert rig.metadata.fetch() is before
    assert rig.metadata.update_requested
    rig.turn()
    assert rig.sender.in_flight_batches == 0
    assert rig.client.in_flight_request_count() == 0  # their backoff is not over


@pytest.mark.behaviour("SND-07")
@pytest.mark.java("SenderTest.WhenProduceResponseReturnsWithALeaderShipChangeErrorAndNewLeaderInformation")
def test_new_leaders_in_the_answer_are_believed_and_retries_go_to_them_at_once() -> None:
    rig = rig_with_leader_epochs()
    before = rig.metadata.fetch()
    new_nodes = [NodeEndpoint(9990, "newhost9990", 9990, "r"), NodeEndpoint(9991, "newhost9991", 9991, "r")]
    reported = together(
        produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER, leader=(9990, 101)),
        produced(ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER, leader=(9991, 101)),
        produced(ORDERS_2, offset=100),
    )
    produce_to_three(rig, reported._replace(node_endpoints=tuple(new_nodes)))
    assert rig.metadata.fetch() is not before
    for moved, new in zip((ORDERS_0, ORDERS_1), new_nodes, strict=True):
        leader = rig.metadata.current_leader(moved)
        assert leader == LeaderAndEpoch(Node(new.node_id, new.host, new.port, new.rack), 101)
    assert rig.metadata.update_requested
    rig.turn()
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) == 1
    assert len(rig.sender.in_flight_batches_of(ORDERS_1)) == 1
    assert sorted(request.destination for request in rig.client.requests) == [9990, 9991]


@pytest.mark.behaviour("SND-07")
def test_of_the_brokers_in_an_answer_only_the_new_leaders_are_remembered() -> None:
    """A broker could invent any number of others, at any address."""
    rig = rig_with_leader_epochs()
    before = rig.metadata.cache.nodes_by_id.keys()
    moved = produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER, leader=(9990, 101))
    named = tuple(NodeEndpoint(node_id, "newhost", node_id) for node_id in (9990, 9991))
    rig.send()
    rig.answer(moved._replace(node_endpoints=named))
    assert rig.metadata.cache.nodes_by_id.keys() == before | {9990}


@pytest.mark.java("SenderTest.MetadataTopicExpiry")
def test_an_idle_topic_expires_and_is_held_again_when_a_record_waits_for_it() -> None:
    rig = SenderRig()
    for offset in range(2):
        future = rig.send()
        assert rig.metadata.contains_topic("orders")
        rig.update_leaders(2)
        rig.turn()
        rig.answer(produced(ORDERS_0, offset=offset))
        assert future.result(0).offset == offset
        assert rig.client.in_flight_request_count() == 0
        assert rig.sender.in_flight_batches == 0
        assert rig.metadata.contains_topic("orders")
        rig.clock.advance(300_000)
        rig.update_leaders(2)
        assert not rig.metadata.contains_topic("orders")
