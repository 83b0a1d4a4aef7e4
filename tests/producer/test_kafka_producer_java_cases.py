"""Twins of KafkaProducerTest, Kafka 4.3, that need scripted metadata or look into a request.

Java mocks ProducerMetadata. Here `ScriptedMetadata` is a real one that answers each request by a script, on
the calling thread: nothing waits, and every request is counted. Other cases are in `test_kafka_producer.py`,
those on settings in `test_config.py`.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    ClusterAuthorizationError,
    IllegalArgumentError,
    InvalidTopicError,
    KafkaError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from client_core.events import WaitFinished
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.io_thread import LifeCycle
from client_core.producer.sender.produce_request import ProduceRequestBuilder
from client_core.producer.sender.wiring import metadata_config
from client_core.producer.settings.config import ProducerConfig
from client_core.record.record_batch import decode_record_batch
from tests.support.metadata_responses import read
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock
from tests.support.producer_rig import ProducerRig
from tests.support.recorded_events import RecordedEvents
from tests.support.sender_rig import ORDERS_0, produced, producer_id_given, producer_id_refused
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

UNKNOWN, INVALID = 3, 17
PATIENCE_S: Final = patient(30)

LEFT_OUT: Final = {
    "KafkaProducerTest.NoSerializerProvided": "without serializers, keys and values are bytes",
    "KafkaProducerTest.SerializerClose": "a serializer is a function, which holds nothing to close",
    "KafkaProducerTest.PartitionerClose": "the partitioner is part of this client and holds nothing to close",
    "KafkaProducerTest.ConstructorFailureCloseResource": "what is closed there is a reporter of metrics",
    "ProducerRecordTest.EqualsAndHashCode": "a record is a NamedTuple, which Python compares",
}


class Answer(NamedTuple):
    """The outcome of one request: time passes, and then a response comes, or none."""

    topics: Mapping[str, int] | None = None
    after_ms: int = 0
    errors: Mapping[str, int] | None = None


class ScriptedMetadata(ProducerMetadata):
    """Answers each request_update_for_topic by its script, when somebody waits for it."""

    def __init__(self, config: ProducerConfig, clock: MockClock) -> None:
        super().__init__(metadata_config(config), Random(3), clock)
        self._mock_clock = clock
        self.script: list[Answer] = []
        self.asked = 0
        self.waits_ms: list[int] = []

    def request_update_for_topic(self, topic: str) -> int:
        version = super().request_update_for_topic(topic)
        assert self.script, f"asked for {topic} more often than the script has answers"
        self.asked += 1
        return version

    def await_update(self, last_version: int, timeout_ms: int) -> None:
        answer = self.script.pop(0)
        self.waits_ms.append(timeout_ms)
        self.apply(answer)
        super().await_update(last_version, max(timeout_ms - answer.after_ms, 0))

    def apply(self, answer: Answer) -> None:
        self._mock_clock.advance(answer.after_ms)
        if answer.topics is not None:
            response = read(nodes=1, topics=answer.topics, errors=answer.errors)
            self.update(self.request_version, response, False, self._mock_clock.now_ms())


class Scripted:
    """A producer, never started, over scripted metadata."""

    def __init__(self, **settings: object) -> None:
        config = ProducerConfig.from_mapping(
            {
                "bootstrap.servers": "localhost:9999",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.clock = MockClock(now_ms=1_000_000)
        self.metadata = ScriptedMetadata(config, self.clock)
        self.metadata.bootstrap([("localhost", 9999)])
        self.producer = KafkaProducer(
            config,
            clock=self.clock,
            metadata=self.metadata,
            client=MockClient(self.clock, self.metadata),
            random=Random(3),
        )


def a_record(partition: int | None = None) -> ProducerRecord:
    return ProducerRecord("topic", b"value", partition=partition)


idempotent_or_not = pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])


# -- metadata ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PROD-01")
def test_each_wait_for_metadata_has_what_is_left_of_max_block_ms() -> None:
    made = Scripted(max_block_ms=1_000)
    made.metadata.script = [Answer({"other": 1}, after_ms=300), Answer({"topic": 1}, after_ms=100)]
    made.producer.send(a_record())
    assert made.metadata.waits_ms == [1_000, 700]


@pytest.mark.behaviour("PROD-01")
@pytest.mark.java("KafkaProducerTest.MetadataFetch")
@idempotent_or_not
def test_metadata_is_asked_for_until_the_topic_is_there_and_never_again(idempotent: bool) -> None:
    rig = Scripted(enable_idempotence=idempotent)
    rig.metadata.script = [Answer({}), Answer({}), Answer({}), Answer({"topic": 1})]
    assert not rig.producer.send(a_record()).done()
    assert rig.metadata.asked == 4
    assert not rig.producer.send(a_record()).done()
    assert [info.partition for info in rig.producer.partitions_for("topic")] == [0]
    assert rig.metadata.asked == 4
    rig.producer.close(0)


@pytest.mark.java("KafkaProducerTest.MetadataExpiry")
@idempotent_or_not
def test_metadata_that_is_gone_is_asked_for_once_more(idempotent: bool) -> None:
    rig = Scripted(enable_idempotence=idempotent)
    rig.metadata.add("topic", rig.clock.now_ms())
    rig.metadata.apply(Answer({"topic": 1}))
    assert not rig.producer.send(a_record()).done()
    assert rig.metadata.asked == 0
    rig.metadata.apply(Answer({}))
    rig.metadata.script = [Answer({"topic": 1})]
    assert not rig.producer.send(a_record()).done()
    assert rig.metadata.asked == 1
    rig.producer.close(0)


@pytest.mark.behaviour("PROD-02")
@pytest.mark.java("KafkaProducerTest.MetadataTimeoutWithMissingTopic")
@idempotent_or_not
def test_a_missing_topic_is_asked_for_until_the_time_is_over(idempotent: bool) -> None:
    rig = Scripted(enable_idempotence=idempotent, max_block_ms=60_000)
    rig.metadata.script = [Answer({}), Answer({}), Answer({}), Answer({}, after_ms=70_000)]
    future = rig.producer.send(a_record(partition=2))
    assert rig.metadata.asked == 4
    with pytest.raises(TimeoutError, match="Topic topic not present in metadata after 60000 ms"):
        future.result(0)
    rig.producer.close(0)


@pytest.mark.behaviour("PROD-01")
@pytest.mark.java("KafkaProducerTest.MetadataWithPartitionOutOfRange")
@idempotent_or_not
def test_a_partition_that_is_still_to_come_is_asked_for(idempotent: bool) -> None:
    rig = Scripted(enable_idempotence=idempotent, max_block_ms=60_000)
    rig.metadata.add("topic", rig.clock.now_ms())
    rig.metadata.apply(Answer({"topic": 1}))
    rig.metadata.script = [Answer({"topic": 1}), Answer({"topic": 3})]
    assert not rig.producer.send(a_record(partition=2)).done()
    assert rig.metadata.asked == 2
    rig.producer.close(0)


@pytest.mark.behaviour("PROD-03")
@pytest.mark.java("KafkaProducerTest.MetadataTimeoutWithPartitionOutOfRange")
@idempotent_or_not
def test_a_partition_that_never_comes_is_asked_for_until_the_time_is_over(idempotent: bool) -> None:
    rig = Scripted(enable_idempotence=idempotent, max_block_ms=60_000)
    rig.metadata.add("topic", rig.clock.now_ms())
    rig.metadata.apply(Answer({"topic": 1}))
    rig.metadata.script = [Answer({"topic": 1})] * 3 + [Answer({"topic": 1}, after_ms=70_000)]
    future = rig.producer.send(a_record(partition=2))
    assert rig.metadata.asked == 4
    with pytest.raises(
        TimeoutError, match="Partition 2 of topic topic with partition count 1 is not present"
    ):
        future.result(0)
    rig.producer.close(0)


@pytest.mark.java("KafkaProducerTest.TopicRefreshInMetadata")
def test_a_topic_that_every_answer_calls_unknown_ends_the_wait_with_that_as_its_cause() -> None:
    rig = Scripted(max_block_ms=600_000, enable_idempotence=False)
    rig.metadata.script = [Answer({}, after_ms=60_000, errors={"topic": UNKNOWN})] * 10
    with pytest.raises(TimeoutError) as caught:
        rig.producer.partitions_for("topic")
    assert isinstance(caught.value.__cause__, UnknownTopicOrPartitionError)
    assert rig.metadata.script == []


@pytest.mark.behaviour("PROD-03")
@pytest.mark.java("KafkaProducerTest.TopicNotExistingInMetadata")
def test_an_answer_from_before_is_the_cause_where_no_other_comes() -> None:
    rig = Scripted(max_block_ms=30_000)
    # Java's metadata keeps errors of topics that it was not asked for, too; brokers name no such topics.
    rig.metadata.add("topic", rig.clock.now_ms())
    rig.metadata.apply(Answer({}, errors={"topic": UNKNOWN}))
    rig.metadata.script = [Answer(after_ms=30_000)]
    with pytest.raises(TimeoutError) as caught:
        rig.producer.partitions_for("topic")
    assert isinstance(caught.value.__cause__, UnknownTopicOrPartitionError)


@pytest.mark.java("KafkaProducerTest.TopicExpiryInMetadata")
def test_a_topic_that_was_not_used_for_long_is_forgotten_even_if_a_broker_names_it() -> None:
    rig = Scripted(max_block_ms=30_000, metadata_max_idle_ms=60_000)
    rig.metadata.script = [Answer({"topic": 1})]
    assert len(rig.producer.partitions_for("topic")) == 1
    rig.metadata.apply(Answer({"topic": 1}, after_ms=120_000))
    rig.metadata.script = [Answer(after_ms=30_000)]
    with pytest.raises(TimeoutError):
        rig.producer.partitions_for("topic")


@pytest.mark.behaviour("PROD-04")
@pytest.mark.java("KafkaProducerTest.SendToInvalidTopic")
def test_a_name_that_brokers_call_invalid_fails_the_future_and_is_in_the_snapshot() -> None:
    rig = Scripted(max_block_ms=15_000)
    rig.metadata.script = [Answer({}, errors={"topic abc": INVALID})]
    future = rig.producer.send(ProducerRecord("topic abc", b"HelloKafka"))
    assert set(rig.metadata.cache.cluster.invalid_topics) == {"topic abc"}
    with pytest.raises(InvalidTopicError):
        future.result(0)


@pytest.mark.behaviour("PROD-13")
def test_a_record_without_a_timestamp_gets_the_time_after_the_wait() -> None:
    rig = Scripted(max_block_ms=60_000)
    before_ms = rig.clock.wall_ms()
    rig.metadata.script = [Answer({}, after_ms=20_000), Answer({"topic": 1}, after_ms=10_000)]
    rig.producer.send(a_record())
    (batch,) = rig.producer._accumulator.batches_of(ORDERS_0._replace(topic="topic"))
    decoded = decode_record_batch(batch.records())
    assert decoded.base_timestamp_ms == before_ms + 30_000


# -- arguments -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PROD-12")
@pytest.mark.java(
    "KafkaProducerTest.NullTopicName",
    "KafkaProducerTest.PartitionsForWithNullTopic",
    "ProducerRecordTest.InvalidRecords",
)
def test_a_topic_that_is_none_is_refused() -> None:
    nothing: Any = None
    rig = ProducerRig(topics={"orders": 1})
    with pytest.raises(IllegalArgumentError, match=r"Topic cannot be null\."):
        rig.producer.send(ProducerRecord(nothing, b"value", b"key", 1))
    with pytest.raises(IllegalArgumentError, match=r"Topic cannot be null\."):
        rig.producer.partitions_for(nothing)
    no_text: Any = b"orders"
    with pytest.raises(IllegalArgumentError, match=r"A topic must be str, not bytes\."):
        rig.producer.send(ProducerRecord(no_text, b"value"))


def sent_headers(rig: ProducerRig) -> list[object]:
    (request,) = rig.client.requests
    builder = request.builder
    assert isinstance(builder, ProduceRequestBuilder)
    (batch,) = builder.batches
    return [record.headers for record in decode_record_batch(batch.records).records()]


@pytest.mark.java("KafkaProducerTest.HeadersSuccess")
def test_headers_go_out_as_they_were_when_the_record_was_sent() -> None:
    rig = ProducerRig(topics={"orders": 1})
    # Java closes its headers when they are sent. Ours are a tuple in a tuple: there is nothing to close.
    record = ProducerRecord("orders", b"value", b"key")
    record = record._replace(headers=(*record.headers, ("test", b"header2"), ("trace", None)))
    rig.producer.send(record)
    rig.turn()
    assert sent_headers(rig) == [(("test", b"header2"), ("trace", None))]
    with pytest.raises(AttributeError):
        record.headers = ()  # type: ignore[misc]
    assert record.headers[0] == ("test", b"header2")


@pytest.mark.parametrize("header", [("n", b"0"), ["n", b"0"]], ids=["of tuples", "of lists"])
def test_the_headers_of_a_record_that_waits_may_be_changed(header: Any) -> None:
    """Java's ProducerRecord has a copy of them from the start."""
    rig = ProducerRig(topics={})
    headers: Any = [header]
    rig.submit("orders", ProducerRecord("orders", b"a", headers=headers))
    if isinstance(header, list):
        header[1] = b"1"
    headers.append(("of", b"the next record"))
    rig.learn({"orders": 1}, turns=2)
    assert sent_headers(rig) == [(("n", b"0"),)]


def test_a_list_of_headers_that_is_empty_at_first_may_be_filled_while_its_record_waits() -> None:
    rig = ProducerRig(topics={})
    headers: Any = []
    rig.submit("orders", ProducerRecord("orders", b"a", headers=headers))
    headers.append(("of", b"the next record"))
    rig.learn({"orders": 1}, turns=2)
    assert sent_headers(rig) == [()]


@pytest.mark.java("KafkaProducerTest.HeadersFailure")
def test_a_record_that_could_not_be_sent_can_be_sent_again_with_other_headers() -> None:
    rig = Scripted(max_block_ms=5)
    rig.metadata.script = [Answer(after_ms=5)]
    record = ProducerRecord("topic", b"value", b"key")
    with pytest.raises(TimeoutError):
        rig.producer.send(record, lambda _: None).result(0)
    rig.metadata.script = [Answer({"topic": 1})]
    assert not rig.producer.send(record._replace(headers=(("again", b"1"),))).done()
    rig.producer.close(0)


# -- outcomes ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PROD-06")
def test_errors_that_a_broker_could_return_go_to_the_future_and_the_callback_and_others_are_raised() -> None:
    reported: list[KafkaError | None] = []
    rig = Scripted(max_block_ms=5)
    rig.metadata.script = [Answer(after_ms=5)]
    future = rig.producer.send(a_record(), lambda done: reported.append(done.exception(0)))
    assert reported == [future.exception(0)]
    assert isinstance(reported[0], TimeoutError)
    with pytest.raises(IllegalArgumentError):
        rig.producer.send(a_record(partition=-1), lambda done: reported.append(done.exception(0)))
    assert len(reported) == 1
    rig.producer.close(0)


@pytest.mark.java("KafkaProducerTest.ClusterAuthorizationFailure")
def test_a_producer_id_that_is_refused_fails_what_waits_and_may_be_granted_later() -> None:
    # Java asks for it by initTransactions, which ours does not have: here a record does.
    rig = ProducerRig(topics={"orders": 1}, enable_idempotence=True)
    first = rig.producer.send(a_record()._replace(topic="orders"))
    rig.turn()
    rig.answer(producer_id_refused(Errors.CLUSTER_AUTHORIZATION_FAILED), turns=2)
    assert isinstance(first.exception(0), ClusterAuthorizationError)
    rig.clock.advance(100)
    second = rig.producer.send(a_record()._replace(topic="orders"))
    rig.turn()
    rig.answer(producer_id_given(), turns=2)
    rig.answer(produced(ORDERS_0, offset=7))
    assert second.result(0).offset == 7


@pytest.mark.java("KafkaProducerTest.FlushMeasureLatency")
def test_the_duration_of_a_flush_is_measured() -> None:
    # Java has the sum of it as a metric; here each flush is an event.
    rig = ProducerRig(topics={"orders": 1}, linger_ms=60_000)
    rig.producer.send(a_record()._replace(topic="orders"))
    flusher = threading.Thread(target=rig.producer.flush)
    flusher.start()
    wait_until(lambda: rig.producer._accumulator.flush_in_progress, what="the flush waits")
    rig.turn()
    rig.clock.advance(40)
    rig.answer(produced(ORDERS_0, offset=0))
    flusher.join(PATIENCE_S)
    rig.producer.flush()
    assert rig.events.of(WaitFinished) == [
        WaitFinished("flush", "success", 40),
        WaitFinished("flush", "success", 0),
    ]


# -- close ---------------------------------------------------------------------------------------------------


@pytest.fixture
def interrupts_are_raised() -> Iterator[None]:
    """As in a program of its own: a process that runs tests for another may ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts_are_raised")
@pytest.mark.java("KafkaProducerTest.shouldCloseProperlyAndThrowIfInterrupted")
def test_an_interrupt_ends_the_wait_of_a_close_and_the_producer_too() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1)
    main_thread = threading.get_ident()
    interrupted = threading.Event()

    def interrupt() -> None:
        while rig.producer.io_thread.life_cycle is not LifeCycle.CLOSING:
            pass
        signal.pthread_kill(main_thread, signal.SIGINT)
        interrupted.set()

    rig.producer.start()
    future = rig.producer.send(a_record()._replace(topic="orders"))
    while not rig.client.in_flight_request_count():
        pass
    assert not future.done()
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        rig.producer.close()
    interrupter.join(PATIENCE_S)
    assert interrupted.is_set()
    assert rig.producer.status().state == "closed"
    assert str(future.exception(0)) == "Producer is closed forcefully."


def test_an_interrupt_as_a_condition_is_entered_leaves_no_lock_taken() -> None:
    """It comes after the lock is taken and before the body of the `with`: no `finally` would release it."""
    rig = ProducerRig(topics={"orders": 1}, batch_size=1)
    rig.producer.start()
    entered = threading.Condition.__enter__.__code__

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is entered and event == "return":
            raise KeyboardInterrupt
        return interrupt

    metadata = rig.producer._metadata
    future = rig.producer.send(a_record()._replace(topic="orders"))
    for call in (
        metadata.request_update_for_new_topics,
        lambda: rig.producer.send(a_record()._replace(topic="orders")),
        lambda: future.exception(0.01),
        lambda: rig.producer.request_flush(lambda: None),
        lambda: rig.producer.close(0),
    ):
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            with suppress(KeyboardInterrupt, TimeoutError):
                call()
        finally:
            sys.settrace(before)
    closing = threading.Thread(target=rig.producer.close, args=(0,), daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert rig.producer.status().state == "closed"


def test_a_producer_is_a_context_manager_that_starts_and_closes_it() -> None:
    rig = ProducerRig(topics={"orders": 1}, linger_ms=60_000)
    rig.client.prepare_response(produced(ORDERS_0, offset=9))
    with rig.producer as producer:
        future = producer.send(a_record()._replace(topic="orders"))
        assert producer.status().state in ("starting", "running")
    assert future.result(0).offset == 9
    assert rig.producer.status().state == "closed"


def test_remarks_on_settings_are_not_events() -> None:
    events = RecordedEvents()
    config = ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9999", "retries": 0})
    KafkaProducer(config, events=events).close()
    assert events.events == []
