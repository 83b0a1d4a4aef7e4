"""KafkaProducer: Java's blocking calls, those that never block, and the end. Twins of KafkaProducerTest."""

from __future__ import annotations

import gc
import re
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from client_core.errors import (
    BufferExhaustedError,
    ConfigError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    ProducerClosedError,
    RecordTooLargeError,
    SaslAuthenticationError,
    SerializationError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from client_core.events import MetadataRefreshFailed, WaitFinished
from client_core.latch import Latch
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.results.status import CloseReport, Unacknowledged
from client_core.producer.sender.wiring import IO_THREAD_NAME
from client_core.producer.settings.config import ProducerConfig
from client_core.record.record_batch import decode_record_batch
from tests.support.metadata_responses import metadata_response
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import ORDERS_0, produced
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from types import FrameType

UNKNOWN, INVALID, UNAUTHORIZED = 3, 17, 29
PATIENCE_S = patient(30)

_T = TypeVar("_T")


@contextmanager
def blocked(rig: ProducerRig, call: Callable[[], _T]) -> Iterator[Future[_T]]:
    """Runs a call on a thread of its own; inside the block it waits by the rig's clock."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        while not rig.clock.waiters and not future.done():
            pass
        yield future


def a_record(topic: str = "orders", partition: int | None = None) -> ProducerRecord:
    return ProducerRecord(topic, b"value", partition=partition)


class _Name(str):
    """A topic's name that can be followed."""


@pytest.mark.parametrize(
    ("topic", "value", "error"),
    [("orders", b"v" * 2_000_000, RecordTooLargeError), ("nowhere", b"v", TimeoutError)],
    ids=["too large", "not known in time"],
)
def test_a_record_that_was_refused_goes_with_its_future(
    topic: str, value: bytes, error: type[KafkaError]
) -> None:
    rig = ProducerRig(topics={"orders": 1}, max_block_ms=0)
    with suppress(KafkaError):
        rig.producer.send(ProducerRecord(topic, value)).result()  # what is kept of a topic is kept by now
    gc.disable()
    try:
        record = ProducerRecord(_Name(topic), value)
        name = weakref.ref(record.topic)
        future = rig.producer.send(record)
        del record
        assert isinstance(future.exception(0), error)
        del future
        assert name() is None
    finally:
        gc.enable()


# -- waiting for metadata ------------------------------------------------------------------------------------


@pytest.mark.behaviour("PROD-01")
def test_known_metadata_is_not_waited_for() -> None:
    rig = ProducerRig(topics={"orders": 1})
    future = rig.producer.send(a_record())
    rig.turn()
    rig.answer(produced(ORDERS_0, offset=4))
    assert future.result(0) == RecordMetadata("orders", 0, 4, rig.clock.wall_ms())
    assert rig.events.of(WaitFinished) == []


@pytest.mark.behaviour("PROD-01")
def test_a_record_for_an_unknown_topic_waits_for_it() -> None:
    rig = ProducerRig(topics={})
    with blocked(rig, lambda: rig.producer.send(a_record())) as sent:
        assert rig.client.wakeups
        rig.clock.advance(200)
        rig.know({"orders": 1})
        future = sent.result(PATIENCE_S)
    assert not future.done()
    assert rig.events.of(WaitFinished) == [WaitFinished("metadata", "success", 200)]
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


@pytest.mark.behaviour("PROD-02")
def test_a_topic_that_never_comes_fails_the_future_with_javas_words() -> None:
    rig = ProducerRig(topics={}, max_block_ms=60_000)
    with blocked(rig, lambda: rig.producer.send(a_record())) as sent:
        rig.clock.advance(30_000)
        rig.know({}, errors={"orders": UNKNOWN})
        while not rig.clock.waiters:
            pass
        rig.clock.advance(30_000)
        future = sent.result(PATIENCE_S)
    with pytest.raises(TimeoutError) as caught:
        future.result(0)
    assert str(caught.value) == "Topic orders not present in metadata after 60000 ms."
    assert rig.events.of(WaitFinished) == [WaitFinished("metadata", "timeout", 60_000)]


@pytest.mark.behaviour("PROD-03")
def test_the_brokers_last_word_is_the_cause_of_a_timeout() -> None:
    rig = ProducerRig(topics={}, max_block_ms=1_000)
    with blocked(rig, lambda: rig.producer.wait_on_metadata("orders", None, 1_000)) as waited:
        rig.know({}, errors={"orders": UNKNOWN})
        rig.clock.advance(1_000)
        with pytest.raises(TimeoutError, match="Topic orders not present") as caught:
            waited.result(PATIENCE_S)
    assert isinstance(caught.value.__cause__, UnknownTopicOrPartitionError)


@pytest.mark.behaviour("PROD-01")
def test_a_partition_out_of_range_is_waited_for() -> None:
    rig = ProducerRig(topics={"orders": 1})
    with blocked(rig, lambda: rig.producer.send(a_record(partition=2))) as sent:
        rig.know({"orders": 3})
        assert not sent.result(PATIENCE_S).done()


@pytest.mark.behaviour("PROD-03")
def test_a_partition_that_never_comes_fails_with_javas_words() -> None:
    rig = ProducerRig(topics={"orders": 1}, max_block_ms=60_000)
    with blocked(rig, lambda: rig.producer.send(a_record(partition=2))) as sent:
        rig.clock.advance(60_000)
        future = sent.result(PATIENCE_S)
    assert str(future.exception(0)) == (
        "Partition 2 of topic orders with partition count 1 is not present in metadata after 60000 ms."
    )


@pytest.mark.parametrize(
    ("code", "error"), [(INVALID, InvalidTopicError), (UNAUTHORIZED, TopicAuthorizationError)]
)
@pytest.mark.behaviour("PROD-04")
def test_a_refusal_by_the_broker_fails_at_once(code: int, error: type[KafkaError]) -> None:
    rig = ProducerRig(topics={})
    with blocked(rig, lambda: rig.producer.send(a_record("bad topic"))) as sent:
        rig.know({}, errors={"bad topic": code})
        assert type(sent.result(PATIENCE_S).exception(0)) is error


@pytest.mark.behaviour("PROD-01")
def test_a_topic_known_to_be_invalid_is_not_asked_for_again() -> None:
    rig = ProducerRig(topics={})
    rig.metadata.add("bad topic", rig.clock.now_ms())
    rig.know({}, errors={"bad topic": INVALID})
    assert isinstance(rig.producer.send(a_record("bad topic")).exception(0), InvalidTopicError)


def test_a_failure_that_makes_metadata_impossible_wakes_waiting_calls() -> None:
    rig = ProducerRig(topics={})
    with blocked(rig, lambda: rig.producer.send(a_record())) as sent:
        rig.metadata.fatal_error(SaslAuthenticationError("wrong password"))
        assert str(sent.result(PATIENCE_S).exception(0)) == "wrong password"


def test_sending_renews_the_topics_idle_expiry() -> None:
    rig = ProducerRig(topics={"orders": 1, "idle": 1})
    rig.clock.advance(200_000)
    rig.producer.send(a_record())
    rig.clock.advance(200_000)
    rig.know({"orders": 1, "idle": 1})
    assert rig.metadata.contains_topic("orders")
    assert not rig.metadata.contains_topic("idle")


def test_partitions_are_returned_when_the_topic_is_known() -> None:
    rig = ProducerRig(topics={})
    with blocked(rig, lambda: rig.producer.partitions_for("orders")) as reported:
        rig.know({"orders": 3})
        assert [info.partition for info in reported.result(PATIENCE_S)] == [0, 1, 2]


@pytest.mark.behaviour("PROD-08")
@pytest.mark.java("KafkaProducerTest.CloseWhenWaitingForMetadataUpdate")
def test_a_closing_producer_ends_the_wait_for_metadata() -> None:
    rig = ProducerRig(topics={}, max_block_ms=2**63 - 1)
    rig.producer.start()
    with blocked(rig, lambda: rig.producer.send(a_record())) as sent:
        rig.client.prepare_metadata_update(metadata_response(nodes=1, errors={"orders": UNKNOWN}), 13)
        rig.producer.close(0)
        with pytest.raises(ProducerClosedError, match="Producer closed while send in progress") as caught:
            sent.result(PATIENCE_S)
    assert str(caught.value.__cause__) == "Requested metadata update after close"


# -- send ----------------------------------------------------------------------------------------------------


def test_a_key_chooses_the_partition_and_a_partition_goes_before_it() -> None:
    rig = ProducerRig(topics={"orders": 4}, linger_ms=1_000)
    keyed = ProducerRecord("orders", b"v", key=b"customer-7")
    rig.producer.send(keyed)
    rig.producer.send(keyed._replace(partition=0))
    waiting = {
        partition: len(rig.producer._accumulator.batches_of(ORDERS_0._replace(partition=partition)))
        for partition in range(4)
    }
    assert sum(waiting.values()) == 2
    assert waiting[0] == 1


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            ProducerRecord("orders", b"v", partition=-1),
            "Invalid partition: -1. Partition number should always be non-negative or null.",
        ),
        (
            ProducerRecord("orders", b"v", timestamp_ms=-5),
            "Invalid timestamp: -5. Timestamp should always be non-negative or null.",
        ),
        (
            ProducerRecord("orders", b"v", partition=cast("int", "0")),
            "Invalid partition: '0'. Partition number should always be non-negative or null.",
        ),
        (
            ProducerRecord("orders", b"v", timestamp_ms=cast("int", "5")),
            "Invalid timestamp: '5'. Timestamp should always be non-negative or null.",
        ),
    ],
)
@pytest.mark.behaviour("PROD-12")
@pytest.mark.java("KafkaProducerTest.negativePartitionShouldThrow", "ProducerRecordTest.InvalidRecords")
def test_arguments_are_checked_by_both_ways_in(record: ProducerRecord, message: str) -> None:
    rig = ProducerRig(topics={"orders": 1})
    with pytest.raises(IllegalArgumentError) as caught:
        rig.producer.send(record)
    assert str(caught.value) == message
    with pytest.raises(IllegalArgumentError):
        rig.submit("orders", ProducerRecord("orders", b"fine"), record)
    assert not rig.producer._accumulator.has_incomplete


@pytest.mark.behaviour("PROD-12")
def test_a_record_of_another_topic_is_refused_with_its_request() -> None:
    """Otherwise it would be written to the topic of the request."""
    rig = ProducerRig(topics={"orders": 1, "other": 1})
    with pytest.raises(IllegalArgumentError, match=r"Record 1 .* topic other, but .* topic orders"):
        rig.submit("orders", ProducerRecord("orders", b"a"), ProducerRecord("other", b"b"))
    assert not rig.producer._accumulator.has_incomplete


@pytest.mark.behaviour("PROD-12")
def test_one_name_in_place_of_several_topics_is_refused() -> None:
    rig = ProducerRig(topics={"orders": 1})
    for call in (
        partial(rig.producer.request_topics, deadline_ms=0, done=print),
        partial(rig.producer.refresh_topics, deadline_ms=0, done=print),
        rig.producer.configure_topics,
    ):
        with pytest.raises(IllegalArgumentError, match="must be a collection of names, such as"):
            call("orders")
    assert rig.metadata.topics == {"orders"}


@pytest.mark.parametrize("headers", [{"trace": b"1"}, [("trace", b"1", 2)], ["trace"]])
def test_a_header_that_is_no_pair_is_shown(headers: Any) -> None:
    rig = ProducerRig(topics={"orders": 1})
    with pytest.raises(SerializationError, match=r"must be a pair of its name and value, .* not .*trace"):
        rig.producer.send(ProducerRecord("orders", b"v", headers=headers))


@pytest.mark.behaviour("PROD-07")
def test_a_record_larger_than_a_request_is_refused_with_javas_words() -> None:
    rig = ProducerRig(topics={"orders": 1}, max_request_size=1_000)
    value = b"x" * 1_000
    error = rig.producer.send(ProducerRecord("orders", value)).exception(0)
    assert isinstance(error, RecordTooLargeError)
    assert str(error) == (
        "The message is 1086 bytes when serialized which is larger than 1000, which is the value of the "
        "max.request.size configuration."
    )
    with pytest.raises(RecordTooLargeError, match="larger than 1000"):
        rig.submit("orders", b"fine", value)


def test_a_record_that_could_never_be_sent_is_found_without_sending_it() -> None:
    rig = ProducerRig(topics={"orders": 1}, max_request_size=1_000)
    fine, large = ProducerRecord("orders", b"fine"), ProducerRecord("orders", b"x" * 1_000)
    rig.producer.check("unknown", [fine._replace(topic="unknown")])
    with pytest.raises(RecordTooLargeError) as refused:
        rig.producer.check("orders", [fine, large])
    assert refused.value.record_index == 1
    with pytest.raises(IllegalArgumentError):
        rig.producer.check("orders", [ProducerRecord("orders", b"fine", partition=-1)])
    with pytest.raises(InvalidTopicError):
        rig.producer.check("\ud800", [fine])
    assert not rig.producer._accumulator.has_incomplete


@pytest.mark.behaviour("PROD-07")
def test_a_record_larger_than_the_buffer_is_refused_with_javas_words() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=500, batch_size=100)
    error = rig.producer.send(ProducerRecord("orders", b"x" * 600)).exception(0)
    assert str(error) == (
        "The message is 686 bytes when serialized which is larger than the total memory buffer you have "
        "configured with the buffer.memory configuration."
    )


@pytest.mark.behaviour("PROD-07")
def test_a_record_just_small_enough_passes() -> None:
    rig = ProducerRig(topics={"orders": 1}, max_request_size=1_000)
    assert not rig.producer.send(ProducerRecord("orders", b"x" * (1_000 - 86))).done()
    with_headers = ProducerRecord("orders", b"x" * 900, headers=(("a" * 40, b"b"),))
    assert isinstance(rig.producer.send(with_headers).exception(0), RecordTooLargeError)


@pytest.mark.behaviour("PROD-05")
def test_send_waits_for_memory_for_what_metadata_left_of_its_time() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=1_000, max_block_ms=500)
    rig.producer.send(ProducerRecord("orders", b"x" * 800))
    with blocked(rig, lambda: rig.producer.send(ProducerRecord("later", b"y" * 800))) as sent:
        rig.clock.advance(200)
        rig.know({"orders": 1, "later": 1})
        while not rig.producer.status().buffer.waiters:
            pass
        rig.clock.advance(299)
        assert not sent.done()
        rig.clock.advance(1)
        error = sent.result(PATIENCE_S).exception(0)
    assert isinstance(error, BufferExhaustedError)
    assert "within the configured max blocking time 300 ms" in str(error)


def test_send_goes_on_when_memory_is_freed() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=1_000)
    rig.producer.send(ProducerRecord("orders", b"x" * 800))
    rig.turn()
    with blocked(rig, lambda: rig.producer.send(ProducerRecord("orders", b"y" * 800))) as sent:
        rig.answer(produced(ORDERS_0, offset=0))
        future = sent.result(PATIENCE_S)
    rig.turn()
    rig.answer(produced(ORDERS_0, offset=1))
    assert future.result(0).offset == 1
    assert rig.producer.status().buffer.available_bytes == 1_000


def test_memory_that_a_send_was_granted_and_does_not_need_is_returned() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=500)
    rig.producer.send(ProducerRecord("orders", b"x" * 900))
    rig.turn()
    send = partial(rig.producer.send, a_record())
    with blocked(rig, send) as first, blocked(rig, send) as second:
        while rig.producer.status().buffer.waiters < 2:
            pass
        rig.respond(produced(ORDERS_0, offset=0))
        rig.turn()  # both get memory for a batch, and both records go into one
        futures = [first.result(PATIENCE_S), second.result(PATIENCE_S)]
    rig.turn()
    rig.answer(produced(ORDERS_0, offset=1))
    assert {future.result(0).offset for future in futures} == {1, 2}
    assert rig.producer.status().buffer.available_bytes == 1_000


def test_memory_that_a_send_was_granted_is_returned_if_the_append_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=1_000)
    pool = rig.producer._pool
    assert pool.try_allocate(1_000)
    with blocked(rig, lambda: rig.producer.send(a_record())) as sent:
        monkeypatch.setattr(rig.clock, "wall_ms", interrupt)
        pool.deallocate(1_000)
        assert isinstance(sent.exception(PATIENCE_S), KeyboardInterrupt)
    assert pool.available_bytes == 1_000


def test_a_callback_may_send_but_not_wait() -> None:
    rig = ProducerRig(topics={"orders": 1})
    errors: list[KafkaError | None] = []
    ended = threading.Event()

    def send_more(future: object) -> None:
        errors.append(rig.producer.send(a_record("unknown")).exception(0))
        errors.append(None if not rig.producer.send(a_record()).done() else KafkaError("not appended"))
        ended.set()

    rig.client.prepare_response(produced(ORDERS_0, offset=0))
    rig.producer.send(a_record(), send_more)
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 1}), 13)
    rig.producer.start()
    try:
        assert ended.wait(PATIENCE_S)
        assert isinstance(errors[0], TimeoutError)
        assert errors[1] is None
    finally:
        rig.producer.close(0)


def test_a_submitted_request_is_appended_at_once_and_keyless_records_stay_together() -> None:
    rig = ProducerRig(topics={"orders": 8})
    waiting = rig.submit("orders", *(b"%d" % n for n in range(50)))
    batches = [rig.producer._accumulator.batches_of(ORDERS_0._replace(partition=p)) for p in range(8)]
    (batch,) = [batch for queue in batches for batch in queue]
    assert batch.record_count == 50
    rig.turn()
    rig.answer(produced(batch.topic_partition, offset=100))
    assert waiting.offsets == list(range(100, 150))


def test_a_request_without_records_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="at least one record"):
        ProducerRig(topics={"orders": 1}).submit("orders")


def test_headers_that_are_none_are_no_headers_and_those_that_have_no_number_are_refused() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=1_000)
    absent: Any = None
    none = a_record()._replace(headers=absent)
    for key in (b"a", None, b"c", None):
        rig.producer.send(none._replace(key=key))
    rig.submit("orders", none._replace(key=b"e"), none, turns=1)
    (batch,) = rig.producer._accumulator.batches_of(ORDERS_0)
    assert [record.headers for record in decode_record_batch(batch.records()).records()] == [()] * 6
    endless: Any = iter(())
    with pytest.raises(SerializationError, match="a sequence of pairs, not tuple_iterator"):
        rig.producer.send(a_record()._replace(headers=endless))


# -- flush ---------------------------------------------------------------------------------------------------


@pytest.mark.java("KafkaProducerTest.FlushCompleteSendOfInflightBatches")
def test_flush_sends_what_lingers_and_ends_when_it_is_acknowledged() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=300_000, delivery_timeout_ms=400_000)
    futures = [rig.producer.send(a_record()) for _ in range(50)]
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(rig.producer.flush)
        wait_until(lambda: rig.producer._accumulator.flush_in_progress, what="the flush waits")
        rig.turn()
        assert not flushed.done()
        rig.answer(produced(ORDERS_0, offset=0))
        flushed.result(PATIENCE_S)
    assert all(future.done() for future in futures)


def test_an_interrupted_flush_is_over() -> None:
    """Lingering batches linger again, and the I/O thread ends without a waiter."""
    rig = ProducerRig(topics={"orders": 1}, linger_ms=300_000, delivery_timeout_ms=400_000)
    rig.producer.send(a_record())

    def interrupt(frame: FrameType, *_: object) -> None:
        if frame.f_code is Latch.wait.__code__:
            assert rig.producer._accumulator.flush_in_progress
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            rig.producer.flush()
    finally:
        sys.settrace(before)
    assert not rig.producer._accumulator.flush_in_progress


def test_a_requested_flush_blocks_nobody_and_ends_when_all_earlier_records_are_acknowledged() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=300_000, delivery_timeout_ms=400_000)
    rig.submit("later", b"parked", turns=1)
    ended: list[str] = []
    future = rig.producer.send(a_record())
    rig.producer.request_flush(partial(ended.append, "flush"))
    rig.turn()
    rig.answer(produced(ORDERS_0, offset=0))
    assert future.done()
    assert not ended, "a record is parked"
    rig.learn({"orders": 1, "later": 1}, turns=3)
    assert not ended
    rig.answer(produced(ORDERS_0._replace(topic="later"), offset=0))
    assert ended == ["flush"]


def test_a_cancelled_flush_ends_for_lingering_records_too() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=300_000, delivery_timeout_ms=400_000)
    rig.producer.send(a_record())
    ended: list[str] = []
    rig.producer.request_flush(partial(ended.append, "flush")).cancel()
    rig.turn(2)
    assert not ended
    assert rig.producer._accumulator.has_undrained, "it lingers again"


def test_flush_of_nothing_ends_at_once() -> None:
    ProducerRig(topics={"orders": 1}).producer.flush()


@pytest.mark.behaviour("PROD-09")
@pytest.mark.java("KafkaProducerTest.shouldNotInvokeFlushInCallback")
def test_flush_in_a_callback_is_not_permitted() -> None:
    rig = ProducerRig(topics={"orders": 1})
    raised: list[KafkaError] = []
    ended = threading.Event()

    def flush(future: object) -> None:
        try:
            rig.producer.flush()
        except KafkaError as error:
            raised.append(error)
        ended.set()

    rig.producer.send(a_record(), flush)
    rig.client.prepare_response(produced(ORDERS_0, offset=0))
    rig.producer.start()
    try:
        assert ended.wait(PATIENCE_S)
        assert str(raised[0]) == (
            "KafkaProducer.flush() invocation inside a callback is not permitted because it may lead to "
            "deadlock."
        )
    finally:
        rig.producer.close(0)


# -- close ---------------------------------------------------------------------------------------------------


def test_close_sends_what_was_appended_first() -> None:  # SND-13
    rig = ProducerRig(topics={"orders": 1}, linger_ms=60_000)
    future = rig.producer.send(a_record())
    rig.client.prepare_response(produced(ORDERS_0, offset=9))
    rig.producer.start()
    report = rig.producer.close(PATIENCE_S * 1_000)
    assert report == CloseReport()
    assert report.flushed
    assert future.result(0).offset == 9
    assert rig.producer.status().state == "closed"


def test_close_gives_up_what_is_not_acknowledged_in_time_and_reports_what_it_was() -> None:
    rig = ProducerRig(topics={"orders": 2})
    futures = [rig.producer.send(a_record(partition=partition)) for partition in (0, 0, 1)]
    parked = rig.submit("unknown", b"a", b"b")
    rig.client.prepare_metadata_update(
        metadata_response(nodes=1, topics={"orders": 2}, errors={"unknown": UNKNOWN}), 13
    )
    rig.producer.start()
    report = rig.producer.close(50)
    assert not report.flushed
    assert sorted(report.unacknowledged, key=str) == [
        Unacknowledged("orders", 0, 2),
        Unacknowledged("orders", 1, 1),
        Unacknowledged("unknown", None, 2),
    ]
    for future in futures:
        assert str(future.exception(0)) == "Producer is closed forcefully."
    assert [str(failure.error) for failure in parked.failures] == [
        "Producer closed while send in progress"
    ] * 2


@pytest.mark.java("KafkaProducerTest.closeShouldBeIdempotent")
def test_close_is_idempotent() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.start()
    assert rig.producer.close(1_000) == rig.producer.close(1_000) == CloseReport()


def test_a_producer_that_was_never_started_can_be_closed() -> None:
    rig = ProducerRig(topics={"orders": 1})
    future = rig.producer.send(a_record())
    report = rig.producer.close(1_000)
    assert report.unacknowledged == (Unacknowledged("orders", 0, 1),)
    assert isinstance(future.exception(0), KafkaError)


@pytest.mark.behaviour("PROD-09")
@pytest.mark.java("KafkaProducerTest.closeWithNegativeTimestampShouldThrow")
def test_a_negative_timeout_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match=r"The timeout cannot be negative\."):
        ProducerRig().producer.close(-1)


@pytest.mark.behaviour("PROD-08")
def test_nothing_is_accepted_after_close() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.start()
    rig.producer.close(0)
    words = "Cannot perform operation after producer has been closed"
    with pytest.raises(IllegalStateError, match=words):
        rig.producer.send(a_record())
    with pytest.raises(IllegalStateError, match=words):
        rig.submit("orders", b"a")
    with pytest.raises(IllegalStateError, match=words):
        rig.look_up("orders")
    with pytest.raises(IllegalStateError, match=words):
        rig.producer.partitions_for("orders")
    with pytest.raises(IllegalStateError, match=words):
        rig.producer.start()


def test_a_flush_with_nothing_to_wait_for_ends_at_once_also_without_an_io_thread() -> None:
    producer = KafkaProducer(ProducerConfig.from_mapping({"bootstrap.servers": "127.0.0.1:1"}))
    ended: list[str] = []
    producer.request_flush(lambda: ended.append("never started"))
    producer.close(0)
    producer.request_flush(lambda: ended.append("closed"))
    assert ended == ["never started", "closed"]


def test_a_producer_that_was_never_started_is_named_where_a_wait_ends() -> None:
    producer = KafkaProducer(
        ProducerConfig.from_mapping({"bootstrap.servers": "127.0.0.1:1", "max.block.ms": "1"})
    )
    remedy = r"after 1 ms\. The producer is not started, .* call start\(\) first"
    with pytest.raises(TimeoutError, match=remedy):
        producer.partitions_for("orders")
    error = producer.send(ProducerRecord("orders", b"x")).exception(0)
    assert error is not None
    assert re.search(remedy, str(error))
    producer.close(0)


@pytest.mark.behaviour("PROD-09")
def test_close_from_a_callback_waits_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    reports: list[CloseReport] = []
    closed = threading.Event()

    def close(future: object) -> None:
        reports.append(rig.producer.close(60_000))
        closed.set()

    rig.producer.send(a_record(), close)
    rig.client.prepare_response(produced(ORDERS_0, offset=0))
    rig.producer.start()
    assert closed.wait(PATIENCE_S)
    assert rig.producer.io_thread.join(PATIENCE_S * 1_000)
    assert reports == [CloseReport()]
    assert "close(60000) in a callback does not wait" in caplog.text


def test_a_thread_with_the_identifier_of_the_ended_io_thread_is_not_in_a_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The system mostly gives the next thread the identifier of the one that ended last."""
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.start()
    report = rig.producer.close(60_000)

    def flush_and_close() -> CloseReport:
        rig.producer.flush()
        return rig.producer.close(60_000)

    for _ in range(10):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(flush_and_close).result(PATIENCE_S) == report
    assert "in a callback" not in caplog.text


@pytest.mark.java("KafkaProducerTest.CloseIsForcedOnPendingInitProducerId")
def test_close_is_not_held_up_by_a_producer_id_that_does_not_come() -> None:
    rig = ProducerRig(topics={"orders": 1}, enable_idempotence=True)
    future = rig.producer.send(a_record())
    rig.producer.start()
    assert not rig.producer.close(50).flushed
    assert str(future.exception(0)) == "Producer is closed forcefully."


def test_close_gives_up_a_request_that_waits_for_memory() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=1_000)
    rig.submit("orders", b"x" * 800)
    parked = rig.submit("orders", b"y" * 800)
    rig.producer.start()
    report = rig.producer.close(50)
    assert set(report.unacknowledged) == {Unacknowledged("orders", 0, 1), Unacknowledged("orders", None, 1)}
    assert isinstance(parked.failures[0].error, ProducerClosedError)


def test_a_client_that_can_not_be_closed_is_logged_and_the_end_comes_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = ProducerRig(topics={"orders": 1})

    def fail() -> None:
        raise OSError("already gone")

    rig.client.close = fail  # type: ignore[method-assign]
    rig.producer.start()
    rig.producer.close(0)
    assert rig.producer.status().state == "closed"
    assert "Failed to close the network client" in caplog.text


# -- the whole -----------------------------------------------------------------------------------------------


def test_the_status_shows_what_the_client_is_doing() -> None:
    rig = ProducerRig(topics={"orders": 3})
    rig.submit("orders", b"a", turns=1)
    rig.clock.advance(40)
    status = rig.producer.status()
    assert (status.state, status.in_flight_batches, status.producer_id) == ("starting", 1, None)
    assert (status.metadata.topics, status.metadata.partitions, status.metadata.age_ms) == (1, 3, 40)
    assert (status.buffer.batches, status.buffer.records) == (1, 1)
    assert status.metadata.last_error is None


def test_the_io_thread_bears_its_name() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.start()
    try:
        assert IO_THREAD_NAME in {thread.name for thread in threading.enumerate()}
    finally:
        rig.producer.close(0)


def test_configured_topics_are_held_for_ever() -> None:
    rig = ProducerRig(topics={})
    rig.producer.configure_topics(["orders"])
    rig.know({"orders": 1})
    rig.clock.advance(10**9)
    rig.know({"orders": 1})
    assert rig.metadata.contains_topic("orders")


def test_metadata_is_refreshed_as_often_as_it_was_lowered_to() -> None:
    rig = ProducerRig(topics={"orders": 1}, metadata_max_age_ms=60_000)
    rig.producer.lower_metadata_max_age(20_000)
    rig.producer.lower_metadata_max_age(30_000)
    assert rig.producer.status().metadata.max_age_ms == 20_000
    assert rig.metadata.time_to_next_update(rig.clock.now_ms()) == 20_000
    with pytest.raises(IllegalArgumentError, match="at least 1 ms"):
        rig.producer.lower_metadata_max_age(0)


@pytest.mark.parametrize("address", ["nonsense", "localhost:99999"])
@pytest.mark.behaviour("PROD-14")
def test_a_wrong_address_is_refused_when_the_producer_is_made(address: str) -> None:
    with pytest.raises(ConfigError, match=f"in bootstrap.servers: {address}"):
        KafkaProducer(ProducerConfig.from_mapping({"bootstrap.servers": address}))


def test_the_repr_shows_its_client_id_and_its_state() -> None:
    assert repr(ProducerRig(client_id="orders").producer) == "<KafkaProducer orders STARTING>"


def test_the_status_has_the_time_since_a_refresh_failed() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer._refreshes.emit(MetadataRefreshFailed("expired", "error", "no answer"))
    rig.clock.advance(30)
    metadata = rig.producer.status().metadata
    assert (metadata.last_error, metadata.last_error_age_ms) == ("no answer", 30)
