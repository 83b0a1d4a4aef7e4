"""From the spool to Kafka: in order, at least once, and nothing that can't be delivered holds up the rest."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from client_core import (
    ClusterAuthorizationError,
    InvalidRecordError,
    InvalidTimestampError,
    NotEnoughReplicasError,
    Phase,
    PolicyViolationError,
    ProducerRecord,
    RecordFailure,
    RecordTooLargeError,
    SaslAuthenticationError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from service.base.settings import Settings
from service.spool.dead_letters import dead_letters_in
from service.spool.delivery_outcome import MOST_ATTEMPTS
from service.spool.entry import frame_of
from service.spool.lanes import CHUNK_BYTES, RECORD_BYTES, WINDOW_BYTES
from service.spool.spool import make_spool, spool_config
from tests.support.mock_clock import MockClock
from tests.support.spooling import (
    SpoolRig,
    acknowledged,
    aside,
    fail_values,
    failure,
    record,
    records,
    salt_of,
    timed_out,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_producer import Outcome


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    return SpoolRig(tmp_path / "spool")


# -- delivered -----------------------------------------------------------------------------------------------


def test_records_go_out_in_the_order_in_which_they_were_spooled(rig: SpoolRig) -> None:
    for one in records(20):
        rig.spool_in([one])
    rig.deliver()
    assert rig.sent == [f"orders-{n}" for n in range(20)]
    assert (rig.spool.entries, rig.spool.delivery.delivered) == (0, 20)


def test_a_record_is_sent_as_it_came_with_the_time_at_which_it_was_accepted(rig: SpoolRig) -> None:
    headers = (("a", b"1"), ("a", None))
    plain = ProducerRecord("orders", None, b"key", 2, None, headers)
    timed = ProducerRecord("orders", b"", None, None, 17)
    accepted_ms = rig.clock.wall_ms()
    rig.spool_in([plain, timed])
    rig.clock.advance(3_600_000)
    rig.deliver()
    assert rig.producer.submitted == [[plain._replace(timestamp_ms=accepted_ms), timed]]


def test_nothing_is_sent_before_it_is_on_the_disk(rig: SpoolRig) -> None:
    rig.submit(records(1))
    rig.deliver()
    assert rig.sent == []


def test_a_topic_has_one_request_on_its_way_so_that_none_overtakes_another(rig: SpoolRig) -> None:
    rig.producer.holds_records = True
    for topic in ("orders", "payments"):
        for _ in range(3):
            rig.spool_in(records(400, topic))
    rig.deliver()
    assert sorted({ticket.asked["topic"] for ticket in rig.producer.waiting}) == ["orders", "payments"]
    assert len(rig.producer.waiting) == 2
    first, _ = rig.producer.waiting
    rig.producer.acknowledge(first)
    rig.deliver()
    assert len(rig.producer.waiting) == 2


def test_what_may_pass_is_tried_again_in_order_until_it_is_delivered(rig: SpoolRig) -> None:
    rig.spool_in(records(3))
    rig.producer.outcome_of = lambda *_: failure(NotEnoughReplicasError())
    for _ in range(50):
        rig.deliver_after(1_000)
    assert aside(rig) == []
    rig.producer.outcome_of = None
    found = acknowledged(rig)
    rig.spool_in([record("last")])
    rig.deliver_after(1_000)
    assert found == ["orders-0", "orders-1", "orders-2", "last"]


@pytest.mark.parametrize(
    "error",
    [
        timed_out(),
        failure(SaslAuthenticationError()),
        failure(ClusterAuthorizationError()),
        failure(UnknownTopicOrPartitionError()),
        failure(UnknownServerError()),
    ],
    ids=str,
)
def test_what_is_not_the_records_fault_waits(rig: SpoolRig, error: RecordFailure) -> None:
    fail_values(rig, error, "orders-0")
    rig.spool_in(records(2))
    rig.deliver()
    assert (aside(rig), rig.spool.entries) == ([], 1)
    rig.producer.outcome_of = None
    rig.deliver_after(1_000)
    assert rig.spool.entries == 0


def test_one_topic_that_stands_still_does_not_hold_up_another(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(), *(f"orders-{n}" for n in range(3)))
    rig.spool_in([*records(3), *records(3, "payments")])
    rig.deliver()
    assert [value for value in rig.sent if value.startswith("payments")] == [
        f"payments-{n}" for n in range(3)
    ]
    assert rig.spool.entries == 3


def test_a_topic_that_stands_still_takes_little_memory_and_is_read_again(rig: SpoolRig) -> None:
    values = [f"{n:04d}" + "x" * 50_000 for n in range(60)]
    fail_values(rig, timed_out(), *values)
    for value in values:
        rig.spool_in([record(value)])
    rig.spool_in(records(3, "payments"))
    rig.deliver()
    assert rig.sent[-3:] == ["payments-0", "payments-1", "payments-2"]
    (lane,) = rig.spool.delivery.lanes
    assert lane.waiting_bytes < 1_200_000
    assert (lane.undone, rig.spool.entries) == (60, 60)
    rig.producer.outcome_of = None
    found = acknowledged(rig)
    rig.spool_in([record("last")])
    rig.deliver_after(1_000)
    assert found == [*values, "last"]
    assert rig.spool.entries == 0


def test_of_a_host_of_topics_that_stand_still_no_more_are_in_memory_than_fit(rig: SpoolRig) -> None:
    fit = WINDOW_BYTES // RECORD_BYTES
    topics = {f"topic-{number}": 1 for number in range(fit + fit // 2)}
    rig.producer.set_topics(topics)
    rig.producer.holds_records = True
    rig.spool_in([record("", topic) for topic in topics])
    rig.deliver()
    # One read may bring some more.
    assert fit // 2 < len(rig.producer.waiting) < len(topics)
    rig.producer.holds_records = False
    for ticket in list(rig.producer.waiting):
        rig.producer.acknowledge(ticket)
    rig.deliver()
    assert (rig.spool.entries, rig.spool.delivery.delivered) == (0, len(topics))


# -- set aside -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (timed_out(UnknownTopicOrPartitionError()), "topic_gone"),
        (failure(TopicAuthorizationError()), "forbidden"),
        (failure(TopicAuthorizationError(), Phase.METADATA), "forbidden"),
        (failure(RecordTooLargeError()), "too_large"),
        (failure(InvalidRecordError()), "invalid"),
        (failure(InvalidTimestampError()), "invalid"),
        (failure(PolicyViolationError()), "invalid"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_never_be_delivered_is_set_aside_and_the_rest_goes_on(
    rig: SpoolRig, error: RecordFailure, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    fail_values(rig, error, "orders-1")
    found = acknowledged(rig)
    rig.spool_in(records(3))
    rig.wait_out()
    assert found == ["orders-0", "orders-2"]
    assert aside(rig) == [("orders-1", reason)]
    assert rig.spool.entries == 0
    assert f"1 records of topic orders are dead letters ({reason})" in caplog.text
    counted = {labels: counter.value for labels, counter in rig.spool.delivery.set_aside.items()}
    assert counted[(reason,)] == 1
    assert rig.spool.status(lambda _: True)["last_error"] == error.error.error.name


def test_a_neighbour_of_a_record_that_brokers_refuse_is_not_set_aside_with_it(rig: SpoolRig) -> None:
    """Brokers refuse the batch; each of its records is then tried by itself."""

    def report(index: int, one: ProducerRecord) -> Outcome:
        chunk = rig.producer.submitted[-1]
        if any(other.value == b"orders-1" for other in chunk):
            return failure(InvalidRecordError())
        return rig.producer.receipt(index, one)

    rig.producer.outcome_of = report
    found = acknowledged(rig)
    rig.spool_in(records(4))
    rig.wait_out()
    assert found == ["orders-0", "orders-2", "orders-3"]
    assert aside(rig) == [("orders-1", "invalid")]


def test_a_record_of_which_the_client_takes_none_is_set_aside(rig: SpoolRig) -> None:
    rig.producer.refuses = RecordTooLargeError("The message is 9 bytes when serialized")
    rig.spool_in(records(2))
    rig.deliver()
    assert aside(rig) == [("orders-0", "too_large"), ("orders-1", "too_large")]


def test_a_partition_that_the_topic_does_not_have_is_set_aside(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(), "odd")
    rig.spool_in([record("odd", partition=7), record("even", partition=2)])
    rig.deliver()
    assert aside(rig) == [("odd", "partition_gone")]


def test_an_error_without_a_remedy_is_tried_some_times(rig: SpoolRig) -> None:
    fail_values(rig, failure(UnknownServerError()), "orders-0")
    rig.spool_in(records(1))
    rig.deliver()
    for _ in range(9):  # ten attempts, a second apart
        assert rig.spool.delivery.view.refused == []
        rig.deliver_after(1_000)
    ((topic, count, reason, _, _),) = rig.spool.delivery.view.refused
    assert (topic, count, reason) == ("orders", 1, "refused")
    for _ in range(60):
        assert aside(rig) == []
        rig.deliver_after(1_000)
    assert aside(rig) == [("orders-0", "refused")]


def test_records_whose_topic_goes_while_they_are_on_their_way_are_set_aside(rig: SpoolRig) -> None:
    """They expire in the producer, and the next attempt finds no topic."""
    rig.producer.holds_records = True
    rig.spool_in(records(2))
    rig.deliver()
    (ticket,) = rig.producer.waiting
    rig.producer.outcome_of = lambda *_: failure(TimeoutError("Expiring 2 record(s) for orders-0"))
    rig.producer.acknowledge(ticket)
    rig.deliver()
    assert (aside(rig), rig.spool.entries) == ([], 2)
    rig.producer.outcome_of = lambda *_: timed_out(UnknownTopicOrPartitionError())
    rig.producer.holds_records = False
    rig.deliver_after(1_000)
    assert aside(rig) == [("orders-0", "topic_gone"), ("orders-1", "topic_gone")]


def test_what_expired_in_the_producer_is_tried_again_in_its_order_however_often(rig: SpoolRig) -> None:
    rig.spool_in(records(3))
    fail_values(rig, failure(TimeoutError("Expiring 2 record(s)")), "orders-0", "orders-2")
    for _ in range(2 * MOST_ATTEMPTS):
        rig.deliver_after(1_000)
    rig.producer.outcome_of = None
    found = acknowledged(rig)
    rig.spool_in([record("last")])
    rig.deliver_after(1_000)
    assert (found, aside(rig)) == (["orders-0", "orders-2", "last"], [])


def test_a_record_of_a_later_format_is_set_aside_as_it_is(rig: SpoolRig) -> None:
    rig.spool_in(records(1))
    path = rig.segments[0]
    path.write_bytes(path.read_bytes() + frame_of(salt_of(path), 2, b"of the future", version=9))
    rig = rig.again()
    rig.spool_in([record("next")])
    rig.deliver()
    assert rig.sent == ["orders-0", "next"]
    ((found,),) = [file.records for file in dead_letters_in(rig.folder)]
    assert (found.sequence, found.reason, found.version, found.payload) == (
        2,
        "unreadable",
        9,
        b"of the future",
    )


def test_where_nothing_can_be_set_aside_the_record_waits_and_is_not_lost(rig: SpoolRig) -> None:
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.spool_in(records(1))
    rig.deliver()
    rig.disk.fails["write"] = 1_000
    rig.wait_out()
    assert (aside(rig), rig.spool.entries) == ([], 1)
    rig.disk.fails["write"] = 0
    rig.deliver_after(1_000)
    assert (aside(rig), rig.spool.entries) == ([("orders-0", "forbidden")], 0)


def test_set_aside_twice_a_record_lies_there_once(rig: SpoolRig) -> None:
    """Killed after it was set aside, and before the mark was written."""
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0", "orders-2")
    rig.spool_in(records(3))
    rig.wait_out()
    rig = rig.again()
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.wait_out()
    assert sorted(aside(rig)) == [("orders-0", "forbidden"), ("orders-2", "forbidden")]
    assert rig.spool.aside.records == 2


# -- threads -------------------------------------------------------------------------------------------------


def test_the_threads_deliver_what_is_spooled_and_end(rig: SpoolRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.producer.holds_records = True
    rig.spool.start(lambda function: function())
    rig.submit(records(2))
    with caplog.at_level(logging.INFO):
        rig.spool.close(10_000)
    assert "2 records stay in" not in caplog.text or rig.sent == []
    assert json.loads((rig.folder / "mark.json").read_text())["done"] >= 1
    again = SpoolRig(rig.folder)
    again.deliver()
    assert {*rig.sent, *again.sent} == {"orders-0", "orders-1"}


def test_what_the_closing_producer_gave_up_is_neither_lost_nor_set_aside(rig: SpoolRig) -> None:
    rig.producer.holds_records = True
    rig.spool_in(records(2))
    rig.deliver()
    rig.producer.outcome_of = lambda *_: failure(InvalidRecordError())
    rig.spool.close(10)
    again = SpoolRig(rig.folder)
    again.deliver()
    assert (again.sent, aside(again)) == (["orders-0", "orders-1"], [])


# -- the producer of the spool -------------------------------------------------------------------------------


def config_of(**kafka: str) -> tuple[str, bool, int, int, int]:
    given = {
        "bootstrap.servers": "localhost:9092",
        **{name.replace("_", "."): v for name, v in kafka.items()},
    }
    config = spool_config(Settings(kafka=given))
    in_flight = config.max_in_flight_requests_per_connection
    expires = config.delivery_timeout_ms, config.retries
    return config.acks, config.enable_idempotence, in_flight, *expires


def test_its_records_are_tried_for_two_minutes_at_a_time_and_acknowledged_by_all() -> None:
    given = config_of(acks="0", retries="3", delivery_timeout_ms="31000")
    assert given == ("all", True, 5, 120_000, 2**31 - 1)


def test_an_answer_has_the_time_that_it_has_otherwise() -> None:
    given = {"request_timeout_ms": "300000", "delivery_timeout_ms": "400000", "linger_ms": "7"}
    assert config_of(**given)[3] == 300_000


def test_without_idempotence_it_sends_one_request_at_a_time_so_that_none_overtakes() -> None:
    assert config_of(enable_idempotence="false")[1:3] == (False, 1)


@pytest.mark.parametrize(
    ("given", "batch_bytes"),
    [
        ({}, CHUNK_BYTES),
        ({"batch.size": "1"}, CHUNK_BYTES),
        ({"batch.size": "200000"}, 200_000),
        ({"max.request.size": "5000"}, 5_000),
        ({"batch.size": "200000", "max.request.size": "150000"}, 150_000),
    ],
)
def test_a_request_is_one_batch_that_nothing_is_waited_for(given: dict[str, str], batch_bytes: int) -> None:
    config = spool_config(Settings(kafka={"bootstrap.servers": "localhost:9092", "linger.ms": "9", **given}))
    assert (config.batch_size, config.linger_ms, config.buffer_memory) == (batch_bytes, 0, 2**31 - 1)


def test_it_goes_by_a_name_of_its_own_and_looks_the_brokers_up_later(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "nowhere.invalid:9092", "client.id": "billing"}
    settings = Settings(kafka=kafka, spool_folder=str(tmp_path / "spool"))
    assert spool_config(settings).client_id == "billing-spool"
    make_spool(settings, MockClock()).release()
