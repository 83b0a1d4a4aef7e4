"""Accumulator, Sender and TransactionManager as a state machine: their possible events, and invariants.

Callers append and flush. Brokers keep logs with Kafka's own checks (model_brokers.py), refuse, answer late
and lose connections. Time passes. After every step each record is in exactly one place and each byte of
memory has an owner. In the end every outcome was reported once and all memory is released. The logs hold all
acknowledged records, once and in order if the producer is idempotent, and none that was reported as "not
written".

It is used by hypothesis, for many short runs, and by `walk`, for long ones, in test_sender_properties.py.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.errors import ProducerClosedError
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Written
from tests.support.model_brokers import NODES, TOPIC, ModelBrokers
from tests.support.sender_rig import SenderRig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from client_core.producer.accumulator.incomplete_batches import FlushTicket
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.results.batch_outcome import BatchOutcome

PARTITIONS: Final = 2
#: Errors of a broker that has stored nothing; the batch may be tried again.
RETRIABLE: Final = (
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.NOT_ENOUGH_REPLICAS,
    Errors.KAFKA_STORAGE_ERROR,
    Errors.CORRUPT_MESSAGE,
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    Errors.UNKNOWN_TOPIC_ID,
    Errors.FENCED_LEADER_EPOCH,
)
#: Errors of a broker that has stored nothing and never will.
FATAL: Final = (
    Errors.INVALID_RECORD,
    Errors.TOPIC_AUTHORIZATION_FAILED,
    Errors.MESSAGE_TOO_LARGE,
    Errors.INVALID_TIMESTAMP,
    Errors.POLICY_VIOLATION,
)
#: Errors about batches that it has stored all the same.
LATE: Final = (
    Errors.REQUEST_TIMED_OUT,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Errors.UNKNOWN_SERVER_ERROR,
)
#: False errors about stored batches; the promises about the logs don't hold then.
LIES: Final = (
    Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Errors.UNKNOWN_PRODUCER_ID,
    Errors.INVALID_PRODUCER_EPOCH,
    Errors.DUPLICATE_SEQUENCE_NUMBER,
    Errors.INVALID_RECORD,
    Errors.MESSAGE_TOO_LARGE,
)
WAITS_MS: Final = (1, 10, 60, 60, 400, 1_600)


class Owner:
    """The owner of records that were appended together; keeps each reported outcome, by number."""

    was_given_up = False

    def __init__(self, numbers: Sequence[int], heard: Counter[int], machine: SenderMachine) -> None:
        self.numbers = numbers
        self._heard = heard
        self._machine = machine

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        for position, index in enumerate(indices, start=first_in_batch):
            number = self.numbers[index]
            self._heard[number] += 1
            if outcome.error_for(position) is None:
                self._machine.acknowledged(number, outcome.partition, outcome.metadata_for(position).offset)
            elif outcome.written is Written.NO:
                self._machine.not_written.add(number)


class SenderMachine(RuleBasedStateMachine):
    """Sender's rig, brokers, and a list of the records that were put in."""

    idempotent: bool
    restarts = False

    @initialize(
        batch_bytes=st.sampled_from((150, 400)),
        buffer_bytes=st.sampled_from((2_000, 100_000)),
        retries=st.sampled_from((2**31 - 1, 2**31 - 1, 2)),
        linger_ms=st.sampled_from((0, 20)),
        in_order=st.booleans(),
        largest_bytes=st.sampled_from((1_000_000, 260)),
        truthful=st.sampled_from((True, True, True, False)),
        has_producer_id=st.sampled_from((True, True, True, False)),
    )
    def begin(
        self,
        batch_bytes: int,
        buffer_bytes: int,
        retries: int,
        linger_ms: int,
        in_order: bool,
        largest_bytes: int,
        truthful: bool,
        has_producer_id: bool,
    ) -> None:
        self.rig = SenderRig(
            idempotent=self.idempotent,
            restarts=self.restarts,
            has_producer_id=has_producer_id,
            topics={TOPIC: PARTITIONS},
            retries=retries,
            guarantee_message_order=in_order,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
        )
        self.brokers = ModelBrokers(
            self.rig.client, self.rig.clock, partitions=PARTITIONS, max_message_bytes=largest_bytes
        )
        self.rig.client.update_metadata(self.brokers.metadata(), 13)
        self.in_order = in_order
        self.truthful = truthful
        #: Whether a batch may have been acknowledged while one before it was stored and not acknowledged.
        self.has_overtaken = False
        self.next = 0
        self.appended: set[int] = set()
        self.heard: Counter[int] = Counter()
        self.places: dict[int, tuple[int, int | None]] = {}  # acknowledged: partition and offset
        self.reported_order: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.not_written: set[int] = set()
        self.batches: dict[ProducerBatch, None] = {}
        self.flushes: list[FlushTicket] = []

    def acknowledged(self, number: int, partition: int, offset: int | None) -> None:
        self.places[number] = (partition, offset)
        self.reported_order[partition].append(number)

    # -- callers -------------------------------------------------------------------------------------------

    @rule(
        partition=st.sampled_from((None, 0, 0, 1)),
        sizes=st.lists(st.sampled_from((0, 20, 20, 120, 420)), min_size=1, max_size=8),
    )
    def append(self, partition: int | None, sizes: list[int]) -> None:
        numbers = range(self.next, self.next + len(sizes))
        self.next = numbers.stop
        records = [
            ProducerRecord(TOPIC, b"%06d" % number + bytes(size))
            for number, size in zip(numbers, sizes, strict=True)
        ]
        rig = self.rig
        result = rig.accumulator.append_many(
            TOPIC,
            partition,
            records,
            range(len(records)),
            Owner(numbers, self.heard, self),
            rig.metadata.fetch(),
            rig.clock.now_ms(),
            rig.clock.wall_ms(),
        )
        self.appended.update(numbers[: result.appended])

    @rule()
    def flush(self) -> None:
        self.flushes.append(self.rig.accumulator.begin_flush())

    # -- time and the I/O thread ---------------------------------------------------------------------------

    @rule(stale=st.booleans(), applied=st.booleans())
    def turn(self, stale: bool, applied: bool) -> None:
        """A turn. `stale`: a metadata request that is due gets the same answer as before."""
        client = self.rig.client
        if not stale and not client.has_pending_metadata_updates:
            client.prepare_metadata_update(self.brokers.metadata(), 13)
        self.rig.turn()
        self.brokers.look(applied_when_lost=applied)

    @rule(ms=st.sampled_from(WAITS_MS))
    def wait(self, ms: int) -> None:
        self.rig.clock.advance(ms)

    @rule()
    def learn(self) -> None:
        self.rig.client.update_metadata(self.brokers.metadata(), 13)

    # -- brokers and the network ---------------------------------------------------------------------------

    @rule(node=st.sampled_from(NODES))
    def apply(self, node: int) -> None:
        self.brokers.apply(node)

    @rule(node=st.sampled_from(NODES))
    def answer(self, node: int) -> None:
        self.brokers.answer(node)

    @rule(node=st.sampled_from(NODES))
    def apply_and_answer(self, node: int) -> None:
        self.brokers.apply(node)
        self.brokers.answer(node)
        self.turn(stale=True, applied=False)

    @rule(node=st.sampled_from(NODES), error=st.sampled_from((*RETRIABLE, *FATAL)))
    def refuse(self, node: int, error: Errors) -> None:
        self.brokers.refuse(node, error)

    @rule(node=st.sampled_from(NODES), error=st.sampled_from(LATE))
    def say_late(self, node: int, error: Errors) -> None:
        self.has_overtaken |= self.brokers.say_late(node, error)

    @precondition(lambda self: not self.truthful)
    @rule(node=st.sampled_from(NODES), error=st.sampled_from(LIES))
    def lie(self, node: int, error: Errors) -> None:
        self.brokers.lie(node, error)

    @precondition(lambda self: not self.truthful)
    @rule(node=st.sampled_from(NODES))
    def revoke(self, node: int) -> None:
        self.brokers.refuse(node, Errors.CLUSTER_AUTHORIZATION_FAILED)

    @rule(node=st.sampled_from(NODES), applied=st.booleans())
    def disconnect(self, node: int, applied: bool) -> None:
        self.has_overtaken |= applied
        self.brokers.disconnect(node, applied=applied)

    @rule(node=st.sampled_from(NODES), ms=st.sampled_from((5, 100)))
    def throttle(self, node: int, ms: int) -> None:
        known = self.rig.metadata.fetch().node_by_id(node)
        assert known is not None
        self.rig.client.throttle(known, ms)

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def move_leader(self, partition: int) -> None:
        self.has_overtaken = True
        self.brokers.move_leader(partition)

    # -- invariants ----------------------------------------------------------------------------------------

    def queued(self) -> Iterator[ProducerBatch]:
        for partition in range(PARTITIONS):
            yield from self.rig.accumulator.batches_of(TopicPartition(TOPIC, partition))

    def on_their_way(self) -> Iterator[ProducerBatch]:
        for partition in range(PARTITIONS):
            yield from self.rig.sender.in_flight_batches_of(TopicPartition(TOPIC, partition))

    @invariant()
    def every_record_is_in_one_place_and_every_byte_is_somebodys(self) -> None:
        self.every_record_is_in_one_place()
        held = sum(b.allocated_bytes for b in self.batches if not b.is_buffer_deallocated)
        assert self.rig.pool.total_bytes - self.rig.pool.available_bytes == held

    def every_record_is_in_one_place(self) -> None:
        queued, on_their_way = [*self.queued()], [*self.on_their_way()]
        self.batches.update(dict.fromkeys((*queued, *on_their_way)))
        places = Counter(self.heard)
        for batch in (*queued, *on_their_way):
            assert not batch.is_done, f"{batch} is done and still held"
            for owner, indices, _ in batch.spans:
                assert isinstance(owner, Owner)
                places.update(owner.numbers[index] for index in indices)
        assert places == dict.fromkeys(self.appended, 1)
        incomplete = set(self.rig.accumulator._incomplete.snapshot())
        assert incomplete == {*queued, *on_their_way}

    @invariant()
    def no_partition_has_more_in_flight_than_brokers_remember(self) -> None:
        if self.idempotent:
            for partition in range(PARTITIONS):
                assert len(self.rig.sender.in_flight_batches_of(TopicPartition(TOPIC, partition))) <= 5

    @invariant()
    def a_logs_records_are_in_order(self) -> None:
        if not self.brokers.has_lied:
            for partition in range(PARTITIONS):
                numbers = [int(value[:6]) for value in self.brokers.values(partition)]
                if self.idempotent:
                    assert numbers == sorted(set(numbers)), f"partition {partition}: {numbers}"
                elif self.in_order:  # what was stored again, since its answer was lost, comes again
                    first_times = list(dict.fromkeys(numbers))
                    assert first_times == sorted(first_times), f"partition {partition}: {numbers}"

    # -- the end -------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Ends all faults, or closes the producer by force: either way everything is settled."""
        if not hasattr(self, "rig"):
            return
        if self.next % 3:
            self.get_well()
            for node in NODES:  # what is left are answers to batches that were given up
                while self.brokers.apply(node) or self.brokers.answer(node):
                    pass
            self.turn(stale=True, applied=False)
            assert self.rig.pool.available_bytes == self.rig.pool.total_bytes
        else:
            self.close_by_force()
        assert self.heard == dict.fromkeys(self.appended, 1)
        assert not self.rig.accumulator.has_incomplete
        assert all(flush.is_done for flush in self.flushes)
        self.the_logs_hold_what_was_said()

    def get_well(self) -> None:
        """Open records are settled, and later ones are acknowledged: nothing is stuck for ever."""
        self.settle_all()
        if self.rig.manager is not None and self.rig.manager.has_fatal_error:
            return
        first_late = self.next
        for partition in range(PARTITIONS):
            self.append(partition, [0])
        self.settle_all()
        late = range(first_late, self.next)
        assert all(number in self.places for number in late), "the producer does not get well again"

    def settle_all(self) -> None:
        for _ in range(400):
            if not self.rig.accumulator.has_incomplete:
                return
            self.learn()
            self.turn(stale=False, applied=True)
            for node in NODES:
                self.brokers.apply(node)
                self.brokers.answer(node)
            self.rig.clock.advance(20)
            self.every_record_is_in_one_place_and_every_byte_is_somebodys()

    def close_by_force(self) -> None:
        """The last action of the I/O thread: no turn follows it, and no answer is read."""
        self.rig.accumulator.close()
        self.rig.accumulator.abort_incomplete_batches(ProducerClosedError("closed by force"))

    def the_logs_hold_what_was_said(self) -> None:
        if self.brokers.has_lied:
            return
        logs = [[int(value[:6]) for value in self.brokers.values(p)] for p in range(PARTITIONS)]
        for number, (partition, offset) in self.places.items():
            if offset is None:
                assert number in logs[partition]
            else:
                assert logs[partition][offset] == number, f"record {number} is not at {partition}@{offset}"
        stored = {number for log in logs for number in log}
        assert not stored & self.not_written, "what was not written is in a log"
        self.a_logs_records_are_in_order()
        if self.idempotent and not self.has_overtaken:
            for reported in self.reported_order.values():
                assert reported == sorted(reported), f"who wrote first heard later: {reported}"


class IdempotentMachine(SenderMachine):
    idempotent = True


class RestartingMachine(IdempotentMachine):
    """Its brokers return errors that are fatal for an idempotent producer, and it begins anew."""

    restarts = True

    @rule(node=st.sampled_from(NODES))
    def end_it(self, node: int) -> None:
        self.refuse(node, Errors.CLUSTER_AUTHORIZATION_FAILED)


class PlainMachine(SenderMachine):
    idempotent = False


def walk(machine: SenderMachine, random: Random, steps: int) -> SenderMachine:
    """Drives a machine for many steps; frequent rules are drawn most often."""
    machine.begin(
        batch_bytes=random.choice((150, 400)),
        buffer_bytes=random.choice((2_000, 100_000)),
        retries=random.choice((2**31 - 1, 2**31 - 1, 2)),
        linger_ms=random.choice((0, 20)),
        in_order=random.random() < 0.5,
        largest_bytes=random.choice((1_000_000, 260)),
        truthful=random.random() < 0.8,
        has_producer_id=True,
    )

    def node() -> int:
        return random.choice(NODES)

    def yes() -> bool:
        return random.random() < 0.5

    unlikely = random.choice((1, 4))
    rules: dict[Callable[[], object], int] = {
        lambda: machine.append(
            random.choice((None, 0, 1)),
            random.choices((0, 20, 120, 420), (9, 9, 3, 1), k=random.randrange(1, 6)),
        ): 20,
        lambda: machine.turn(stale=yes(), applied=yes()): 40,
        lambda: machine.wait(random.choice(WAITS_MS[:-2])): 10,
        lambda: machine.wait(random.choice(WAITS_MS[-2:])): unlikely // 4,
        machine.learn: 4,
        lambda: machine.apply(node()): 40,
        lambda: machine.answer(node()): 35,
        lambda: machine.refuse(node(), random.choice(RETRIABLE)): 3 * unlikely,
        lambda: machine.refuse(node(), random.choice(FATAL)): unlikely,
        lambda: machine.say_late(node(), random.choice(LATE)): 2 * unlikely,
        lambda: machine.disconnect(node(), applied=yes()): 2 * unlikely,
        lambda: machine.throttle(node(), 5): 1,
        lambda: machine.move_leader(random.randrange(PARTITIONS)): unlikely,
        machine.flush: 1,
    }
    if isinstance(machine, RestartingMachine):
        rules[lambda: machine.end_it(node())] = 2
    if not machine.truthful:
        rules[lambda: machine.lie(node(), random.choice(LIES))] = 3
    for _ in range(steps):
        (chosen,) = random.choices(list(rules), list(rules.values()))
        chosen()
        machine.every_record_is_in_one_place_and_every_byte_is_somebodys()
        machine.no_partition_has_more_in_flight_than_brokers_remember()
    machine.teardown()
    return machine
