"""From the spool to Kafka: in order, at least once, over restarts, and no record blocks other topics."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from client_core import (
    FOREVER_MS,
    ClusterAuthorizationError,
    InvalidRecordError,
    InvalidTimestampError,
    NotEnoughReplicasError,
    Phase,
    PolicyViolationError,
    ProducerRecord,
    RecordTooLargeError,
    SaslAuthenticationError,
    SerializationError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from service.base.settings import Settings
from service.spool.dead_letters import dead_letters_in
from service.spool.delivery import MARK_EVERY_MS, PAUSE_MS
from service.spool.delivery_outcome import MOST_ATTEMPTS
from service.spool.entry import VERSION, frame_of
from service.spool.folder import Mark, read_mark
from service.spool.lanes import CHUNK_BYTES, CHUNK_RECORDS, RECORD_BYTES, WINDOW_BYTES, Lane
from service.spool.reader import Stored
from service.spool.spool import make_spool, spool_config
from tests.support.mock_clock import MockClock
from tests.support.spooling import (
    SpoolRig,
    acknowledged,
    dead_letters_of,
    fail_values,
    failure,
    record,
    records,
    salt_of,
    timed_out,
)

if TYPE_CHECKING:
    from pathlib import Path

    from client_core import ProducerConfig
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


def test_a_failure_that_may_pass_is_tried_again_in_order_until_delivery(tmp_path: Path) -> None:
    everything = ("orders-0", "orders-1", "orders-2")
    for error, refused, times in (
        (NotEnoughReplicasError(), everything, 50),
        # It expired in the producer.
        (TimeoutError("Expiring 2 record(s)"), ("orders-0", "orders-2"), 2 * MOST_ATTEMPTS),
    ):
        rig = SpoolRig(tmp_path / error.error.name)
        rig.spool_in(records(3))
        fail_values(rig, failure(error), *refused)
        for _ in range(times):
            rig.deliver_after(1_000)
        assert dead_letters_of(rig) == []
        rig.producer.outcome_of = None
        found = acknowledged(rig)
        rig.spool_in([record("last")])
        rig.deliver_after(1_000)
        assert (found, dead_letters_of(rig)) == ([*refused, "last"], [])


def test_a_record_without_a_fault_of_its_own_waits(tmp_path: Path) -> None:
    for number, error in enumerate(
        (
            timed_out(),
            failure(SaslAuthenticationError()),
            failure(ClusterAuthorizationError()),
            failure(UnknownTopicOrPartitionError()),
            failure(UnknownServerError()),
        )
    ):
        rig = SpoolRig(tmp_path / f"{number}")
        fail_values(rig, error, "orders-0")
        rig.spool_in(records(2))
        rig.deliver()
        assert (dead_letters_of(rig), rig.spool.entries) == ([], 1), error
        rig.producer.outcome_of = None
        rig.deliver_after(1_000)
        assert rig.spool.entries == 0, error


def test_one_stalled_topic_does_not_hold_up_another(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(), *(f"orders-{n}" for n in range(3)))
    rig.spool_in([*records(3), *records(3, "payments")])
    rig.deliver()
    assert [value for value in rig.sent if value.startswith("payments")] == [
        f"payments-{n}" for n in range(3)
    ]
    assert rig.spool.entries == 3


def test_a_stalled_topic_takes_little_memory_and_is_read_again(rig: SpoolRig) -> None:
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
    rig.producer.holds_records = True
    rig.deliver_after(1_000)
    while rig.producer.waiting:
        rig.producer.acknowledge(rig.producer.waiting[0])
        rig.deliver()
        assert rig.spool.entries == 61 - len(found)
    assert found == [*values, "last"]


def test_records_that_come_while_others_of_their_topic_are_only_on_the_disk_follow_them_once(
    rig: SpoolRig,
) -> None:
    values = [f"{n:02d}" + "x" * 100_000 for n in range(15)]
    for value in values[:14]:
        rig.spool_in([record(value)])
    rig.producer.holds_records = True
    rig.deliver()
    (lane,) = rig.spool.delivery.lanes
    assert (len(lane.waiting), lane.skipped) == (10, 3)  # and room for another one
    rig.spool_in([record(values[14])])
    rig.deliver()
    assert (len(lane.waiting), lane.skipped) == (10, 4)
    rig.producer.acknowledge(rig.producer.waiting[0])
    rig.deliver()
    assert (len(lane.waiting), lane.skipped) == (9, 4)  # they are read when half of its room is free
    rig.producer.holds_records = False
    rig.producer.acknowledge(rig.producer.waiting[0])
    rig.deliver()
    assert (rig.sent, rig.spool.entries) == (values, 0)


def test_a_request_has_as_many_bytes_as_it_may() -> None:
    for second_bytes, taken in ((40, 2), (41, 1)):
        lane = Lane("orders")
        for sequence, size in ((1, 60), (2, second_bytes)):
            lane.add(Stored(sequence, VERSION, bytes(size), None))
        assert len(lane.take(100)) == taken, second_bytes


def test_of_many_stalled_topics_no_more_are_in_memory_than_fit(rig: SpoolRig) -> None:
    fit = WINDOW_BYTES // RECORD_BYTES
    topics = {f"topic-{number}": 1 for number in range(fit + fit // 2)}
    rig.producer.set_topics({"orders": 3, **topics})
    # What was tried again has given no more room back than it took.
    rig.producer.outcome_of = lambda *_: timed_out()
    rig.spool_in(records(CHUNK_RECORDS))
    for _ in range(2 * WINDOW_BYTES // (CHUNK_RECORDS * RECORD_BYTES)):
        rig.deliver_after(1_000)
    rig.producer.outcome_of = None
    rig.producer.holds_records = True
    rig.spool_in([record("", topic) for topic in topics])
    rig.deliver()
    # One read may bring some more.
    assert fit // 2 < len(rig.producer.waiting) < len(topics)
    rig.producer.holds_records = False
    for ticket in list(rig.producer.waiting):
        rig.producer.acknowledge(ticket)
    rig.deliver()
    rig.deliver_after(1_000)
    assert (rig.spool.entries, rig.spool.delivery.delivered) == (0, CHUNK_RECORDS + len(topics))


# -- dead letters --------------------------------------------------------------------------------------------


def test_records_that_can_never_be_delivered_are_dead_lettered_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (error, reason) in enumerate(
        (
            (timed_out(UnknownTopicOrPartitionError()), "topic_gone"),
            (failure(TopicAuthorizationError()), "forbidden"),
            (failure(TopicAuthorizationError(), Phase.METADATA), "forbidden"),
            (failure(RecordTooLargeError()), "too_large"),
            (failure(InvalidRecordError()), "invalid"),
            (failure(InvalidTimestampError()), "invalid"),
            (failure(PolicyViolationError()), "invalid"),
        )
    ):
        rig = SpoolRig(tmp_path / f"{number}")
        caplog.clear()
        fail_values(rig, error, "orders-1")
        found = acknowledged(rig)
        rig.spool_in(records(3))
        rig.wait_out()
        assert (found, dead_letters_of(rig)) == (["orders-0", "orders-2"], [("orders-1", reason)]), error
        assert rig.spool.entries == 0, error
        assert f"1 records of topic orders are dead letters ({reason})" in caplog.text
        assert rig.spool.delivery.dead_letter_counts[reason] == 1, error
        assert rig.spool.status(lambda _: True)["last_error"] == error.error.error.name


def test_a_neighbour_of_a_refused_record_is_not_dead_lettered_with_it(rig: SpoolRig) -> None:
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
    assert dead_letters_of(rig) == [("orders-1", "invalid")]


def test_records_that_the_client_refuses_and_a_missing_partition_are_dead_lettered(
    rig: SpoolRig,
) -> None:
    rig.producer.refuses = RecordTooLargeError("The message is 9 bytes when serialized")
    rig.spool_in(records(2))
    rig.deliver()
    refused = [("orders-0", "too_large"), ("orders-1", "too_large")]
    assert dead_letters_of(rig) == refused
    rig.producer.refuses = None
    fail_values(rig, timed_out(), "odd")
    rig.spool_in([record("odd", partition=7), record("even", partition=2)])
    rig.deliver()
    assert dead_letters_of(rig) == [*refused, ("odd", "partition_gone")]


def test_a_partition_that_only_old_metadata_lacks_is_no_dead_letter(rig: SpoolRig) -> None:
    """No broker has answered since the record was sent, so the topic may have grown."""
    fail_values(rig, timed_out(), "odd")
    rig.clock.advance(PAUSE_MS + timed_out().waited_ms + 1)
    rig.spool_in([record("odd", partition=7)])
    rig.wait_out()
    assert (dead_letters_of(rig), rig.spool.entries) == ([], 1)
    rig.producer.set_topics({"orders": 3})
    rig.deliver_after(PAUSE_MS)
    assert dead_letters_of(rig) == [("odd", "partition_gone")]


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
        assert dead_letters_of(rig) == []
        rig.deliver_after(1_000)
    assert dead_letters_of(rig) == [("orders-0", "refused")]


def test_records_whose_topic_goes_while_they_are_on_their_way_are_dead_lettered(rig: SpoolRig) -> None:
    """They expire in the producer, and the next attempt finds no topic."""
    rig.producer.holds_records = True
    rig.spool_in(records(2))
    rig.deliver()
    (ticket,) = rig.producer.waiting
    rig.producer.outcome_of = lambda *_: failure(TimeoutError("Expiring 2 record(s) for orders-0"))
    rig.producer.acknowledge(ticket)
    rig.deliver()
    assert (dead_letters_of(rig), rig.spool.entries) == ([], 2)
    rig.producer.outcome_of = lambda *_: timed_out(UnknownTopicOrPartitionError())
    rig.producer.holds_records = False
    rig.deliver_after(1_000)
    assert dead_letters_of(rig) == [("orders-0", "topic_gone"), ("orders-1", "topic_gone")]


def test_a_record_of_a_later_format_is_dead_lettered_as_it_is(rig: SpoolRig) -> None:
    rig.spool_in(records(1))
    path = rig.segments[0]
    path.write_bytes(path.read_bytes() + frame_of(salt_of(path), 2, b"of the future", version=9))
    rig = rig.again()
    rig.spool_in([record("next")])
    rig.deliver()
    assert rig.sent == ["orders-0", "next"]
    ((found,),) = [file.records for file in dead_letters_in(rig.folder)]
    assert (found.sequence, found.reason) == (2, "unreadable")
    assert (found.version, found.payload) == (9, b"of the future")


def test_where_no_dead_letter_can_be_written_the_record_waits_and_neither_is_lost_nor_stops_others(
    tmp_path: Path,
) -> None:
    for fault in ("write", "full"):
        rig = SpoolRig(tmp_path / fault)
        fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
        rig.spool_in([*records(1), *records(2, "payments")])
        rig.deliver()
        rig.disk.fails["write"] = 1_000 if fault == "write" else 0
        rig.disk.room_bytes = 0 if fault == "full" else None
        rig.wait_out()
        assert (dead_letters_of(rig), rig.spool.entries, rig.spool.delivery.delivered) == ([], 1, 2), fault
        if fault == "full":
            assert list((rig.folder / "aside").iterdir()) == []
        rig.disk.fails["write"], rig.disk.room_bytes = 0, None
        rig.deliver_after(1_000)
        assert (dead_letters_of(rig), rig.spool.entries) == ([("orders-0", "forbidden")], 0), fault


def test_a_record_that_can_not_be_dead_lettered_stays_ahead_of_those_that_are_tried_again(
    rig: SpoolRig,
) -> None:
    def report(_: int, one: ProducerRecord) -> Outcome:
        return timed_out() if one.partition else failure(NotEnoughReplicasError())

    rig.producer.outcome_of = report
    rig.spool_in([record("first", partition=9), record("second")])
    rig.disk.fails["create"] = 1  # that of the file of dead letters
    rig.deliver()
    assert dead_letters_of(rig) == []
    rig.producer.outcome_of = None
    rig.deliver_after(1_000)
    assert rig.sent == 2 * ["first", "second"]


def test_a_record_that_is_dead_lettered_twice_is_there_once(rig: SpoolRig) -> None:
    """Killed after the dead letter and before the mark was written."""
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0", "orders-2")
    rig.spool_in(records(3))
    rig.wait_out()
    rig = rig.again()
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.wait_out()
    assert sorted(dead_letters_of(rig)) == [("orders-0", "forbidden"), ("orders-2", "forbidden")]
    assert rig.spool.dead_letters.records == 2


def test_the_threads_deliver_what_is_spooled_and_end(rig: SpoolRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.producer.holds_records = True
    rig.spool.start(lambda function: function())
    names = {thread.name for thread in threading.enumerate()}
    assert names >= {"pilotfish-spool-writer", "pilotfish-spool-delivery"}
    rig.submit(records(2))
    with caplog.at_level(logging.INFO):
        rig.spool.close(10_000)
    assert "2 records stay in" not in caplog.text or rig.sent == []
    assert json.loads((rig.folder / "mark.json").read_text())["done"] >= 1
    again = SpoolRig(rig.folder)
    again.deliver()
    assert {*rig.sent, *again.sent} == {"orders-0", "orders-1"}


def test_records_that_the_closing_producer_gave_up_are_neither_lost_nor_dead_lettered(rig: SpoolRig) -> None:
    rig.producer.holds_records = True
    rig.spool_in(records(1))
    rig.deliver()
    rig.producer.outcome_of = lambda *_: failure(SerializationError())  # it would be one at once
    rig.spool.close(10)
    again = SpoolRig(rig.folder)
    again.deliver()
    assert (again.sent, dead_letters_of(again)) == (["orders-0"], [])


# -- the producer of the spool -------------------------------------------------------------------------------


def config_of(kafka: dict[str, str]) -> ProducerConfig:
    return spool_config(Settings(kafka={"bootstrap.servers": "localhost:9092", **kafka}))


def test_its_records_are_tried_for_two_minutes_at_a_time_or_as_long_as_an_answer_takes() -> None:
    config = config_of({"acks": "0", "retries": "3", "delivery.timeout.ms": "31000"})
    assert (config.acks, config.enable_idempotence) == ("all", True)
    assert (config.max_in_flight_requests_per_connection, config.retries) == (5, 2**31 - 1)
    assert config.delivery_timeout_ms == 120_000
    longer = {"request.timeout.ms": "300000", "delivery.timeout.ms": "400000", "linger.ms": "7"}
    assert config_of(longer).delivery_timeout_ms == 300_000


def test_without_idempotence_it_sends_one_request_at_a_time_so_that_none_overtakes() -> None:
    config = config_of({"enable.idempotence": "false"})
    assert (config.enable_idempotence, config.max_in_flight_requests_per_connection) == (False, 1)


def test_a_request_is_one_batch_that_nothing_is_waited_for() -> None:
    for given, batch_bytes in (
        ({}, CHUNK_BYTES),
        ({"batch.size": "1"}, CHUNK_BYTES),
        ({"batch.size": "200000"}, 200_000),
        ({"max.request.size": "5000"}, 5_000),
        ({"batch.size": "200000", "max.request.size": "150000"}, 150_000),
    ):
        config = config_of({"linger.ms": "9", **given})
        assert (config.batch_size, config.linger_ms) == (batch_bytes, 0), given
        assert config.buffer_memory == 2**31 - 1


def test_it_goes_by_a_name_of_its_own_and_looks_the_brokers_up_later(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "nowhere.invalid:9092", "client.id": "billing"}
    settings = Settings(kafka=kafka, spool_folder=str(tmp_path / "spool"))
    assert spool_config(settings).client_id == "billing-spool"
    made = make_spool(settings, MockClock())
    made.release()
    # Those of a fleet do not refresh their metadata together.
    assert made.delivery._producer._metadata._schedule._spreads  # type: ignore[attr-defined]


def test_the_next_process_delivers_what_was_not_delivered_and_nothing_that_the_mark_says_was(
    rig: SpoolRig,
) -> None:
    rig.producer.holds_records = True
    rig.spool_in(records(5))
    rig.deliver()
    rig = rig.again()
    assert rig.spool.entries == 5
    rig.settle()
    assert rig.sent == [f"orders-{n}" for n in range(5)]
    assert read_mark(rig.folder, rig.disk) == Mark(6)
    rig = rig.again()
    rig.deliver()
    assert (rig.sent, rig.spool.entries) == ([], 0)


def test_the_mark_is_kept_by_topic(rig: SpoolRig) -> None:
    fail_values(rig, timed_out(), "orders-0")
    rig.spool_in([*records(1), *records(3, "payments")])
    rig.settle()
    assert read_mark(rig.folder, rig.disk) == Mark(5, {"orders": 1}, 1)
    rig = rig.again()
    rig.settle()
    assert rig.sent == ["orders-0"]
    assert read_mark(rig.folder, rig.disk) == Mark(5)


def test_a_mark_that_is_damaged_has_all_delivered_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, said in (
        ("cut", "mark.json is damaged"),
        ("other", "is damaged (its checksum does not match)"),
    ):
        caplog.clear()
        rig = SpoolRig(tmp_path / name)
        rig.spool_in(records(2))
        rig.settle()
        rig.spool_in([record("next")])
        path = rig.folder / "mark.json"
        written = path.read_text()
        path.write_text('{"done":' if name == "cut" else written.replace('"done":3', '"done":4'))
        rig = rig.again()
        rig.deliver()
        assert rig.sent == ["orders-0", "orders-1", "next"]
        assert said in caplog.text
    rig.disk.fails["read_whole"] = 1
    assert read_mark(rig.folder, rig.disk) == Mark()
    assert "is damaged (no read_whole here)" in caplog.text
    for junk in (b"", b"\xff", b'{"done":"\xff"}', b"[]", b'{"done":1e99}', b"{" * 100_000):
        path.write_bytes(junk)
        assert read_mark(rig.folder, rig.disk) == Mark(), junk[:20]


def test_numbers_that_were_delivered_are_never_given_again(rig: SpoolRig) -> None:
    """A crash of the machine took from the end of a file what the mark says is delivered."""
    rig.spool_in(records(2))
    rig.deliver_after(1_000)
    rig.segments[0].write_bytes(b"")
    rig = rig.again()
    rig.spool_in([record("new")])
    rig.deliver()
    assert rig.sent == ["new"]


def test_what_a_crash_took_is_no_damage_where_it_was_delivered_while_another_topic_lags(
    tmp_path: Path,
) -> None:
    for spooled, lost in ((2, 0), (1, 1)):  # a record that waits is behind what was kept, or is not
        rig = SpoolRig(tmp_path / f"{lost}")
        fail_values(rig, timed_out(), "orders-0", "orders-1")
        rig.spool_in(records(2)[:spooled])
        kept = rig.segments[0].stat().st_size
        rig.spool_in([*records(2)[spooled:], *records(3, "payments")])
        rig.settle()
        assert read_mark(rig.folder, rig.disk) == Mark(6, {"orders": 1}, 2)
        with rig.segments[0].open("r+b") as file:
            file.truncate(kept)
        rig = rig.again()
        rig.spool_in([record("new")])
        rig.settle()
        assert rig.sent == ["orders-0", "orders-1", "new"] if not lost else ["orders-0", "new"]
        assert (rig.spool.delivery.lost, rig.spool.dead_letters.damaged_files) == (lost, lost)


def test_files_go_when_all_in_them_is_delivered_and_the_mark_says_so(rig: SpoolRig) -> None:
    rig.spool_in(records(2))
    rig = rig.again()
    rig.spool_in([record("next")])
    rig.deliver()
    assert len(rig.segments) == 2
    rig.deliver_after(1_000)
    assert len(rig.segments) == 1


def three_files(rig: SpoolRig) -> SpoolRig:
    """A record in each."""
    for value in ("a", "b", "c"):
        rig.spool_in([record(value)])
        rig = rig.again()
    return rig


def test_a_full_disk_gets_room_from_what_is_delivered_though_no_mark_can_be_written(rig: SpoolRig) -> None:
    rig = three_files(rig)
    rig.deliver()
    rig.disk.room_bytes = 0
    rig.deliver_after(MARK_EVERY_MS)
    assert read_mark(rig.folder, rig.disk) == Mark()
    assert len(rig.segments) == 1
    rig = rig.again()
    rig.settle()
    assert (rig.sent, rig.spool.delivery.lost) == (["c"], 0)
    assert read_mark(rig.folder, rig.disk) == Mark(4)


def test_a_mark_whose_write_failed_is_logged_and_written_when_the_delivery_wakes_by_itself(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else wakes it: all is delivered, and nobody sends anything."""
    rig.spool_in(records(2))
    rig.deliver()
    rig.disk.fails["create"] = 1
    rig.clock.advance(MARK_EVERY_MS)
    due_ms = rig.spool.delivery.turn(rig.clock.now_ms())
    assert read_mark(rig.folder, rig.disk) == Mark()
    assert "can't write the mark or delete files: no create here; records wait" in caplog.text
    assert due_ms == rig.clock.now_ms() + MARK_EVERY_MS
    rig.clock.advance(due_ms - rig.clock.now_ms())
    assert rig.spool.delivery.turn(due_ms) == FOREVER_MS
    assert read_mark(rig.folder, rig.disk) == Mark(3)
    rig.spool_in([record("next")])
    rig.settle()
    assert read_mark(rig.folder, rig.disk) == Mark(4)
    assert rig.sent == ["orders-0", "orders-1", "next"]


def test_nothing_that_is_to_be_delivered_goes_to_make_room(rig: SpoolRig) -> None:
    rig = three_files(rig)
    fail_values(rig, timed_out(), "b")
    rig.deliver()
    rig.disk.room_bytes = 0
    rig.deliver_after(MARK_EVERY_MS)
    rig = rig.again()
    rig.deliver()
    assert rig.sent == ["b", "c"]
