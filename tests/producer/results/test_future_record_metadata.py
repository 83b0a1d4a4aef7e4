"""The future of a sent record. Twins of RecordSendTest and FutureRecordMetadataTest."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress

import pytest

from client_core.errors import CorruptRecordError, KafkaError, TimeoutError
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.results.future_record_metadata import FutureRecordMetadata
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.sender_rig import ORDERS_0


def batch_of(*futures: FutureRecordMetadata) -> ProducerBatch:
    """A batch with one record for each."""
    batch = ProducerBatch(ORDERS_0, MemoryRecordsBuilder(10_000), 0)
    for future in futures:
        batch.append_many([ProducerRecord("orders", b"v")], (0,), 0, future, wall_ms=50)
    return batch


@pytest.mark.java("RecordSendTest.Timeout")
def test_it_times_out_until_it_is_done_and_then_has_its_offset() -> None:
    futures = [FutureRecordMetadata() for _ in range(3)]
    batch = batch_of(*futures)
    assert not futures[2].done()
    with pytest.raises(TimeoutError, match="Timeout after waiting for 0 s"):
        futures[2].result(0)
    batch.complete(45, None)
    assert futures[2].done()
    assert futures[2].result(0) == RecordMetadata("orders", 0, 47, 50)
    assert futures[2].exception(0) is None


@pytest.mark.java("RecordSendTest.Error")
def test_it_raises_what_the_batch_failed_with() -> None:
    future = FutureRecordMetadata()
    batch_of(future).complete_exceptionally(CorruptRecordError("broken"))
    with pytest.raises(CorruptRecordError, match="broken"):
        future.result()
    assert isinstance(future.exception(), CorruptRecordError)


def test_an_error_that_is_raised_often_keeps_a_traceback_of_one_raise() -> None:
    futures = [FutureRecordMetadata() for _ in range(5)]
    batch_of(*futures).complete_exceptionally(CorruptRecordError("broken"))
    depths = []
    for future in futures:
        with pytest.raises(CorruptRecordError) as raised:
            future.result()
        depths.append(len(raised.traceback))
    assert depths == [depths[0]] * 5


def test_a_raised_error_goes_with_its_future_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        future, batch_error = FutureRecordMetadata(), CorruptRecordError("broken")
        batch_of(future).complete_exceptionally(batch_error)
        seen = weakref.ref(batch_error)
        del batch_error
        with suppress(CorruptRecordError):  # pytest.raises would keep it
            future.result()
        assert seen() is not None
        del future
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.java("RecordSendTest.Blocking")
def test_it_blocks_until_another_thread_completes_it() -> None:
    future = FutureRecordMetadata()
    batch = batch_of(future)
    done = threading.Event()
    results: list[RecordMetadata] = []

    def wait() -> None:
        results.append(future.result(30))
        done.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    batch.complete(7, 99)
    assert done.wait(30)
    waiter.join()
    assert results == [RecordMetadata("orders", 0, 7, 99)]


@pytest.mark.java("FutureRecordMetadataTest.FutureGetWithSeconds")
def test_a_wait_in_seconds_is_for_the_batch_and_for_the_parts_that_it_was_split_into() -> None:
    futures = [FutureRecordMetadata() for _ in range(2)]
    parts = batch_of(*futures).split(1)
    assert not futures[0].done()
    with pytest.raises(TimeoutError, match=r"Timeout after waiting for 0\.001 s\."):
        futures[0].result(0.001)
    for offset, part in enumerate(parts):
        part.complete(offset, None)
    assert [future.result(1).offset for future in futures] == [0, 1]


@pytest.mark.java("FutureRecordMetadataTest.FutureGetWithMilliSeconds")
def test_a_wait_may_be_for_a_part_of_a_second() -> None:
    future = FutureRecordMetadata()
    (part,) = batch_of(future).split(1)
    with pytest.raises(TimeoutError, match=r"Timeout after waiting for 0\.005 s\."):
        future.result(0.005)
    part.complete(45, None)
    assert future.result(1.0).offset == 45


def test_callbacks_run_in_order_and_one_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called: list[str] = []
    futures = [FutureRecordMetadata() for _ in range(2)]
    batch = batch_of(*futures)
    futures[0].add_done_callback(lambda _: called.append("first"))
    futures[0].add_done_callback(lambda _: [][1])
    futures[0].add_done_callback(lambda _: called.append("second"))
    futures[1].add_done_callback(lambda future: called.append(repr(future.exception(0))))
    batch.complete(0, None)
    assert called == ["first", "second", "None"]
    assert "A callback failed" in caplog.text


def test_a_callback_comes_at_once_when_it_is_done() -> None:
    called: list[FutureRecordMetadata] = []
    future = FutureRecordMetadata.failed(KafkaError("no"))
    future.add_done_callback(called.append)
    assert called == [future]


def test_the_first_outcome_stays() -> None:
    future = FutureRecordMetadata.failed(KafkaError("first"))
    future.fail(KafkaError("second"))
    with pytest.raises(KafkaError, match="first"):
        future.result(0)


def test_each_record_of_a_batch_has_its_own_error() -> None:
    futures = [FutureRecordMetadata() for _ in range(2)]
    errors = {0: KafkaError("zero"), 1: KafkaError("one")}
    batch_of(*futures).complete_exceptionally(KafkaError("all"), errors.__getitem__)
    assert [str(future.exception(0)) for future in futures] == ["zero", "one"]


def test_the_repr_tells_its_state() -> None:
    future = FutureRecordMetadata()
    assert repr(future) == "<FutureRecordMetadata pending>"
    future.fail(KafkaError("no"))
    assert repr(future) == "<FutureRecordMetadata KafkaError('no')>"
