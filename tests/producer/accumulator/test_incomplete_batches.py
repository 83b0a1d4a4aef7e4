from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from client_core.producer.accumulator.incomplete_batches import FlushTicket, IncompleteBatches
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.producer.batches import tp
from tests.support.mock_clock import MockClock
from tests.support.waiting import wait_until


def new_batch() -> ProducerBatch:
    return ProducerBatch(tp(0), MemoryRecordsBuilder(100), 0)


def is_done(flush: FlushTicket) -> bool:
    return flush.is_done


def in_progress(incomplete: IncompleteBatches) -> bool:
    return incomplete.flush_in_progress


def filled(count: int) -> tuple[IncompleteBatches, list[ProducerBatch]]:
    incomplete, batches = IncompleteBatches(), [new_batch() for _ in range(count)]
    for batch in batches:
        incomplete.add(batch)
    return incomplete, batches


def test_batches_are_kept_in_their_order_until_they_are_removed() -> None:
    incomplete, batches = filled(3)
    assert list(incomplete.snapshot()) == batches
    incomplete.remove(batches[1])
    incomplete.remove(batches[1])
    assert list(incomplete.snapshot()) == [batches[0], batches[2]]
    assert (len(incomplete), batches[0] in incomplete, batches[1] in incomplete) == (2, True, False)


@pytest.mark.behaviour("ACC-12")
def test_a_flush_waits_for_what_was_incomplete_when_it_began() -> None:
    incomplete, batches = filled(2)
    done: list[bool] = []
    flush = incomplete.begin_flush(lambda: done.append(True))
    late = new_batch()
    incomplete.add(late)
    assert in_progress(incomplete)
    incomplete.remove(batches[0])
    assert not is_done(flush)
    incomplete.remove(batches[1])
    assert is_done(flush)
    assert done == [True]
    assert not in_progress(incomplete)
    incomplete.remove(late)
    assert done == [True]


def test_a_flush_of_nothing_is_done_at_once() -> None:
    done: list[bool] = []
    incomplete = IncompleteBatches()
    assert incomplete.begin_flush(lambda: done.append(True)).is_done
    assert done == [True]
    assert not in_progress(incomplete)


@pytest.mark.behaviour("ACC-12")
def test_a_flush_waits_for_the_parts_of_a_split_batch() -> None:
    incomplete, (batch,) = filled(1)
    flush = incomplete.begin_flush(None)
    parts = [new_batch(), new_batch()]
    incomplete.split(batch, parts)
    incomplete.remove(batch)
    incomplete.remove(parts[0])
    assert not is_done(flush)
    deeper = [new_batch()]
    incomplete.split(parts[1], deeper)
    incomplete.remove(parts[1])
    assert not is_done(flush)
    incomplete.remove(deeper[0])
    assert is_done(flush)


@pytest.mark.behaviour("ACC-12")
@pytest.mark.java("RecordAccumulatorTest.ProduceRequestResultAwaitAllDependents")
def test_a_thread_that_waits_for_a_batch_waits_for_all_its_parts() -> None:
    clock = MockClock()
    incomplete, (batch,) = filled(1)
    flush = incomplete.begin_flush(None)
    parts = [new_batch(), new_batch()]
    incomplete.split(batch, parts)
    incomplete.remove(batch)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(flush.wait, clock, 10**9)
        wait_until(lambda: clock.waiters == 1, what="a thread to wait", every_s=0.001)
        incomplete.remove(parts[0])
        assert not waiting.done()
        incomplete.remove(parts[1])
        assert waiting.result(10)


def test_a_flush_does_not_wait_for_the_parts_of_a_later_batch() -> None:
    incomplete, (batch,) = filled(1)
    flush = incomplete.begin_flush(None)
    late = new_batch()
    incomplete.add(late)
    incomplete.split(late, [new_batch()])
    incomplete.remove(batch)
    assert is_done(flush)


def test_flushes_do_not_wait_for_each_other() -> None:
    incomplete, (first,) = filled(1)
    early = incomplete.begin_flush(None)
    second = new_batch()
    incomplete.add(second)
    both = incomplete.begin_flush(None)
    incomplete.remove(first)
    assert (early.is_done, both.is_done) == (True, False)
    assert in_progress(incomplete)
    incomplete.remove(second)
    assert both.is_done


def test_a_blocked_flush_goes_on_when_it_is_done_and_gives_up_at_its_deadline() -> None:
    clock = MockClock()
    incomplete, batches = filled(2)
    flush = incomplete.begin_flush(None)
    with ThreadPoolExecutor() as threads:
        impatient = threads.submit(flush.wait, clock, 100)
        patient = threads.submit(flush.wait, clock, 10**9)
        wait_until(lambda: clock.waiters == 2, what="two threads to wait", every_s=0.001)
        clock.advance(100)
        assert not impatient.result(10)
        incomplete.remove(batches[0])
        assert not patient.done()
        incomplete.remove(batches[1])
        assert patient.result(10)
    assert flush.wait(clock, 0)
