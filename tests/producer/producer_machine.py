"""A whole producer as a state machine: actions of callers, brokers and time, and rules that must hold.

It is used through its public API. Callers submit, cancel, look up and close. Requests wait for metadata, for
memory and for brokers. Brokers keep logs with Kafka's own checks (model_brokers.py). Internal state is
checked in sender_machine.py; here the caller's view is checked. Each ticket has one result, by its deadline;
a cancelled one has none; `settled` is called once for each. Outcomes agree with the logs, in the order of the
calls. All memory is released. The report of the close counts the failures. Used by
test_producer_properties.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client_core.cluster import TopicPartition
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.results.results import ProduceResult
from client_core.producer.results.ticket import RecordFailure, Written
from tests.producer.sender_machine import FATAL, LATE, RETRIABLE
from tests.support.model_brokers import NODES, TOPIC, ModelBrokers
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from client_core.error_codes import Errors
    from client_core.producer.results.future_record_metadata import FutureRecordMetadata
    from client_core.producer.results.status import CloseReport
    from client_core.producer.results.ticket import Result, Ticket

PARTITIONS: Final = 2
DELIVERY_MS: Final = 1_000
WAITS_MS: Final = (1, 10, 60, 110, 400, 1_100)
UNKNOWN_TOPIC: Final = "unknown"


@dataclass(eq=False)
class Submitted:
    """A request of a caller, and its results."""

    numbers: Sequence[int]
    topic: str
    deadline_ms: int
    ticket: Ticket | None = None
    results: list[Result] = field(default_factory=list)
    settled: list[Result] = field(default_factory=list)
    is_cancelled: bool = False

    @property
    def outcomes(self) -> Sequence[RecordMetadata | RecordFailure]:
        """The last known outcomes: those of a settled request are newer than those at its deadline."""
        (result,) = self.settled
        assert isinstance(result, ProduceResult)
        return result.outcomes


@dataclass(eq=False)
class LookedUp:
    """A look-up of a caller, and its results."""

    deadline_ms: int
    ticket: Ticket
    results: list[Result]
    is_cancelled: bool = False


class ProducerMachine(RuleBasedStateMachine):
    """A producer that is turned by hand, brokers, and a list of all calls."""

    idempotent: bool

    @initialize(
        batch_bytes=st.sampled_from((1, 150, 400)),
        buffer_bytes=st.sampled_from((900, 3_000, 100_000)),
        linger_ms=st.sampled_from((0, 20)),
        in_flight=st.sampled_from((1, 5)),
    )
    def begin(self, batch_bytes: int, buffer_bytes: int, linger_ms: int, in_flight: int) -> None:
        self.rig = ProducerRig(
            topics={TOPIC: PARTITIONS},
            enable_idempotence=self.idempotent,
            batch_size=batch_bytes,
            buffer_memory=buffer_bytes,
            linger_ms=linger_ms,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=500,
            max_in_flight_requests_per_connection=in_flight,
            max_block_ms=0,  # nothing may block the one thread
        )
        self.brokers = ModelBrokers(self.rig.client, self.rig.clock, partitions=PARTITIONS)
        self.rig.client.update_metadata(self.brokers.metadata(), 13)
        self.next = 0
        self.requests: list[Submitted] = []
        self.look_ups: list[LookedUp] = []
        self.sent: dict[int, FutureRecordMetadata] = {}
        self.is_closed = False

    # -- callers -------------------------------------------------------------------------------------------

    @rule(
        topic=st.sampled_from((TOPIC, TOPIC, TOPIC, UNKNOWN_TOPIC)),
        key=st.sampled_from((None, b"a", b"b")),
        partition=st.sampled_from((None, None, 0, 1, 7)),
        sizes=st.lists(st.sampled_from((0, 20, 120, 420)), min_size=1, max_size=8),
        block_ms=st.sampled_from((0, 30, 300)),
        timeout_ms=st.sampled_from((10, 200, 2_000)),
    )
    def submit(
        self,
        topic: str,
        key: bytes | None,
        partition: int | None,
        sizes: list[int],
        block_ms: int,
        timeout_ms: int,
    ) -> None:
        if self.is_closed:
            return
        numbers = range(self.next, self.next + len(sizes))
        self.next = numbers.stop
        records = [
            ProducerRecord(topic, b"%06d" % number + bytes(size), key=key, partition=partition)
            for number, size in zip(numbers, sizes, strict=True)
        ]
        now_ms = self.rig.clock.now_ms()
        submitted = Submitted(numbers, topic, now_ms + timeout_ms)
        self.requests.append(submitted)
        submitted.ticket = self.rig.producer.submit(
            topic,
            records,
            block_deadline_ms=now_ms + block_ms,
            deadline_ms=now_ms + timeout_ms,
            done=submitted.results.append,
            settled=submitted.settled.append,
        )

    @rule(
        key=st.sampled_from((None, b"a")),
        partition=st.sampled_from((None, 0, 1, 7)),
        size=st.sampled_from((0, 20, 120)),
    )
    def send(self, key: bytes | None, partition: int | None, size: int) -> None:
        if self.is_closed:
            return
        value = b"%06d" % self.next + bytes(size)
        record = ProducerRecord(TOPIC, value, key=key, partition=partition)
        self.sent[self.next] = self.rig.producer.send(record)
        self.next += 1

    @precondition(lambda self: self.requests)
    @rule(back=st.integers(1, 6))
    def cancel(self, back: int) -> None:
        request = self.requests[-min(back, len(self.requests))]
        assert request.ticket is not None
        request.ticket.cancel()
        request.is_cancelled |= not request.results

    @rule(topic=st.sampled_from((TOPIC, UNKNOWN_TOPIC)), wait_ms=st.sampled_from((0, 100, 1_000)))
    def look_up(self, topic: str, wait_ms: int) -> None:
        if self.is_closed:
            return
        results: list[Result] = []
        deadline_ms = self.rig.clock.now_ms() + wait_ms
        ticket = self.rig.producer.request_topics((topic,), deadline_ms=deadline_ms, done=results.append)
        self.look_ups.append(LookedUp(deadline_ms, ticket, results))

    @precondition(lambda self: self.look_ups)
    @rule()
    def give_up_looking(self) -> None:
        look_up = self.look_ups[-1]
        look_up.ticket.cancel()
        look_up.is_cancelled |= not look_up.results

    # -- time and the I/O thread ---------------------------------------------------------------------------

    @rule(stale=st.booleans(), applied=st.booleans())
    def turn(self, stale: bool, applied: bool) -> None:
        client = self.rig.client
        if not stale and not client.has_pending_metadata_updates:
            client.prepare_metadata_update(self.brokers.metadata(), 13)
        now_ms = self.rig.clock.now_ms()
        self.rig.turn()
        self.brokers.look(applied_when_lost=applied)
        waited: list[Submitted | LookedUp] = [*self.requests, *self.look_ups]
        for one in waited:
            if not one.is_cancelled and one.deadline_ms <= now_ms:
                assert one.results, f"{one} is late at {now_ms}"

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
    def apply_and_answer(self, node: int) -> None:
        self.brokers.apply(node)
        self.brokers.answer(node)

    @rule(node=st.sampled_from(NODES), error=st.sampled_from((*RETRIABLE, *FATAL)))
    def refuse(self, node: int, error: Errors) -> None:
        self.brokers.refuse(node, error)

    @rule(node=st.sampled_from(NODES), error=st.sampled_from(LATE))
    def say_late(self, node: int, error: Errors) -> None:
        self.brokers.say_late(node, error)

    @rule(node=st.sampled_from(NODES), applied=st.booleans())
    def disconnect(self, node: int, applied: bool) -> None:
        self.brokers.disconnect(node, applied=applied)

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def move_leader(self, partition: int) -> None:
        self.brokers.move_leader(partition)

    # -- invariants ----------------------------------------------------------------------------------------

    @invariant()
    def each_ticket_ends_once(self) -> None:
        for request in self.requests:
            assert len(request.settled) <= 1
            assert len(request.results) <= (not request.is_cancelled)
            if request.results:
                assert len(request.results[0].outcomes) == len(request.numbers)
        for look_up in self.look_ups:
            assert len(look_up.results) <= (not look_up.is_cancelled)

    @invariant()
    def memory_is_what_batches_and_waiting_requests_hold(self) -> None:
        pool = self.rig.producer._pool
        assert 0 <= pool.available_bytes <= pool.total_bytes
        held = sum(
            batch.allocated_bytes
            for number in range(PARTITIONS)
            for batch in self.rig.producer._accumulator.batches_of(TopicPartition(TOPIC, number))
        )
        assert pool.total_bytes - pool.available_bytes >= held

    @invariant()
    def logs_are_in_order(self) -> None:
        """All records come from one caller: whichever method it used, they are in the order of its calls."""
        for partition in range(PARTITIONS):
            values = [int(value[:6]) for value in self.brokers.values(partition)]
            if self.idempotent:
                assert len(values) == len(set(values)), f"partition {partition} has duplicates: {values}"
                assert values == sorted(values)

    # -- the end -------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Closes the producer, either after all faults have ended or at once."""
        if not hasattr(self, "rig"):
            return
        if self.next % 3:
            self.get_well()
            pool = self.rig.producer._pool
            assert pool.available_bytes == pool.total_bytes
        self.is_closed = True
        report = self.rig.producer.close(0)
        self.each_ticket_ends_once()
        for request in self.requests:
            assert len(request.results) == (not request.is_cancelled)
            assert len(request.settled) == 1, f"{request} is not settled"
        assert all(len(look_up.results) == (not look_up.is_cancelled) for look_up in self.look_ups)
        assert not self.rig.producer._accumulator.has_incomplete
        self.outcomes_are_true()
        self.report_is_true(report)

    def report_is_true(self, report: CloseReport) -> None:
        """It counts each record that its caller saw fail, and possibly some cancelled ones."""
        failed = sum(future.exception(0) is not None for future in self.sent.values())
        for request in self.requests:
            for result in request.results:
                failed += sum(isinstance(outcome, RecordFailure) for outcome in result.outcomes)
        cancelled = sum(len(request.numbers) for request in self.requests if request.is_cancelled)
        reported = report.failed_earlier + sum(left.records for left in report.unacknowledged)
        assert failed <= reported <= failed + cancelled
        assert report.flushed == (reported == 0)

    def get_well(self) -> None:
        for _ in range(400):
            all_settled = all(request.settled for request in self.requests)
            if (
                all_settled
                and all(sent.done() for sent in self.sent.values())
                and not self.rig.client.requests
            ):
                break
            self.learn()
            self.turn(stale=False, applied=True)
            for node in NODES:
                self.brokers.apply(node)
                self.brokers.answer(node)
            self.rig.clock.advance(20)
            self.each_ticket_ends_once()
        self.turn(stale=False, applied=True)

    def outcomes_are_true(self) -> None:
        logs = [[int(value[:6]) for value in self.brokers.values(p)] for p in range(PARTITIONS)]
        stored = {number for log in logs for number in log}
        for number, future in self.sent.items():
            if future.exception(0) is None:
                receipt = future.result(0)
                log = logs[receipt.partition]
                assert number in log if receipt.offset is None else log[receipt.offset] == number
        for request in self.requests:
            for number, outcome in zip(request.numbers, request.outcomes, strict=True):
                if isinstance(outcome, RecordMetadata):
                    log = logs[outcome.partition]
                    assert number in log if outcome.offset is None else log[outcome.offset] == number
                elif outcome.written is Written.NO:
                    assert number not in stored, f"record {number} is in a log: {outcome}"
            for result in request.results:
                for number, outcome in zip(request.numbers, result.outcomes, strict=True):
                    if isinstance(outcome, RecordFailure) and outcome.written is Written.NO:
                        assert number not in stored, f"record {number} is in a log: {outcome}"
        self.logs_are_in_order()


class IdempotentMachine(ProducerMachine):
    idempotent = True


class PlainMachine(ProducerMachine):
    idempotent = False


def walk(machine: ProducerMachine, random: Random, steps: int) -> int:
    """Drives a machine for many steps, mostly frequent rules; returns how many records were acknowledged."""
    machine.begin(
        batch_bytes=random.choice((1, 150, 400)),
        buffer_bytes=random.choice((900, 3_000, 100_000)),
        linger_ms=random.choice((0, 20)),
        in_flight=random.choice((1, 5)),
    )
    unlikely = random.choice((1, 4))

    def node() -> int:
        return random.choice(NODES)

    def yes() -> bool:
        return random.random() < 0.5

    def submit() -> None:
        machine.submit(
            random.choices((TOPIC, UNKNOWN_TOPIC), (9, 1))[0],
            random.choice((None, b"a", b"b")),
            random.choices((None, 0, 1, 7), (5, 5, 5, 1))[0],
            random.choices((0, 20, 120, 420), (9, 9, 3, 1), k=random.randrange(1, 6)),
            random.choice((0, 30, 300)),
            random.choice((10, 200, 2_000)),
        )

    rules: dict[Callable[[], object], int] = {
        submit: 20,
        lambda: machine.send(
            random.choice((None, b"a")),
            random.choices((None, 0, 1, 7), (5, 5, 5, 1))[0],
            random.choices((0, 20, 120), (9, 9, 3))[0],
        ): 20,
        lambda: machine.turn(stale=yes(), applied=yes()): 40,
        lambda: machine.wait(random.choice(WAITS_MS[:-2])): 10,
        lambda: machine.wait(random.choice(WAITS_MS[-2:])): unlikely // 4,
        lambda: machine.apply(node()): 10,
        lambda: machine.apply_and_answer(node()): 40,
        machine.learn: 3,
        lambda: machine.refuse(node(), random.choice(RETRIABLE)): 3 * unlikely,
        lambda: machine.refuse(node(), random.choice(FATAL)): unlikely,
        lambda: machine.say_late(node(), random.choice(LATE)): 2 * unlikely,
        lambda: machine.disconnect(node(), applied=yes()): 2 * unlikely,
        lambda: machine.move_leader(random.randrange(PARTITIONS)): unlikely,
        lambda: machine.look_up(random.choice((TOPIC, UNKNOWN_TOPIC)), random.choice((0, 100, 1_000))): 1,
    }
    for _ in range(steps):
        (chosen,) = random.choices(list(rules), list(rules.values()))
        chosen()
        if machine.requests and random.random() < 0.03:
            machine.cancel(random.randrange(1, 7))
        machine.each_ticket_ends_once()
        machine.memory_is_what_batches_and_waiting_requests_hold()
    machine.teardown()
    outcomes = [outcome for request in machine.requests for outcome in request.outcomes]
    return sum(isinstance(outcome, RecordMetadata) for outcome in outcomes)
