"""After any sequence of events each record is in one place, and is reported to its owner once.

A simulation appends, drains, acknowledges, fails, enqueues again, splits, expires, cancels and aborts at
random, from a given seed, with and without idempotence, and counts after every step.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import KafkaError, ProducerClosedError
from client_core.record.record_batch import decode_record_batch
from tests.producer.batches import Bench, CountingSequences, Leaders, Owner, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.results.batch_outcome import RecordOwner

BATCH_BYTES: Final = 300
TOTAL_BYTES: Final = 12 * BATCH_BYTES
DELIVERY_TIMEOUT_MS: Final = 200
PARTITIONS: Final = 2
STEPS: Final = 250


class Simulation:
    """The accumulator, and a list of the records that were put into it."""

    def __init__(self, random: Random, *, is_idempotent: bool) -> None:
        self.random = random
        self.sequences = CountingSequences() if is_idempotent else None
        self.bench = Bench(
            batch_bytes=BATCH_BYTES,
            total_bytes=TOTAL_BYTES,
            linger_ms=5,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            retry_backoff_ms=5,
            retry_backoff_max_ms=20,
            adaptive=random.random() < 0.5,
            leaders=(0, 1),
            sequences=self.sequences,
        )
        self.appended: dict[Owner, int] = {}
        self.cancelled: Counter[tuple[RecordOwner, int]] = Counter()
        self.in_requests: list[ProducerBatch] = []
        self.steps: dict[Callable[[], None], int] = {
            self.append: 30,
            self.drain: 40,
            self.time_passes: 20,
            lambda: self.settle(None): 12,
            lambda: self.settle(KafkaError("refused")): 3,
            self.the_connection_broke: 6,
            self.too_large: 4,
            self.expire: 10,
            self.cancel: 4,
            self.metadata_changes: 4,
            self.abort_undrained: 1,
            self.abort_all: 1,
        }

    def step(self) -> None:
        (chosen,) = self.random.choices(list(self.steps), list(self.steps.values()))
        chosen()

    # -- callers -------------------------------------------------------------------------------------------

    def append(self) -> None:
        owner = Owner(f"owner {len(self.appended)}")
        sizes = self.random.choices([0, 5, 40, 120, 400], k=self.random.randrange(1, 12))
        records = [record(bytes(size)) for size in sizes]
        partition = self.random.choice([None, *range(PARTITIONS)])
        reserve = self.random.random() < 0.2 and self.bench.pool.try_allocate(BATCH_BYTES)
        result = self.bench.append(records, partition, owner, reserved_bytes=BATCH_BYTES if reserve else 0)
        assert (result.needed_bytes is None) == (result.appended == len(records))
        if result.reserved_left:
            self.bench.pool.deallocate(result.reserved_left)
        self.appended[owner] = result.appended

    def cancel(self) -> None:
        leaving = self.random.sample(list(self.appended)[-6:], min(2, len(self.appended)))
        for owner, indices in self.bench.accumulator.cancel(leaving):
            assert owner in leaving
            self.cancelled.update((owner, index) for index in indices)

    def time_passes(self) -> None:
        self.bench.clock.advance(self.random.choice([1, 5, 30]))

    def metadata_changes(self) -> None:
        leaders = self.random.choices([0, 1, None], [5, 5, 1], k=PARTITIONS)
        epochs = {partition: self.random.randrange(5) for partition in range(PARTITIONS)}
        self.bench.leaders = Leaders(leaders, epochs)

    # -- the I/O thread ------------------------------------------------------------------------------------

    def drain(self) -> None:
        ready = self.bench.ready()
        nodes = [node.id for node in ready.ready_nodes]
        if not nodes:
            return
        for batch in self.bench.drain(*nodes, max_bytes=self.random.choice([1, 400, 10**6])):
            batch.is_in_flight = True
            self.in_requests.append(batch)
            decoded = decode_record_batch(batch.records())
            assert decoded.record_count == batch.record_count == sum(len(i) for _, i, _ in batch.spans)
            assert (decoded.base_sequence is None) == (self.sequences is None)
            if self.sequences is not None and batch.in_retry:
                assert batch.base_sequence == self.sequences.first_in_flight(batch.topic_partition)

    def answered(self) -> ProducerBatch | None:
        if not self.in_requests:
            return None
        batch = self.in_requests.pop(self.random.randrange(len(self.in_requests)))
        batch.is_in_flight = False
        return batch

    def ended(self, batch: ProducerBatch) -> None:
        if self.sequences is not None:
            self.sequences.finished(batch)
        self.bench.accumulator.complete_and_deallocate_batch(batch)

    def settle(self, error: KafkaError | None) -> None:
        """An acknowledgement, or a refusal."""
        batch = self.answered()
        if batch is None:
            return
        if error is None:
            batch.complete(100, None)
        else:
            batch.complete_exceptionally(error)
        self.ended(batch)

    def the_connection_broke(self) -> None:
        """All that was on its way is enqueued again, in any order."""
        broken = self.random.sample(self.in_requests, self.random.randrange(len(self.in_requests) + 1))
        for batch in broken:
            self.in_requests.remove(batch)
            batch.is_in_flight = False
            if batch.is_done:
                self.ended(batch)
            else:
                self.bench.accumulator.reenqueue(batch, self.bench.now_ms)

    def too_large(self) -> None:
        batch = self.answered()
        if batch is None:
            return
        if batch.is_done or batch.record_count == 1:
            batch.complete_exceptionally(KafkaError("too large"))
        else:
            if self.sequences is not None:
                self.sequences.finished(batch)
            assert self.bench.accumulator.split_and_reenqueue(batch) > 1
        self.ended(batch)

    def expire(self) -> None:
        for batch in self.bench.accumulator.expired_batches(self.bench.now_ms):
            batch.complete_exceptionally(KafkaError("expired"))
            self.ended(batch)
        for batch in self.in_requests:
            is_due = batch.has_reached_delivery_timeout(DELIVERY_TIMEOUT_MS, self.bench.now_ms)
            if is_due and not batch.is_done:
                batch.complete_exceptionally(KafkaError("expired in flight"))
                self.bench.accumulator.complete_batch(batch)

    def abort_undrained(self) -> None:
        self.bench.accumulator.abort_undrained_batches(KafkaError("aborted"))

    def abort_all(self) -> None:
        self.bench.accumulator.abort_incomplete_batches(ProducerClosedError("aborted"))
        if self.sequences is not None:
            self.sequences.in_flight.clear()

    def close(self) -> None:
        """The end: a forced close, then the answers that were still on their way."""
        self.bench.accumulator.close()
        self.abort_all()
        while (batch := self.answered()) is not None:
            self.ended(batch)

    # -- invariants ----------------------------------------------------------------------------------------

    def check(self) -> None:
        queues = list(self.bench.accumulator._queues.waiting.values())
        queued = [batch for queue in queues for batch in queue.batches]
        somewhere = {*queued, *self.in_requests}
        assert len(somewhere) == len(queued) + len(self.in_requests)

        places = Counter(self.cancelled)
        for batch in somewhere:
            for owner, indices, _ in batch.spans:
                places.update((owner, index) for index in indices)
        for owner in self.appended:
            places.update({(owner, index): times for index, times in owner.times_reported.items()})
        assert places == {
            (owner, index): 1 for owner, count in self.appended.items() for index in range(count)
        }

        held = sum(batch.allocated_bytes for batch in somewhere)
        assert self.bench.pool.available_bytes == TOTAL_BYTES - held
        incomplete = {*self.bench.accumulator._incomplete.snapshot()}
        assert incomplete == {batch for batch in somewhere if not batch.is_done}

        assert all(queue.batches for queue in queues)
        for queue in queues:
            sequences = [batch.base_sequence for batch in queue.batches]
            known = [sequence for sequence in sequences if sequence is not None]
            assert sequences[: len(known)] == sorted(known)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_every_record_stays_in_one_place_until_its_owner_has_heard(is_idempotent: bool) -> None:
    for seed in range(15):
        simulation = Simulation(Random(seed), is_idempotent=is_idempotent)
        for _ in range(STEPS):
            simulation.step()
            simulation.check()
        simulation.close()
        simulation.check()
        assert simulation.bench.pool.available_bytes == TOTAL_BYTES, seed
        assert not simulation.bench.accumulator.has_incomplete, seed
        assert not simulation.bench.accumulator.has_undrained, seed
