"""A request `in_chunks` is appended some records in each turn, in order; this does not count as a wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from client_core.errors import AuthenticationError, RecordTooLargeError
from client_core.producer.requests.appending import CHUNK_KEY_BYTES, CHUNK_RECORDS
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Phase, Written
from tests.support.producer_rig import ProducerRig, Waiting, full_buffer_rig
from tests.support.sender_rig import ORDERS_0, produced
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Sequence


def _submit(rig: ProducerRig, records: Sequence[ProducerRecord], block_ms: int = 60_000) -> Waiting:
    waiting, now_ms = Waiting(), rig.clock.now_ms()
    rig.producer.check("orders", records)
    waiting.ticket = rig.producer.submit(
        "orders",
        records,
        block_deadline_ms=now_ms + block_ms,
        deadline_ms=now_ms + 120_000,
        done=waiting,
        checked=True,
        in_chunks=True,
    )
    return waiting


def _appended(rig: ProducerRig) -> int:
    return sum(batch.record_count for batch in rig.producer._accumulator.incomplete())


def _records(count: int, key: bytes | None = None) -> list[ProducerRecord]:
    return [ProducerRecord("orders", b"%d" % n, key) for n in range(count)]


def _settle(rig: ProducerRig, waiting: Waiting) -> list[int | None]:
    """Answers every request to a broker until the submitted request is reported."""
    offset = 0
    while not waiting.reported:
        rig.turn()
        for request in list(rig.client.requests):
            rig.client.respond_to_request(request, produced(ORDERS_0, offset=offset))
            offset += 1_000_000
    return waiting.offsets


def test_each_turn_appends_a_chunk_and_the_callers_thread_none() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, linger_ms=60_000)
    waiting = _submit(rig, _records(2 * CHUNK_RECORDS + 1))
    steps = [_appended(rig)]
    for _ in range(4):
        rig.turn()
        steps.append(_appended(rig))
    assert steps == [0, CHUNK_RECORDS, 2 * CHUNK_RECORDS, 2 * CHUNK_RECORDS + 1, 2 * CHUNK_RECORDS + 1]
    assert not waiting.reported


def test_a_chunk_ends_with_the_key_that_makes_it_long() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, linger_ms=60_000)
    _submit(rig, _records(5, key=b"k" * (CHUNK_KEY_BYTES // 2)))
    steps = []
    for _ in range(3):
        rig.turn()
        steps.append(_appended(rig))
    assert steps == [2, 4, 5]


def test_a_later_request_is_appended_after_all_chunks() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, linger_ms=60_000)
    _submit(rig, _records(CHUNK_RECORDS + 1))
    rig.turn()
    rig.submit("orders", b"later")
    assert _appended(rig) == CHUNK_RECORDS
    rig.turn()
    assert _appended(rig) == CHUNK_RECORDS + 2
    (batch,) = rig.producer._accumulator.incomplete()
    assert [len(indices) for _, indices, _ in batch.spans] == [CHUNK_RECORDS, 1, 1]


def test_it_completes_once_all_of_it_is_acknowledged_and_reports_no_wait() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = _submit(rig, _records(2 * CHUNK_RECORDS + 1))
    rig.turn()
    rig.clock.advance(10)
    offsets = _settle(rig, waiting)
    assert len(offsets) == 2 * CHUNK_RECORDS + 1
    assert waiting.produced.waits == ()
    assert "WaitFinished" not in {type(event).__name__ for event in rig.events.events}


def test_the_end_of_its_time_to_wait_does_not_end_it_where_it_waits_for_nothing() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, linger_ms=60_000)
    waiting = _submit(rig, _records(3 * CHUNK_RECORDS), block_ms=5)
    rig.turn()
    rig.turn_after(5)
    assert _appended(rig) == 3 * CHUNK_RECORDS
    assert not waiting.reported


def test_without_memory_it_waits_and_fails_in_time() -> None:
    rig = full_buffer_rig()
    waiting = _submit(rig, [ProducerRecord("orders", b"x" * 300)] * (CHUNK_RECORDS + 1), block_ms=300)
    rig.turn()
    rig.turn_after(300, 2)
    assert {type(failure.error).__name__ for failure in waiting.failures} == {"BufferExhaustedError"}


def test_a_close_fails_the_records_that_are_not_appended() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, linger_ms=60_000)
    waiting = _submit(rig, _records(2 * CHUNK_RECORDS))
    rig.turn()
    rig.producer.close(0)
    assert len(waiting.failures) == 2 * CHUNK_RECORDS


def test_records_are_checked_unless_their_sender_has_checked_them() -> None:
    rig = ProducerRig(topics={"orders": 1}, max_request_size=1_000)
    with pytest.raises(RecordTooLargeError) as refused:
        _submit(rig, [*_records(3), ProducerRecord("orders", b"x" * 2_000)])
    assert refused.value.record_index == 3
    assert _appended(rig) == 0


def test_an_expired_request_behind_chunks_does_not_fail_with_a_missing_topic() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, linger_ms=60_000)
    _submit(rig, _records(3 * CHUNK_RECORDS))
    later = rig.submit("orders", b"later", block_ms=5, turns=1)
    rig.turn_after(5)
    (failure,) = later.failures
    assert type(failure.error).__name__ == "BufferExhaustedError"
    assert failure.phase is Phase.BUFFER


def test_an_error_of_metadata_ends_no_chunks_of_a_known_topic() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, linger_ms=60_000)
    _submit(rig, _records(4 * CHUNK_RECORDS))
    rig.turn()
    rig.metadata.fatal_error(AuthenticationError("the password is wrong"))
    rig.turn(4)
    assert _appended(rig) == 4 * CHUNK_RECORDS


def test_chunks_renew_the_time_for_which_their_topic_is_kept() -> None:
    rig = ProducerRig(topics={"orders": 1})
    use = rig.metadata.cache.topics["orders"].use
    use.touched = False
    _submit(rig, _records(1))
    assert use.touched
    use.touched = False
    rig.producer.partitions_for("orders")
    assert use.touched


def test_records_for_a_partition_that_is_missing_keep_their_order_while_memory_is_short() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=40_000, batch_size=20_000)
    records = [
        ProducerRecord("orders", b"%d" % n, None, 1 if n % 2 == 0 and n != CHUNK_RECORDS else 0)
        for n in range(2 * CHUNK_RECORDS)
    ]
    _submit(rig, records)
    for turn in range(20):
        rig.turn()
        for request in list(rig.client.requests):
            rig.client.respond_to_request(request, produced(ORDERS_0, offset=turn * 100_000))
    (parked,) = rig.producer._parked._unblocked["orders"].requests
    assert [(group.partition, group.indices[0]) for group in parked.todo] == [(1, 0), (1, CHUNK_RECORDS + 2)]


def test_of_a_request_whose_deadline_is_over_no_further_chunk_is_appended() -> None:
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, linger_ms=60_000)
    waiting, now_ms = Waiting(), rig.clock.now_ms()
    rig.producer.submit(
        "orders",
        _records(3 * CHUNK_RECORDS),
        block_deadline_ms=now_ms,
        deadline_ms=now_ms,
        done=waiting,
        in_chunks=True,
    )
    rig.turn()
    assert [failure.phase for failure in waiting.failures].count(Phase.BUFFER) == 2 * CHUNK_RECORDS
    assert {failure.written for failure in waiting.failures} == {Written.NO}


def test_each_record_that_is_settled_late_is_reported_though_its_caller_has_let_go_of_them() -> None:
    rig = ProducerRig(topics={"orders": 1})
    settled, now_ms = Waiting(), rig.clock.now_ms()
    records = _records(3)
    rig.producer.submit(
        "orders",
        records,
        block_deadline_ms=now_ms + 500,
        deadline_ms=now_ms + 500,
        done=Waiting(),
        settled=settled,
        in_chunks=True,
    )
    rig.turn(2)
    rig.turn_after(500)
    records.clear()
    _settle(rig, settled)
    assert settled.offsets == [0, 1, 2]


def test_chunks_for_a_missing_partition_fail_once_the_io_thread_is_over() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.io_thread.initiate_close()
    rig.producer.io_thread.join(0)
    reported: list[Waiting] = []
    records = [ProducerRecord("orders", b"x", None, 7)] * (CHUNK_RECORDS + 1)
    thread = threading.Thread(target=lambda: reported.append(_submit(rig, records)), daemon=True)
    thread.start()
    thread.join(patient(30))  # it would take its own lock twice
    assert [len(waiting.failures) for waiting in reported] == [CHUNK_RECORDS + 1]
