"""Requests that wait for metadata or memory: in order, each to its own deadline, without a blocked thread."""

from __future__ import annotations

import gc
from weakref import WeakSet

import pytest

from client_core.cluster import TopicPartition
from client_core.errors import (
    InvalidTopicError,
    NoBrokersError,
    SaslAuthenticationError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from client_core.events import WaitFinished
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.results import ProduceResult
from client_core.producer.results.ticket import Phase, Written
from client_core.producer.sender.produce_request import ProduceRequestBuilder
from client_core.record.record_batch import decode_record_batch
from tests.support.metadata_responses import node
from tests.support.producer_rig import ProducerRig, Waiting, full_buffer_rig
from tests.support.sender_rig import ORDERS_0, produced, together

UNKNOWN, INVALID, UNAUTHORIZED = 3, 17, 29


def values_of(rig: ProducerRig) -> list[bytes | None]:
    """What waits in the batches of orders-0, in order."""
    batches = rig.producer._accumulator.batches_of(ORDERS_0)
    decoded = [decode_record_batch(batch.records()) for batch in batches]
    return [record.value for batch in decoded for record in batch.records()]


# -- metadata ------------------------------------------------------------------------------------------------


def test_a_request_for_an_unknown_topic_waits_and_goes_on_when_the_topic_is_known() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a", b"b")
    rig.learn({"orders": 1})
    assert rig.producer.status().waiting_for_metadata == 1
    rig.turn()
    assert rig.producer.status().waiting_for_metadata == 0
    rig.answer(produced(ORDERS_0, offset=3))
    assert waiting.offsets == [3, 4]


@pytest.mark.parametrize("in_chunks", [False, True])
def test_the_caller_may_change_its_list_while_its_request_waits(in_chunks: bool) -> None:
    rig = ProducerRig(topics={})
    records = [ProducerRecord("orders", b"a"), ProducerRecord("orders", b"b")]
    waiting, now_ms = Waiting(), rig.clock.now_ms()
    rig.producer.submit(
        "orders",
        records,
        block_deadline_ms=now_ms + 60_000,
        deadline_ms=now_ms + 120_000,
        done=waiting,
        in_chunks=in_chunks,
    )
    records[:] = [ProducerRecord("orders", b"of the next request")]
    rig.learn({"orders": 1}, turns=2)
    assert sent_last(rig) == [b"a", b"b"]
    rig.answer(produced(ORDERS_0, offset=3))
    assert waiting.offsets == [3, 4]


@pytest.mark.behaviour("PROD-02")
def test_it_fails_at_its_own_deadline_with_javas_words() -> None:
    rig = ProducerRig(topics={})
    early, late = rig.submit("orders", b"a", block_ms=1_000), rig.submit("orders", b"b", block_ms=2_000)
    rig.learn({}, errors={"orders": UNKNOWN})
    rig.turn_after(999)
    assert early.reported == []
    rig.turn_after(1)
    (failure,) = early.failures
    assert isinstance(failure.error, TimeoutError)
    assert str(failure.error) == "Topic orders not present in metadata after 1000 ms."
    assert isinstance(failure.error.__cause__, UnknownTopicOrPartitionError)
    assert (failure.phase, failure.written, failure.waited_ms) == (Phase.METADATA, Written.NO, 1_000)
    assert late.reported == []


@pytest.mark.parametrize(("block_ms", "wait_ms"), [(1_000, 2_000), (2_000, 1_000)])
def test_a_missing_topic_is_not_asked_for_any_more_once_no_request_waits_for_it(
    block_ms: int, wait_ms: int
) -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a", block_ms=block_ms)
    looking = rig.look_up("orders", wait_ms=wait_ms, settle=False)
    rig.learn({}, errors={"orders": UNKNOWN})
    assert rig.metadata.topics == {"orders"}
    rig.turn_after(1_000)
    assert rig.metadata.topics == {"orders"}, "the other still waits"
    assert bool(waiting.reported) == (block_ms == 1_000)
    assert bool(looking.reported) == (wait_ms == 1_000)
    rig.turn_after(1_000)
    assert rig.metadata.topics == set()


def test_without_any_answer_ever_the_error_says_so() -> None:
    rig = ProducerRig()
    rig.client.backoff(rig.client.least_loaded_node(0).node or pytest.fail("no node"), 10_000)
    waiting = rig.submit("orders", b"a", block_ms=500, turns=1)
    rig.turn_after(500)
    assert isinstance(waiting.failures[0].error.__cause__, NoBrokersError)


@pytest.mark.parametrize(
    ("code", "error"), [(INVALID, InvalidTopicError), (UNAUTHORIZED, TopicAuthorizationError)]
)
@pytest.mark.behaviour("PROD-04")
def test_a_refusal_by_the_broker_fails_the_request_at_once(code: int, error: type[Exception]) -> None:
    rig = ProducerRig(topics={})
    waiting = [rig.submit("orders", b"a"), rig.submit("orders", b"b")]
    rig.learn({}, errors={"orders": code}, turns=2)
    assert [type(one.failures[0].error) for one in waiting] == [error, error]
    assert rig.producer.status().waiting_for_metadata == 0


@pytest.mark.behaviour("PROD-04")
def test_a_topic_that_was_forbidden_is_asked_for_again_by_the_next_request() -> None:
    rig = ProducerRig(topics={})
    rig.submit("orders", b"a")
    rig.learn({}, errors={"orders": UNAUTHORIZED}, turns=2)
    waiting = rig.submit("orders", b"b")
    rig.learn({"orders": 1}, turns=2)
    rig.answer(produced(ORDERS_0, offset=0))
    assert waiting.offsets == [0]


@pytest.mark.behaviour("PROD-01")
def test_a_missing_topic_is_asked_for_again_and_again() -> None:  # PROD-01
    rig = ProducerRig(topics={})
    rig.submit("orders", b"a")
    for _ in range(3):
        rig.learn({}, errors={"orders": UNKNOWN})
        assert not rig.client.has_pending_metadata_updates
    rig.turn()
    assert rig.metadata.update_requested


def test_only_who_may_create_a_topic_asks_for_its_creation() -> None:
    rig = ProducerRig(topics={})
    rig.submit("orders", b"a", create=False)
    rig.learn({}, errors={"orders": UNKNOWN})
    now_ms = rig.clock.now_ms()
    assert not rig.metadata.new_metadata_request_and_version(now_ms).builder.allow_auto_topic_creation
    rig.submit("orders", b"b", create=True)
    rig.producer.io_thread._take_what_came(now_ms)
    assert rig.metadata.new_metadata_request_and_version(now_ms).builder.allow_auto_topic_creation


def test_a_fatal_error_fails_all_requests_that_wait_for_metadata() -> None:
    rig = full_buffer_rig()
    for_memory, waiting = rig.submit("other", b"y" * 800), rig.submit("users", b"a")
    rig.learn({"orders": 1, "other": 1}, errors={"users": UNKNOWN})
    rig.metadata.fatal_error(SaslAuthenticationError("wrong password"))
    rig.learn({"orders": 1, "other": 1}, errors={"users": UNKNOWN})
    (failure,) = waiting.failures
    assert str(failure.error) == "wrong password"
    assert failure.phase is Phase.METADATA
    assert not for_memory.reported


def test_requests_for_one_topic_keep_their_order() -> None:
    rig = ProducerRig(topics={}, linger_ms=1_000)
    rig.submit("orders", b"first")
    rig.learn({"orders": 1})  # the topic is known now, but the first request has not been looked at
    rig.submit("orders", b"second", turns=1)
    rig.submit("orders", b"third")
    assert values_of(rig) == [b"first", b"second", b"third"]


def test_a_request_for_another_topic_is_not_held_up() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.submit("missing", b"a")
    rig.submit("orders", b"b")
    rig.learn({"orders": 1}, errors={"missing": UNKNOWN})
    assert rig.client.in_flight_request_count() == 1


def test_five_thousand_waits_for_one_topic_are_one_look_at_it() -> None:
    rig = ProducerRig(topics={})
    waiting = [rig.submit("orders", b"%d" % n, block_ms=1_000) for n in range(5_000)]
    rig.learn({}, errors={"orders": UNKNOWN})
    looked = 0
    topic_error = rig.metadata.request_update_for_topic

    def count(topic: str) -> int:
        nonlocal looked
        looked += 1
        return topic_error(topic)

    rig.metadata.request_update_for_topic = count  # type: ignore[method-assign]
    rig.learn({}, errors={"orders": UNKNOWN})
    assert looked == 1
    assert rig.producer.status().waiting_for_metadata == 5_000
    rig.turn_after(1_000)
    assert all(one.reported for one in waiting)
    assert rig.producer.status().waiting_for_metadata == 0


# -- partitions ----------------------------------------------------------------------------------------------


def test_a_partition_that_does_not_exist_is_waited_for_without_holding_anybody_up() -> None:
    rig = ProducerRig(topics={"orders": 1})
    other = rig.submit("orders", ProducerRecord("orders", b"a", partition=1))
    rig.submit("orders", b"b")
    rig.learn({"orders": 1})
    assert rig.client.in_flight_request_count() == 1
    assert rig.producer.status().waiting_for_metadata == 1
    rig.learn({"orders": 2}, turns=3)
    assert rig.producer.status().waiting_for_metadata == 0
    rig.answer(produced(ORDERS_0, offset=0))
    assert other.reported == []
    rig.answer(produced(TopicPartition("orders", 1), offset=5))
    assert other.offsets == [5]


@pytest.mark.behaviour("PROD-03")
def test_a_partition_that_never_comes_fails_with_javas_words() -> None:  # PROD-03
    rig = ProducerRig(topics={"orders": 2})
    waiting = rig.submit(
        "orders", ProducerRecord("orders", b"a", partition=7), ProducerRecord("orders", b"b"), block_ms=1_000
    )
    rig.learn({"orders": 2})
    rig.clock.advance(1_000)
    rig.learn({"orders": 2})
    builder = rig.client.requests[0].builder
    assert isinstance(builder, ProduceRequestBuilder)
    partition = builder.batches[0].topic_partition
    rig.answer(produced(partition, offset=3))
    failed, sent = waiting.produced.outcomes
    assert str(getattr(failed, "error", None)) == (
        "Partition 7 of topic orders with partition count 2 is not present in metadata after 1000 ms."
    )
    assert getattr(sent, "offset", None) == 3


# -- deadlines and cancelling --------------------------------------------------------------------------------


def test_at_its_deadline_what_was_not_sent_is_taken_back() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=10_000)
    waiting = rig.submit("orders", b"mine", timeout_ms=500)
    neighbour = rig.submit("orders", b"theirs", turns=1)
    rig.turn_after(500)
    (failure,) = waiting.failures
    assert str(failure.error) == "Records for topic orders were not acknowledged within 500 ms."
    assert (failure.phase, failure.written, failure.waited_ms) == (Phase.DELIVERY, Written.NO, 500)
    assert values_of(rig) == [b"theirs"]
    assert neighbour.reported == []


def test_at_its_deadline_what_is_on_its_way_is_unknown_and_still_delivered() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"mine", timeout_ms=500, turns=1)
    rig.turn_after(500)
    assert [failure.written for failure in waiting.failures] == [Written.UNKNOWN]
    rig.answer(produced(ORDERS_0, offset=0))
    assert len(waiting.reported) == 1
    assert rig.producer.status().buffer.batches == 0


def test_a_deadline_before_the_block_deadline_ends_the_wait_for_metadata() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a", block_ms=10_000, timeout_ms=500)
    rig.learn({}, errors={"orders": UNKNOWN})
    rig.turn_after(500)
    (failure,) = waiting.failures
    assert str(failure.error) == "Topic orders not present in metadata after 500 ms."
    assert failure.phase is Phase.METADATA


def test_the_next_deadline_bounds_the_sleep() -> None:
    rig = ProducerRig(topics={})
    rig.submit("orders", b"a", block_ms=700)
    rig.learn({}, errors={"orders": UNKNOWN})
    rig.learn({}, errors={"orders": UNKNOWN})
    rig.producer.io_thread._metadata_changed = False
    assert rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms()) == 700


def test_a_cancelled_request_frees_its_place_and_reports_to_nobody() -> None:
    rig = full_buffer_rig()
    waiting = rig.submit("other", b"y" * 800, turns=1)
    waiting.cancel()
    waiting.cancel()
    rig.turn()
    status = rig.producer.status()
    assert (status.buffer.waiters, status.waiting_for_buffer) == (0, 0)
    rig.turn_after(200_000)
    assert waiting.reported == []


def test_records_appended_for_a_cancelled_request_are_still_delivered() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"a")
    waiting.cancel()
    rig.turn()
    assert rig.client.in_flight_request_count() == 1
    rig.answer(produced(ORDERS_0, offset=0))
    assert waiting.reported == []


def test_a_wait_counts_from_when_the_request_came() -> None:
    rig = ProducerRig(topics={})
    came_ms = rig.clock.now_ms()
    rig.clock.advance(30)
    waiting = rig.submit("orders", b"a", block_ms=70, since_ms=came_ms, turns=1)
    rig.turn_after(70)
    (failed,) = waiting.failures
    assert failed.waited_ms == 100
    assert "after 100 ms" in failed.error.message


def test_a_cancelled_request_is_settled_when_its_records_are_delivered() -> None:
    rig = ProducerRig(topics={"orders": 1})
    settled = Waiting()
    waiting = rig.submit("orders", b"a", settled=settled)
    waiting.cancel()
    rig.turn()
    assert settled.reported == []
    rig.answer(produced(ORDERS_0, offset=5))
    assert (waiting.reported, settled.offsets) == ([], [5])


def test_a_cancelled_request_that_was_only_parked_is_settled_at_once() -> None:
    rig = ProducerRig(topics={})
    settled = Waiting()
    waiting = rig.submit("orders", b"a", b"b", settled=settled)
    waiting.cancel()
    rig.turn()
    assert [failure.written for failure in settled.failures] == [Written.NO, Written.NO]
    assert "was cancelled before this record was appended" in str(settled.failures[0].error)


def test_a_request_that_ran_out_of_time_on_its_way_is_settled_with_the_true_outcome() -> None:
    rig = ProducerRig(topics={"orders": 1})
    settled = Waiting()
    waiting = rig.submit("orders", b"a", timeout_ms=1_000, settled=settled, turns=1)
    rig.turn_after(1_000)
    assert [failure.written for failure in waiting.failures] == [Written.UNKNOWN]
    assert settled.reported == []
    rig.answer(produced(ORDERS_0, offset=5))
    assert settled.offsets == [5]
    assert [failure.written for failure in waiting.failures] == [Written.UNKNOWN]


def test_a_request_whose_records_were_taken_back_is_settled_with_its_end() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=60_000)
    settled = Waiting()
    waiting = rig.submit("orders", b"a", timeout_ms=1_000, settled=settled, turns=1)
    rig.turn_after(1_000)
    assert [failure.written for failure in waiting.failures] == [Written.NO]
    assert settled.failures == waiting.failures


def test_an_acknowledged_request_is_settled_once() -> None:
    rig = ProducerRig(topics={"orders": 1})
    settled = Waiting()
    waiting = rig.submit("orders", b"a", settled=settled, turns=1)
    rig.answer(produced(ORDERS_0, offset=5))
    waiting.cancel()
    rig.turn()
    assert (waiting.offsets, settled.offsets) == ([5], [5])


def test_a_request_cancelled_before_its_turn_blocks_no_other() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a")
    waiting.cancel()
    rig.will_know({"orders": 1})
    rig.metadata.add("orders", rig.clock.now_ms())
    rig.turn(2)
    assert not rig.producer._parked.gate.is_blocked("orders")
    rig.submit("orders", b"b")
    assert values_of(rig) == [b"b"]


def test_a_request_cancelled_during_its_turn_blocks_no_other() -> None:
    """The I/O thread finds it ended when it takes it, and is asked to cancel it at its next turn."""
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a")
    rig.producer.io_thread.do(lambda _: waiting.cancel())
    rig.will_know({"orders": 1})
    rig.metadata.add("orders", rig.clock.now_ms())
    rig.turn()
    assert not rig.producer._parked.gate.is_blocked("orders")
    rig.turn()
    rig.submit("orders", b"b")
    assert values_of(rig) == [b"b"]


def test_a_request_that_has_ended_is_not_kept_until_its_deadlines() -> None:
    rig = ProducerRig(topics={"orders": 1})
    sent = rig.submit("orders", b"a", turns=1)
    sent.cancel()
    rig.answer(produced(ORDERS_0, offset=0))
    cancelled, parked = rig.submit("orders", b"b"), rig.submit("later", b"c")
    cancelled.cancel()
    rig.will_know({"orders": 1, "later": 1})
    for topic in ("orders", "later"):
        rig.client.prepare_response(produced(TopicPartition(topic, 0), offset=0))
    rig.producer.start()
    rig.producer.flush()
    rig.producer.close(0)
    assert parked.offsets == [0]
    kept = WeakSet([sent, cancelled, parked])
    del sent, cancelled, parked
    gc.collect()
    assert list(kept) == []


def test_the_duration_of_a_wait_is_reported() -> None:
    rig = ProducerRig(topics={})
    rig.submit("orders", b"a")
    rig.learn({}, errors={"orders": UNKNOWN})
    rig.clock.advance(250)
    rig.learn({"orders": 1}, turns=2)
    assert rig.events.of(WaitFinished) == [WaitFinished("metadata", "success", 250)]


def test_a_batch_larger_than_the_whole_buffer_fails_at_once() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=2_000)
    waiting = rig.submit("orders", b"a", turns=1)
    assert "hard limit of 1000 on memory allocations" in str(waiting.failures[0].error)


def test_an_accumulator_that_has_been_closed_fails_the_request() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer._accumulator.close()
    waiting = rig.submit("orders", b"a", turns=1)
    assert str(waiting.failures[0].error) == "Producer closed while send in progress"


def test_a_request_that_waits_for_a_partition_fails_when_the_topic_is_forbidden() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", ProducerRecord("orders", b"a", partition=5))
    rig.learn({}, errors={"orders": UNAUTHORIZED}, turns=2)
    assert isinstance(waiting.failures[0].error, TopicAuthorizationError)


def test_a_fatal_error_reaches_a_request_that_waits_for_a_partition() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", ProducerRecord("orders", b"a", partition=5))
    rig.learn({"orders": 1})
    rig.metadata.fatal_error(SaslAuthenticationError("wrong password"))
    rig.learn({"orders": 1})
    assert str(waiting.failures[0].error) == "wrong password"


def test_a_second_request_may_lend_the_first_its_leave_to_create() -> None:
    rig = ProducerRig(topics={})
    rig.submit("orders", b"a", create=False)
    rig.submit("orders", b"b", create=True)
    now_ms = rig.clock.now_ms()
    rig.producer.io_thread._take_what_came(now_ms)
    assert rig.metadata.new_metadata_request_and_version(now_ms).builder.allow_auto_topic_creation


def test_the_repr_counts_waiting_requests() -> None:
    rig = ProducerRig(topics={})
    assert repr(rig.producer._parked) == "<ParkedRequests waiting_for_metadata=0 waiting_for_buffer=0>"


# -- a bug ---------------------------------------------------------------------------------------------------


class Spoilt(bytes):
    """A value whose length can be read when it is submitted; later it raises an exception."""

    is_ripe = False

    def __len__(self) -> int:
        if self.is_ripe:
            raise ZeroDivisionError("a bug")
        return super().__len__()


def test_an_exception_ends_only_the_request_that_raised_it() -> None:
    rig = ProducerRig(topics={})
    value = Spoilt(b"a")
    failed = rig.submit("orders", value)
    behind, of_another_topic = rig.submit("orders", b"b"), rig.submit("users", b"c")
    rig.learn({"orders": 1, "users": 1})
    value.is_ripe = True
    with pytest.raises(ZeroDivisionError):
        rig.turn()
    rig.turn()
    (failure,) = failed.failures
    assert failure.waited_ms == 0
    assert (
        str(failure.error)
        == "The request ended with an unexpected exception, ZeroDivisionError: the log has its stack."
    )
    assert (failure.phase, failure.written) == (Phase.DELIVERY, Written.UNKNOWN)
    assert rig.producer.status().waiting_for_metadata == 0
    rig.answer(together(produced(ORDERS_0, offset=0), produced(TopicPartition("users", 0), offset=0)))
    assert (behind.offsets, of_another_topic.offsets) == ([0], [0])
    assert rig.producer.close(0).failed_earlier == 1


def test_one_that_stood_aside_and_gave_up_leaves_the_others_their_place() -> None:
    rig = ProducerRig(topics={"orders": 1})
    record = ProducerRecord("orders", b"a", partition=1)
    hasty, late = (rig.submit("orders", record, block_ms=ms) for ms in (1_000, 9_000))
    rig.learn({"orders": 1})
    rig.learn({"orders": 1})
    rig.turn_after(1_000)
    assert len(hasty.failures) == 1
    assert rig.producer._parked.waits_for("orders")
    rig.learn({"orders": 2}, turns=3)
    rig.answer(produced(TopicPartition("orders", 1), offset=5))
    assert late.offsets == [5]


# -- records that can't be in time any more ------------------------------------------------------------------


def sent_last(rig: ProducerRig) -> list[bytes | None]:
    builder = rig.client.requests[-1].builder
    assert isinstance(builder, ProduceRequestBuilder)
    return [record.value for record in decode_record_batch(builder.batches[0].records).records()]


def slow_rig(partitions: int = 1) -> ProducerRig:
    """The last answer took four seconds. A request is in flight since then, and what comes next waits."""
    rig = ProducerRig(topics={"orders": partitions}, max_in_flight_requests_per_connection=1)
    rig.submit("orders", ProducerRecord("orders", b"slow", partition=0), turns=1)
    rig.submit("orders", ProducerRecord("orders", b"first", partition=0), turns=1)
    rig.clock.advance(4_000)
    rig.answer(produced(ORDERS_0, offset=0), turns=2)
    assert sent_last(rig) == [b"first"]
    return rig


def test_what_brokers_would_acknowledge_too_late_is_not_sent() -> None:
    """A request that has just come is sent, however little time it has: the next answer may be quick."""
    rig = slow_rig()
    late = rig.submit("orders", b"late", b"late too", timeout_ms=6_000, turns=1)
    in_time = rig.submit("orders", b"in time", timeout_ms=9_001, turns=1)
    rig.clock.advance(4_000)
    new = rig.submit("orders", b"new", timeout_ms=3_000)
    rig.answer(produced(ORDERS_0, offset=1), turns=2)
    assert [(f.written, f.phase, f.waited_ms) for f in late.failures] == [
        (Written.NO, Phase.DELIVERY, 4_000)
    ] * 2
    assert str(late.failures[0].error) == (
        "Records for topic orders were not sent: broker 0 takes 4000 ms to acknowledge records, "
        "and 2000 ms are left."
    )
    assert sent_last(rig) == [b"in time", b"new"]
    assert in_time.reported == new.reported == []
    rig.answer(produced(ORDERS_0, offset=2), turns=2)
    assert (in_time.offsets, new.offsets) == ([2], [3])
    rig.turn_after(200_000)
    assert len(late.reported) == 1


def test_records_of_a_late_request_that_are_in_flight_keep_their_deadline() -> None:
    rig = slow_rig(partitions=2)
    halves = [ProducerRecord("orders", b"half", partition=p) for p in (1, 0)]
    late = rig.submit("orders", *halves, timeout_ms=6_000, turns=1)
    rig.clock.advance(4_000)
    rig.answer(produced(ORDERS_0, offset=1), turns=2)
    assert late.reported == []
    rig.answer(produced(TopicPartition("orders", 1), offset=7))
    ((sent, failed),) = (result.outcomes for result in late.reported if isinstance(result, ProduceResult))
    assert getattr(sent, "offset", None) == 7
    assert getattr(failed, "written", None) is Written.NO


def test_a_broker_that_paused_is_not_one_with_too_much_to_do() -> None:
    """What it answers late was sent before; it may be quick again."""
    rig = ProducerRig(topics={"orders": 1}, max_in_flight_requests_per_connection=1)
    rig.submit("orders", b"first", turns=1)
    waiting = rig.submit("orders", b"a", timeout_ms=6_000, turns=1)
    rig.clock.advance(4_000)
    rig.answer(produced(ORDERS_0, offset=0), turns=2)
    assert (waiting.reported, sent_last(rig)) == ([], [b"a"])
    rig.answer(produced(ORDERS_0, offset=1))
    assert waiting.offsets == [1]


def test_what_waits_for_another_broker_is_not_given_up() -> None:
    rig = slow_rig(partitions=2)
    other = TopicPartition("orders", 1)
    rig.metadata.update_partition_leadership({other: LeaderIdAndEpoch(1, 5)}, [node(1)])
    rig.submit("orders", ProducerRecord("orders", b"elsewhere", partition=1), turns=1)
    waiting = rig.submit("orders", ProducerRecord("orders", b"a", partition=1), timeout_ms=6_000, turns=1)
    rig.clock.advance(4_000)
    rig.answer(produced(ORDERS_0, offset=1), turns=2)
    assert waiting.reported == []
    rig.answer(produced(other, offset=0), turns=2)
    rig.answer(produced(other, offset=1), turns=2)
    assert waiting.offsets == [1]


def in_flight(rig: ProducerRig) -> int:
    return rig.client.in_flight_request_count()


def overloaded_rig() -> ProducerRig:
    """A broker has answered slowly twice. A request is in flight, and others wait."""
    rig = ProducerRig(topics={"orders": 1})
    rig.submit("orders", b"slow", turns=1)
    rig.clock.advance(2_000)
    rig.answer(produced(ORDERS_0, offset=0), turns=2)
    rig.submit("orders", b"slow too", turns=1)
    rig.clock.advance(2_000)
    rig.submit("orders", b"in flight", turns=1)
    rig.answer(produced(ORDERS_0, offset=1), turns=2)
    rig.submit("orders", b"waits", turns=1)
    rig.submit("orders", b"waits too", turns=1)
    assert (sent_last(rig), in_flight(rig)) == ([b"in flight"], 1)
    return rig


@pytest.mark.parametrize(("took_ms", "at_once"), [(1_000, 2), (1_001, 1)])
def test_an_overloaded_broker_gets_one_request_at_a_time_until_it_is_quick_again(
    took_ms: int, at_once: int
) -> None:
    """Brokers answer the requests of a connection in turn, and what is in flight can't be given up."""
    rig = overloaded_rig()
    rig.clock.advance(took_ms)
    rig.answer(produced(ORDERS_0, offset=2), turns=2)
    assert (sent_last(rig), in_flight(rig)) == ([b"waits", b"waits too"], 1)
    rig.submit("orders", b"next", turns=1)
    assert in_flight(rig) == at_once


def test_a_new_connection_to_a_broker_that_was_overloaded_gets_several_requests() -> None:
    rig = overloaded_rig()
    rig.client.disconnect(0)
    for _ in range(3):
        rig.turn_after(200)
    assert in_flight(rig) == 2


def test_records_without_a_deadline_are_sent_to_an_overloaded_broker_as_kafkas_producer_does() -> None:
    rig = ProducerRig(topics={"orders": 1})
    for offset in range(2):
        rig.producer.send(ProducerRecord("orders", b"slow"))
        rig.turn_after(2_000)
        rig.answer(produced(ORDERS_0, offset=offset), turns=2)
    for sent in (1, 2):
        rig.producer.send(ProducerRecord("orders", b"next"))
        rig.turn()
        assert in_flight(rig) == sent


def test_an_answer_within_a_second_is_no_sign_of_overload() -> None:
    rig = slow_rig()
    waiting = rig.submit("orders", b"a", timeout_ms=1_100, turns=1)
    rig.clock.advance(1_000)
    rig.answer(produced(ORDERS_0, offset=1), turns=2)
    assert sent_last(rig) == [b"a"]
    rig.answer(produced(ORDERS_0, offset=2))
    assert waiting.offsets == [2]


def test_after_a_quick_answer_one_that_is_slow_is_the_first_again() -> None:
    rig = slow_rig()
    rig.submit("orders", b"second", turns=1)
    rig.turn_after(900)
    rig.answer(produced(ORDERS_0, offset=1), turns=2)
    waiting = rig.submit("orders", b"a", timeout_ms=6_000, turns=1)
    rig.clock.advance(4_000)
    rig.answer(produced(ORDERS_0, offset=2), turns=2)
    assert (waiting.reported, sent_last(rig)) == ([], [b"a"])
