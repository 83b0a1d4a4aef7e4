"""Whatever happens in whatever order: each record is in one place, and each owner hears of it once.

A machine appends, drains, acknowledges, fails, enqueues again, splits, expires, cancels and aborts at random,
with and without idempotence, and counts after every step.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client_core.errors import KafkaError, ProducerClosedError
from client_core.record.record_batch import decode_record_batch
from tests.producer.batches import Bench, CountingSequences, Leaders, Owner, record

if TYPE_CHECKING:
    from client_core.producer.producer_batch import ProducerBatch

BATCH_BYTES: Final = 300
TOTAL_BYTES: Final = 6 * BATCH_BYTES
DELIVERY_TIMEOUT_MS: Final = 100
PARTITIONS: Final = 2


class AccumulatorMachine(RuleBasedStateMachine):
    """The accumulator, and a book of what was put into it."""

    @initialize(is_idempotent=st.booleans(), adaptive=st.booleans())
    def begin(self, is_idempotent: bool, adaptive: bool) -> None:
        self.sequences = CountingSequences() if is_idempotent else None
        self.bench = Bench(
            batch_bytes=BATCH_BYTES,
            total_bytes=TOTAL_BYTES,
            linger_ms=1,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            retry_backoff_ms=5,
            retry_backoff_max_ms=20,
            adaptive=adaptive,
            leaders=(0, 1),
            sequences=self.sequences,
        )
        self.owners: list[Owner] = []
        self.appended: dict[Owner, int] = {}
        self.cancelled: Counter[tuple[Owner, int]] = Counter()
        self.in_requests: list[ProducerBatch] = []
        self.granted: list[int] = []
        self.is_closed = False

    # -- what callers do -----------------------------------------------------------------------------------

    @precondition(lambda self: not self.is_closed)
    @rule(
        partition=st.none() | st.integers(0, PARTITIONS - 1),
        sizes=st.lists(st.sampled_from([0, 5, 40, 120, 400]), min_size=1, max_size=12),
        reserve=st.booleans(),
    )
    def append(self, partition: int | None, sizes: list[int], reserve: bool) -> None:
        owner = Owner(f"owner {len(self.owners)}")
        records = [record(bytes(size)) for size in sizes]
        reserved = BATCH_BYTES if reserve and self.bench.pool.try_allocate(BATCH_BYTES) else 0
        result = self.bench.append(records, partition, owner, reserved_bytes=reserved)
        assert (result.needed_bytes is None) == (result.appended == len(records))
        if result.reserved_left:
            self.bench.pool.deallocate(result.reserved_left)
        self.owners.append(owner)
        self.appended[owner] = result.appended

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.owners:
            return
        leaving = data.draw(st.lists(st.sampled_from(self.owners), unique=True, max_size=3))
        for owner, indices in self.bench.accumulator.cancel(leaving):
            assert owner in leaving
            self.cancelled.update((owner, index) for index in indices)

    @rule(ms=st.sampled_from([1, 10, 60]))
    def time_passes(self, ms: int) -> None:
        self.bench.clock.advance(ms)

    @rule(leaders=st.tuples(*[st.sampled_from([0, 1, None])] * PARTITIONS), epoch=st.integers(0, 5))
    def metadata_changes(self, leaders: tuple[int | None, ...], epoch: int) -> None:
        self.bench.leaders = Leaders(leaders, dict.fromkeys(range(PARTITIONS), epoch))

    # -- what the I/O thread does --------------------------------------------------------------------------

    @rule(max_bytes=st.sampled_from([1, 400, 10**6]))
    def drain(self, max_bytes: int) -> None:
        ready = self.bench.ready()
        for batch in self.bench.drain(*(node.id for node in ready.ready_nodes), max_bytes=max_bytes):
            batch.is_in_flight = True
            self.in_requests.append(batch)
            decoded = decode_record_batch(batch.records())
            assert decoded.record_count == batch.record_count == sum(len(i) for _, i, _ in batch.spans)
            assert (decoded.base_sequence is None) == (self.sequences is None)
            if self.sequences is not None and batch.in_retry:
                assert batch.base_sequence == self.sequences.first_in_flight_sequence(batch.topic_partition)

    def answer(self, data: st.DataObject) -> ProducerBatch | None:
        """A batch whose answer is here."""
        if not self.in_requests:
            return None
        batch = data.draw(st.sampled_from(self.in_requests))
        self.in_requests.remove(batch)
        batch.is_in_flight = False
        return batch

    def ended(self, batch: ProducerBatch) -> None:
        if self.sequences is not None:
            self.sequences.finished(batch)
        self.bench.accumulator.complete_and_deallocate_batch(batch)

    @rule(data=st.data())
    def acknowledged(self, data: st.DataObject) -> None:
        batch = self.answer(data)
        if batch is not None:
            batch.complete(100, None)
            self.ended(batch)

    @rule(data=st.data())
    def refused(self, data: st.DataObject) -> None:
        batch = self.answer(data)
        if batch is not None:
            batch.complete_exceptionally(KafkaError("refused"))
            self.ended(batch)

    @rule(data=st.data())
    def retried(self, data: st.DataObject) -> None:
        batch = self.answer(data)
        if batch is None:
            return
        if batch.is_done:
            self.ended(batch)
        else:
            self.bench.accumulator.reenqueue(batch, self.bench.now_ms)

    @rule(data=st.data())
    def the_connection_broke(self, data: st.DataObject) -> None:
        """All that was on its way is enqueued again, in any order."""
        for batch in data.draw(st.permutations(self.in_requests)):
            self.in_requests.remove(batch)
            batch.is_in_flight = False
            if batch.is_done:
                self.ended(batch)
            else:
                self.bench.accumulator.reenqueue(batch, self.bench.now_ms)

    @rule(data=st.data())
    def too_large(self, data: st.DataObject) -> None:
        batch = self.answer(data)
        if batch is None:
            return
        if batch.is_done or batch.record_count == 1:
            batch.complete_exceptionally(KafkaError("too large"))
        else:
            if self.sequences is not None:
                self.sequences.finished(batch)
            assert self.bench.accumulator.split_and_reenqueue(batch) > 1
        self.ended(batch)

    @rule()
    def expire(self) -> None:
        for batch in self.bench.accumulator.expired_batches(self.bench.now_ms):
            batch.complete_exceptionally(KafkaError("expired"))
            self.ended(batch)
        for batch in self.in_requests:
            if (
                batch.has_reached_delivery_timeout(DELIVERY_TIMEOUT_MS, self.bench.now_ms)
                and not batch.is_done
            ):
                batch.complete_exceptionally(KafkaError("expired in flight"))
                self.bench.accumulator.complete_batch(batch)

    @rule()
    def abort_undrained(self) -> None:
        self.bench.accumulator.abort_undrained_batches(KafkaError("aborted"))

    @rule(close=st.sampled_from([False, False, False, True]))
    def abort_all(self, close: bool) -> None:
        if close:
            self.bench.accumulator.close()
            self.is_closed = True
        self.bench.accumulator.abort_incomplete_batches(ProducerClosedError("aborted"))
        if self.sequences is not None:
            self.sequences.in_flight.clear()

    # -- what must hold ------------------------------------------------------------------------------------

    @invariant()
    def only_queues_that_hold_batches_are_walked(self) -> None:
        if hasattr(self, "bench"):
            assert all(queue.batches for queue in self.bench.accumulator._queues.waiting.values())

    def queued_batches(self) -> list[ProducerBatch]:
        queues = self.bench.accumulator._queues.waiting.values()
        return [batch for queue in queues for batch in queue.batches]

    @invariant()
    def each_record_is_in_one_place(self) -> None:
        if not hasattr(self, "bench"):
            return
        places: Counter[tuple[Owner, int]] = Counter(self.cancelled)
        for batch in {*self.queued_batches(), *self.in_requests}:
            for owner, indices, _ in batch.spans:
                assert isinstance(owner, Owner)
                places.update((owner, index) for index in indices)
        for owner in self.owners:
            places.update({(owner, index): times for index, times in owner.times_told.items()})
        expected = {(owner, index): 1 for owner, count in self.appended.items() for index in range(count)}
        assert places == expected

    @invariant()
    def all_memory_is_accounted_for(self) -> None:
        if not hasattr(self, "bench"):
            return
        held = sum(b.allocated_bytes for b in {*self.queued_batches(), *self.in_requests})
        assert self.bench.pool.available_bytes == TOTAL_BYTES - held

    @invariant()
    def what_is_incomplete_is_queued_or_in_a_request(self) -> None:
        if not hasattr(self, "bench"):
            return
        open_batches = [b for b in {*self.queued_batches(), *self.in_requests} if not b.is_done]
        assert {*self.bench.accumulator._incomplete.snapshot()} == {*open_batches}

    @invariant()
    def sequences_stand_in_order(self) -> None:
        if not hasattr(self, "bench") or self.sequences is None:
            return
        for queue in self.bench.accumulator._queues.waiting.values():
            known = [b.base_sequence for b in queue.batches if b.base_sequence is not None]
            assert known == sorted(known)
            assert all(b.base_sequence is not None for b in tuple(queue.batches)[: len(known)])

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.abort_all(close=True)
        for batch in tuple(self.in_requests):
            self.in_requests.remove(batch)
            batch.is_in_flight = False
            self.ended(batch)
        self.each_record_is_in_one_place()
        assert self.bench.pool.available_bytes == TOTAL_BYTES
        assert not self.bench.accumulator.has_incomplete
        assert not self.bench.accumulator.has_undrained


AccumulatorMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAccumulatorInvariants = AccumulatorMachine.TestCase
