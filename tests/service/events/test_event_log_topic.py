"""Events to a topic: what is in flight is bounded, what can't be sent waits, and nobody hears of it twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from client_core import (
    NetworkError,
    Phase,
    RecordFailure,
    RecordMetadata,
    RecordTooLargeError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    Written,
)
from service.base.settings import Settings
from service.events.event_topic import (
    CHUNK_BYTES,
    MOST_IN_FLIGHT_BYTES,
    PAUSE_MS,
    TOPIC_WAIT_MS,
    EventTopic,
    events_config,
)
from service.events.outbox import Line, Outbox
from tests.support.fake_producer import FakeProducer

if TYPE_CHECKING:
    import pytest

    from client_core import KafkaError, ProducerRecord

TOPIC = "pilotfish.events"


class Desk:
    """A sink over a fake producer, and an outbox for it."""

    def __init__(self, *, holds: bool = False, max_bytes: int = 100_000_000) -> None:
        self.calls = 0
        self.producer = FakeProducer(holds_records=holds)
        self.outbox = Outbox(max_bytes)
        self.topic = EventTopic(
            self.producer, TOPIC, "pod-1", delivery_timeout_ms=120_000, create=False, call=self._call
        )
        self.topic.begin()

    def _call(self) -> None:
        self.calls += 1

    def send(self, *texts: str) -> None:
        for text in texts:
            self.outbox.put(Line(text.encode()))
        self.turn()

    def turn(self) -> None:
        self.topic.turn(self.outbox, self.producer.clock.now_ms())

    def values(self) -> list[str]:
        return [(record.value or b"").decode() for records in self.producer.submitted for record in records]


def failing(error: KafkaError) -> Any:
    return lambda *_: RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 5)


def missing() -> KafkaError:
    error = TimeoutError(f"Topic {TOPIC} not present in metadata after {TOPIC_WAIT_MS} ms.")
    error.__cause__ = UnknownTopicOrPartitionError()
    return error


def test_lines_become_records_keyed_by_the_sidecar() -> None:
    desk = Desk()
    assert desk.producer.state == "running"
    desk.send("one", "two")
    (records,) = desk.producer.submitted
    assert [(record.topic, record.key, record.value) for record in records] == [
        (TOPIC, b"pod-1", b"one"),
        (TOPIC, b"pod-1", b"two"),
    ]
    ((_, asked),) = desk.producer.calls
    now_ms = desk.producer.clock.now_ms()
    assert asked["block_deadline_ms"] == now_ms + TOPIC_WAIT_MS
    assert asked["create"] is False


def test_what_was_acknowledged_is_written_and_nothing_is_in_flight() -> None:
    desk = Desk()
    desk.send("one", "two")
    assert desk.calls == 1  # the log is called: it may have more
    desk.turn()
    assert (desk.topic.written, desk.topic.in_flight_bytes) == (2, 0)


def test_only_so_much_is_on_its_way_and_the_rest_waits() -> None:
    desk = Desk(holds=True)
    text = "x" * (CHUNK_BYTES // 4)
    desk.send(*[text] * 100)
    assert desk.topic.in_flight_bytes == MOST_IN_FLIGHT_BYTES
    assert len(desk.outbox) == 100 - 4 * 8
    desk.producer.acknowledge(desk.producer.waiting[0])
    desk.turn()
    assert desk.topic.in_flight_bytes == MOST_IN_FLIGHT_BYTES
    assert desk.topic.written == 4


def test_what_could_not_be_sent_goes_back_as_the_oldest_and_is_tried_again_after_a_pause() -> None:
    desk = Desk()
    desk.producer.outcome_of = failing(NetworkError("the connection broke"))
    desk.send("one", "two")
    desk.send("three")  # hears of the failure
    assert desk.outbox.take(1_000) == [Line(b"one"), Line(b"two"), Line(b"three")]
    desk.outbox.put_back([Line(b"one"), Line(b"two"), Line(b"three")])
    desk.producer.outcome_of = None
    desk.producer.clock.advance(PAUSE_MS - 1)
    desk.turn()
    assert desk.values() == ["one", "two"]
    desk.producer.clock.advance(1)
    desk.turn()
    assert desk.values() == ["one", "two", "one", "two", "three"]


def test_of_a_submit_only_what_failed_is_sent_again() -> None:
    desk = Desk()

    def second_fails(index: int, record: ProducerRecord) -> RecordMetadata | RecordFailure:
        failed = failing(NetworkError("the connection broke"))
        return failed() if index == 1 else FakeProducer.receipt(index, record)

    desk.producer.outcome_of = second_fails
    desk.send("one", "two", "three")
    desk.turn()
    assert desk.outbox.take(1_000) == [Line(b"two")]
    assert desk.topic.written == 2


def test_a_missing_topic_is_told_of_once_with_what_to_do_and_once_when_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    desk.producer.outcome_of = failing(missing())
    desk.send("one")
    for _ in range(3):
        desk.producer.clock.advance(PAUSE_MS)
        desk.turn()
    assert caplog.text.count("it is not there: make it (docs/events.md says how); events wait") == 1
    desk.producer.outcome_of = None
    desk.producer.clock.advance(PAUSE_MS)
    desk.turn()
    desk.turn()
    assert "events are acknowledged again" in caplog.text
    assert desk.topic.written == 1


def test_while_the_topic_takes_nothing_the_oldest_lines_are_given_up() -> None:
    desk = Desk(max_bytes=10)
    desk.producer.outcome_of = failing(NetworkError("the connection broke"))
    for n in range(20):
        desk.send(f"{n:03d}")
    assert desk.outbox.waiting_bytes <= 10
    assert desk.outbox.dropped == 17
    assert desk.topic.in_flight_bytes == 0


def test_a_line_that_no_broker_takes_is_lost_alone(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.producer.outcome_of = lambda index, record: (
        failing(RecordTooLargeError("too large"))() if index == 1 else FakeProducer.receipt(index, record)
    )
    desk.send("one", "two", "three")
    desk.turn()
    assert (desk.topic.written, len(desk.outbox), desk.outbox.dropped) == (2, 0, 1)
    assert "an event is lost" in caplog.text


class Narrow(FakeProducer):
    """Takes no record of more than five bytes, as with a small max.request.size."""

    def submit(self, topic: str, records: Any, **asked: Any) -> Any:
        if any(len(record.value) > 5 for record in records):
            raise RecordTooLargeError("too large")
        return super().submit(topic, records, **asked)


def test_a_line_that_is_too_large_for_a_request_does_not_take_others_along() -> None:
    producer, outbox = Narrow(), Outbox(1_000)
    topic = EventTopic(producer, TOPIC, "pod-1", delivery_timeout_ms=1, create=False, call=lambda: None)
    for text in (b"one", b"too large", b"three"):
        outbox.put(Line(text))
    topic.turn(outbox, 0)
    topic.turn(outbox, 0)
    assert [record.value for records in producer.submitted for record in records] == [b"one", b"three"]
    assert (topic.written, topic.in_flight_bytes, outbox.dropped) == (2, 0, 1)


# -- the end -------------------------------------------------------------------------------------------------


def test_at_the_end_all_is_submitted_and_the_producer_closed_within_what_is_left() -> None:
    desk = Desk()
    for n in range(100):
        desk.outbox.put(Line(b"%0100d" % n))
    desk.topic.close(desk.outbox, desk.producer.clock.now_ms() + 700)
    assert len(desk.values()) == desk.topic.written == 100
    assert desk.producer.closed_after_ms == 700


def test_what_close_gives_up_is_in_the_outbox_again() -> None:
    desk = Desk(holds=True)
    desk.producer.outcome_of = failing(NetworkError("closed"))
    desk.send("one", "two")
    desk.topic.close(desk.outbox, desk.producer.clock.now_ms() + 700)
    assert len(desk.outbox) == 2
    assert desk.topic.in_flight_bytes == 0


def test_a_topic_that_took_nothing_before_gets_a_second_at_the_end_and_no_more() -> None:
    desk = Desk()
    desk.producer.outcome_of = failing(missing())
    desk.send("one")
    desk.turn()
    desk.topic.close(desk.outbox, desk.producer.clock.now_ms() + 20_000)
    assert desk.producer.closed_after_ms == 1_000


# -- the producer of events ----------------------------------------------------------------------------------


def of(**kafka: str) -> Any:
    given = {name.replace("_", "."): value for name, value in kafka.items()}
    return events_config(Settings(kafka={"bootstrap.servers": "broker:9092", **given}))


def test_its_settings_are_the_sidecars_but_for_how_batches_are_made() -> None:
    config = of(acks="1", request_timeout_ms="4000", compression_type="lz4", partitioner_ignore_keys="true")
    assert (config.acks, config.request_timeout_ms) == ("1", 4_000)
    assert (config.compression_type, config.linger_ms) == ("zstd", 1_000)
    assert config.buffer_memory == 4 * MOST_IN_FLIGHT_BYTES
    assert config.client_id == "producer-1-events"
    assert not config.partitioner_ignore_keys


def test_it_lingers_less_where_the_delivery_timeout_leaves_no_second() -> None:
    config = of(delivery_timeout_ms="2500", request_timeout_ms="2000")
    assert (config.linger_ms, config.delivery_timeout_ms) == (500, 2_500)


def test_its_name_follows_the_sidecars() -> None:
    assert of(client_id="checkout").client_id == "checkout-events"
