"""Calls that wait for a partition's offsets, and the requests for them, while leaders move."""

from __future__ import annotations

import pytest

from client_core import Cause, Errors, KafkaError, OffsetsResult, ProducerClosedError, TimeoutError
from client_core.cluster import TopicPartition
from client_core.errors import (
    NoBrokersError,
    TopicAuthorizationError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from client_core.metadata.partition_offsets import (
    EARLIEST,
    LATEST,
    ListedOffsets,
    ListOffsetsRequestBuilder,
    OffsetFailure,
)
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.list_offsets_request import ListOffsetsRequest
from client_core.testing import KAFKA_2_1, FakeCluster
from tests.support.live_producer import PATIENCE_MS, Outcome, live_producer, look_up, submit
from tests.support.metadata_responses import metadata_response, partition, topic, topic_id_of
from tests.support.producer_rig import ProducerRig, Waiting


def ask(rig: ProducerRig, partition: int = 0, *, topic: str = "orders", wait_ms: int = 1_000) -> Waiting:
    waiting = Waiting()
    deadline_ms = rig.clock.now_ms() + wait_ms
    waiting.ticket = rig.producer.list_offsets(topic, partition, deadline_ms=deadline_ms, done=waiting)
    return waiting


def reported(waiting: Waiting) -> OffsetsResult:
    (result,) = waiting.reported
    assert isinstance(result, OffsetsResult)
    return result


def builders(rig: ProducerRig) -> list[ListOffsetsRequestBuilder]:
    """The requests that wait for an answer."""
    return [r.builder for r in rig.client.requests if isinstance(r.builder, ListOffsetsRequestBuilder)]


def answer(rig: ProducerRig, *offsets: int | Errors, topic: str = "orders") -> None:
    """Answers the oldest request, partition by partition, and lets it be heard."""
    rig.answer(
        ListedOffsets(
            {
                TopicPartition(topic, partition): OffsetFailure(one.code) if isinstance(one, Errors) else one
                for partition, one in enumerate(offsets)
            }
        )
    )


def test_a_partition_has_a_first_and_a_next_offset() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    assert [one.timestamp for one in builders(rig)] == [EARLIEST, LATEST]
    rig.clock.advance(40)
    answer(rig, 3)
    assert not waiting.reported
    answer(rig, 17)
    assert repr(reported(waiting)) == "<OffsetsResult 3-17 error=None waited_ms=40>"
    assert rig.producer.status().waiting_for_metadata == 0


def test_a_broker_is_given_the_time_that_is_left_of_the_longest_wait() -> None:
    rig = ProducerRig(topics={"orders": 2})
    ask(rig, 0, wait_ms=1_000)
    ask(rig, 1, wait_ms=4_000)
    rig.clock.advance(300)
    rig.turn()
    version = ApiKey.LIST_OFFSETS.max_version
    asked = [ListOffsetsRequest.decode(one.encode(version), version) for one in builders(rig)]
    assert [one.timeout_ms for one in asked] == [3_700, 3_700]


def test_all_that_wait_share_two_requests_and_a_later_call_gets_the_next() -> None:
    rig = ProducerRig(topics={"orders": 2})
    early = [ask(rig, 0), ask(rig, 1), ask(rig, 0)]
    rig.turn()
    late = ask(rig, 0)
    rig.turn()
    assert [len(one.partitions) for one in builders(rig)] == [2, 2]
    answer(rig, 0, 0)
    answer(rig, 5, 6)
    assert [reported(one).end_offset for one in early] == [5, 6, 5]
    assert not late.reported
    rig.turn()
    answer(rig, 1)
    answer(rig, 9)
    assert (reported(late).beginning_offset, reported(late).end_offset) == (1, 9)


def test_a_moved_leader_is_found_and_asked() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    answer(rig, Errors.NOT_LEADER_OR_FOLLOWER)
    answer(rig, Errors.NOT_LEADER_OR_FOLLOWER)
    assert rig.metadata.update_requested
    rig.know({"orders": 1})
    rig.turn_after(200)
    answer(rig, 0)
    answer(rig, 4)
    assert reported(waiting).end_offset == 4


def test_the_new_leader_is_asked_while_the_old_one_does_not_answer() -> None:
    rig = ProducerRig(topics={"orders": 1})
    early = ask(rig, wait_ms=30_000)
    rig.turn()
    unanswered = list(rig.client.requests)
    led_by(rig, 1)
    rig.turn()
    late = ask(rig)
    rig.turn()
    assert [request.destination for request in rig.client.requests] == [0, 0, 1, 1]
    for request in unanswered:
        body = ListedOffsets({TopicPartition("orders", 0): 1})
        rig.client.respond_to_request(request, body)
    rig.turn()
    assert not early.reported, "the old leader's offset may be older than the call"
    answer(rig, 0)
    answer(rig, 4)
    assert (reported(early).beginning_offset, reported(early).end_offset) == (0, 4)
    rig.turn()
    answer(rig, 0)
    answer(rig, 5)
    assert reported(late).end_offset == 5


def led_by(rig: ProducerRig, leader: int) -> None:
    """Moves the leader of orders-0 there."""
    moved = [partition(0, leader=leader, epoch=1)]
    topics = [topic("orders", moved, topic_id=topic_id_of("orders"))]
    rig.client.update_metadata(metadata_response(nodes=2, topics=topics), 13)


def test_a_refusal_is_final_for_its_partition() -> None:
    rig = ProducerRig(topics={"orders": 2})
    refused, known = ask(rig, 0), ask(rig, 1)
    rig.turn()
    answer(rig, Errors.TOPIC_AUTHORIZATION_FAILED, 0)
    answer(rig, 0, 8)
    assert isinstance(reported(refused).error, TopicAuthorizationError)
    assert reported(known).end_offset == 8


def test_a_partition_that_the_answer_leaves_out_is_an_error() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    answer(rig)
    assert isinstance(reported(waiting).error, UnknownServerError)


def late(rig: ProducerRig, error: Errors) -> KafkaError:
    waiting = ask(rig)
    rig.turn()
    answer(rig, error)
    answer(rig, error)
    rig.turn_after(1_000)
    result = reported(waiting).error
    assert isinstance(result, TimeoutError)
    assert str(result) == "The offsets of orders-0 were not received within 1000 ms."
    return result


def test_a_time_out_has_its_cause() -> None:
    cause = late(ProducerRig(topics={"orders": 1}), Errors.OFFSET_NOT_AVAILABLE).cause
    assert cause is not None
    assert (cause.error, cause.attempts, cause.since_ms) == (Errors.OFFSET_NOT_AVAILABLE, 1, 1_000)
    missing = late(ProducerRig(topics={"orders": 1}), Errors.UNKNOWN_TOPIC_OR_PARTITION)
    assert missing.cause is None
    assert isinstance(missing.__cause__, UnknownTopicOrPartitionError)


def test_a_leader_that_does_not_answer_is_the_cause() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    rig.turn_after(1_000)
    error = reported(waiting).error
    assert error is not None
    assert error.cause == Cause(Errors.REQUEST_TIMED_OUT, 0, 0, 1_000, "node 0 has not answered")


def test_one_offset_of_two_ends_the_call_at_its_deadline() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    answer(rig, 3)
    rig.turn_after(1_000)
    error = reported(waiting).error
    assert isinstance(error, TimeoutError)
    assert error.cause is not None
    assert error.cause.error is Errors.REQUEST_TIMED_OUT


def test_a_partition_without_a_leader_waits_for_one_and_says_so() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig, partition=7)
    rig.turn()
    assert builders(rig) == []
    rig.turn_after(1_000)
    error = reported(waiting).error
    assert error is not None
    assert error.cause is not None
    assert error.cause.error is Errors.LEADER_NOT_AVAILABLE


def test_without_any_broker_it_is_said_that_none_has_answered() -> None:
    rig = ProducerRig()
    rig.client.backoff(rig.client.least_loaded_node(0).node or pytest.fail("no node"), 60_000)
    waiting = ask(rig)
    rig.turn()
    rig.turn_after(1_000)
    assert isinstance(reported(waiting).error, NoBrokersError)


def test_a_lost_request_is_made_again() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    rig.client.disconnect(rig.client.requests[0].destination)
    rig.turn(2)
    rig.turn_after(200)
    answer(rig, 0)
    answer(rig, 2)
    assert reported(waiting).end_offset == 2


def test_a_cancelled_call_is_not_reported_and_a_closed_producer_ends_the_others() -> None:
    rig = ProducerRig(topics={"orders": 1})
    gone, waits = ask(rig), ask(rig)
    rig.turn()
    gone.cancel()
    rig.turn()
    rig.producer.close(0)
    assert gone.reported == []
    assert isinstance(reported(waits).error, ProducerClosedError)


# -- over loopback -------------------------------------------------------------------------------------------


def test_offsets_of_old_and_new_brokers_and_of_a_leader_that_moves() -> None:
    for versions in ({}, {"versions": KAFKA_2_1}):
        with FakeCluster(brokers=3, **versions) as cluster:  # type: ignore[arg-type]
            cluster.create_topic("orders")
            with live_producer(cluster.bootstrap_servers) as producer:
                submit(producer, "orders", [b"1", b"2"], partition=0).offsets()
                assert live_offsets(producer) == (0, 2)
                before = cluster.partition("orders", 0).leader
                cluster.move_leader("orders", 0, next(n for n in (1, 2, 3) if n != before))
                assert live_offsets(producer) == (0, 2)
                look_up(producer, "orders")
            asked = {seen.broker_id for seen in cluster.requests(ApiKey.LIST_OFFSETS)}
            assert asked == {before, cluster.partition("orders", 0).leader}


def live_offsets(producer: object) -> tuple[int | None, int | None]:
    outcome = Outcome()
    deadline_ms = producer.clock.now_ms() + PATIENCE_MS  # type: ignore[attr-defined]
    producer.list_offsets("orders", 0, deadline_ms=deadline_ms, done=outcome)  # type: ignore[attr-defined]
    result = outcome.result(OffsetsResult)
    assert result.error is None
    return result.beginning_offset, result.end_offset
