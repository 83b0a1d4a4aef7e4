"""One schedule: a producer, callers that take turns with its I/O thread, and brokers that fail.

`run(seed)` raises Broken, with the seed, where one of these does not hold:

    order       records of one caller are in each partition's log in the order of its calls
    flush       when it returns, each record that was accepted before it has its outcome, and callbacks ran
    callbacks   each runs once; a cancelled request's at most once; `settled` once in any case
    outcomes    an acknowledged record is in the log, one "not written" is not, nor is one that was refused
    close       the report counts the records that failed, and `flushed` is true if there are none
    memory      all of buffer.memory is free in the end, and nobody waits
    progress    every call returns, once the brokers have become well

The seed draws everything: settings, calls, which thread goes on and where it pauses (turns.py), what brokers
do, when time passes. Callers are threads; so are the closer and the I/O thread, which is the producer's own.
A callback counts as a caller of its own, because a `send` in it overtakes parked requests of others.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS
from client_core.cluster import TopicPartition
from client_core.errors import IllegalStateError, ProducerClosedError
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.results.ticket import RecordFailure, Written
from tests.producer.sender_machine import FATAL, LATE, RETRIABLE
from tests.schedules.turns import TurnClient, TurnClock, Turns
from tests.support.metadata_responses import node
from tests.support.model_brokers import NODES, TOPIC, ModelBrokers
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.producer.results.future_record_metadata import FutureRecordMetadata
    from client_core.producer.results.status import CloseReport
    from client_core.producer.results.ticket import Result, Ticket
    from tests.schedules.turns import Actor

PARTITIONS: Final = 2
_START_MS: Final = 1_000_000
_REQUEST_TIMEOUT_MS: Final = 60
_DELIVERY_MS: Final = 400
#: The longest time in which nothing is due, although calls wait: more than backoffs and request timeouts.
_LONGEST_SILENCE_MS: Final = 300
#: Steps after which a schedule has to be over: hundreds are usual.
_MOST_STEPS: Final = 20_000
#: Who calls from a callback.
_CALLBACK: Final = 9


class Broken(AssertionError):
    """Something does not hold. The message names the seed."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a schedule consisted of, to see that schedules reach everything."""

    seed: int
    steps: int
    counts: Counter[str]


@dataclass(eq=False)
class Call:
    """An accepted `send` or `submit`, and what was reported of it."""

    caller: int
    numbers: Sequence[int]
    results: list[Result] = field(default_factory=list)
    settled: list[Result] = field(default_factory=list)
    ticket: Ticket | None = None
    future: FutureRecordMetadata | None = None
    is_cancelled: bool = False
    #: How often a send's callback ran.
    called: int = 0

    def __repr__(self) -> str:
        name = "send" if self.ticket is None else "submit"
        first = self.numbers[0]
        return f"<{name} {self.caller}:{first}+{len(self.numbers)} cancelled={self.is_cancelled}>"

    @property
    def is_reported(self) -> bool:
        if self.future is not None:
            return self.future.done() and self.called == 1
        return bool(self.results)

    @property
    def is_settled(self) -> bool:
        return self.is_reported if self.future is not None else bool(self.settled)

    def failed(self) -> int:
        """How many of its records its caller saw fail; of a cancelled request those that were sent.

        The others were taken out by the cancel, or by the deadline if that came first.
        """
        if self.future is not None:
            return int(self.future.exception(0) is not None)
        results = self.results or self.settled
        failures = [o for result in results for o in result.outcomes if isinstance(o, RecordFailure)]
        unsent = "The request was cancelled" if self.results else ("The request was cancelled", "Records for")
        return sum(not str(failure.error).startswith(unsent) for failure in failures)


class Schedule:
    """The producer, those who call it, and the brokers. The chooser's thread calls `run`."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.random = random = Random(f"schedule {seed}")
        self._say = say
        self.counts: Counter[str] = Counter()
        self.turns = Turns()
        self.clock = TurnClock(self.turns, now_ms=_START_MS)
        self.idempotent = random.random() < 0.75
        self.rig = ProducerRig(
            clock=self.clock,
            client_type=TurnClient,
            enable_idempotence=self.idempotent,
            batch_size=random.choice((1, 150, 400)),
            buffer_memory=random.choice((900, 900, 3_000, 100_000)),
            linger_ms=random.choice((0, 0, 3)),
            delivery_timeout_ms=_DELIVERY_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            retry_backoff_ms=5,
            retry_backoff_max_ms=5,
            max_in_flight_requests_per_connection=random.choice((1, 5)) if self.idempotent else 1,
            max_block_ms=random.choice((0, 40, 400, 400)),
            exit_flush_timeout_ms=0,
        )
        self.producer = self.rig.producer
        client = self.rig.client
        assert isinstance(client, TurnClient)
        self.client = client
        client.turns, client.metadata_now = self.turns, self._metadata_now
        self.brokers = ModelBrokers(client, self.clock, partitions=PARTITIONS)
        self.known = random.choice((0, 0, 1, PARTITIONS, PARTITIONS))
        if self.known:
            self.rig.metadata.add(TOPIC, self.clock.now_ms())
        self._answered = self.brokers.metadata(self.known)
        client.update_metadata(self._answered, 13)
        self.calls: list[Call] = []
        self.refused: set[tuple[int, int]] = set()
        #: What `close` returned, and the calls that had been accepted when it was called in a callback.
        self.reports: list[tuple[CloseReport, Sequence[Call] | None]] = []
        self._next: Counter[int] = Counter()
        self._harm = random.choice((0, 0, 1, 3))
        self._broker_steps = 0
        self._well_after = random.randrange(20, 150)
        self._weights = (random.choice((1, 3, 10)), random.choice((1, 3, 10, 30)), random.choice((1, 3, 10)))
        self._preempts = random.choice((0.0, 0.1, 0.3, 0.6))
        self._callers: list[Actor] = []
        self._steps = 0

    # -- callers ---------------------------------------------------------------------------------------------

    def _work(self, caller: int, steps: int, random: Random) -> Callable[[], None]:
        def work() -> None:
            try:
                for _ in range(steps):
                    self._step(caller, random)
                    self.turns.pause()
            except (IllegalStateError, ProducerClosedError):
                self.counts["refused"] += 1

        return work

    def _step(self, caller: int, random: Random) -> None:
        chosen = random.random()
        if chosen < 0.42:
            self._submit(caller, random)
        elif chosen < 0.80:
            self._send(caller, random)
        elif chosen < 0.90:
            self._flush(caller)
        elif chosen < 0.97:
            self._cancel(caller, random)
        elif chosen < 0.98:
            self._wait_for_one(caller)
        elif chosen < 0.985:
            self._close(caller, random.choice((0, 3, 10, FOREVER_MS)))
        else:
            self.producer.status()
            self.producer.backlog()

    def _record(self, caller: int, random: Random) -> tuple[int, ProducerRecord]:
        number = self._next[caller]
        self._next[caller] += 1
        size = random.choices((0, 20, 120, 420), (9, 9, 3, 1))[0]
        key = random.choice((None, None, b"a", b"b"))
        partition = random.choices((None, 0, 1, 7), (6, 5, 5, 1 if random.random() < 0.3 else 0))[0]
        value = b"%d:%05d:" % (caller, number) + bytes(size)
        return number, ProducerRecord(TOPIC, value, key=key, partition=partition)

    def _submit(self, caller: int, random: Random) -> None:
        made = [self._record(caller, random) for _ in range(random.randrange(1, 5))]
        call = Call(caller, [number for number, _ in made])
        now_ms = self.clock.now_ms()
        cancels = random.random() < 0.1

        def on_done(result: Result) -> None:
            call.results.append(result)
            if cancels:
                self._cancel(caller, random)

        self._tell(f"{caller} submits {[record.partition for _, record in made]} {call}")
        try:
            call.ticket = self.producer.submit(
                TOPIC,
                [record for _, record in made],
                block_deadline_ms=now_ms + random.choice((0, 20, 500, 500)),
                deadline_ms=now_ms + random.choice((30, 200, 2_000, 2_000)),
                done=on_done,
                settled=call.settled.append,
                in_chunks=random.random() < 0.05,
            )
        except (IllegalStateError, ProducerClosedError):
            self.refused.update((caller, number) for number in call.numbers)
            raise
        self.counts["parked"] += call.ticket.is_parked
        self.calls.append(call)

    def _send(self, caller: int, random: Random) -> None:
        number, record = self._record(caller, random)
        call = Call(caller, [number])
        calls_back = random.random() < 0.15 and caller != _CALLBACK
        closes = calls_back and random.random() < 0.03

        def on_done(future: FutureRecordMetadata) -> None:
            call.called += 1
            if closes:
                self._tell("a callback closes")
                self.counts["closed in a callback"] += 1
                accepted = tuple(self.calls)
                self.reports.append((self.producer.close(0), accepted))
            elif calls_back and self.producer.io_thread.is_current:
                self._call_in_callback(random)

        self._tell(f"{caller} sends to {record.partition} {call}")
        began_ms = self.clock.now_ms()
        try:
            call.future = self.producer.send(record, on_done)
        except (IllegalStateError, ProducerClosedError):
            self.refused.add((caller, number))
            assert not call.called, f"{call} was refused, and its callback was called"
            raise
        self.counts["blocked sends"] += self.clock.now_ms() > began_ms
        self.calls.append(call)

    def _call_in_callback(self, random: Random) -> None:
        self.counts["calls in callbacks"] += 1
        with contextlib.suppress(IllegalStateError, ProducerClosedError):
            (self._send if random.random() < 0.5 else self._submit)(_CALLBACK, random)

    def _flush(self, caller: int) -> None:
        before = tuple(self.calls)
        self._tell(f"{caller} flushes {len(before)} calls")
        began_ms = self.clock.now_ms()
        self.producer.flush()
        self._tell(f"{caller} has flushed")
        late = [call for call in before if not call.is_reported and not call.is_cancelled]
        assert not late, f"flush has returned before {late}"
        self.counts["flushes that waited"] += self.clock.now_ms() > began_ms

    def _cancel(self, caller: int, random: Random) -> None:
        own = [call for call in self.calls if call.caller == caller and call.ticket is not None]
        if not own:
            return
        call = own[-min(random.randrange(1, 4), len(own))]
        assert call.ticket is not None
        call.is_cancelled |= not call.results
        self._tell(f"{caller} cancels {call}")
        call.ticket.cancel()
        self.counts["cancelled"] += call.is_cancelled

    def _wait_for_one(self, caller: int) -> None:
        futures = [call.future for call in self.calls if call.caller == caller and call.future is not None]
        if futures:
            futures[-1].exception()

    def _close(self, caller: int, timeout_ms: int) -> None:
        self._tell(f"{caller} closes within {timeout_ms} ms")
        self.counts["closes"] += 1
        report = self.producer.close(timeout_ms)
        self._tell(f"{caller} has closed: {report}")
        self.reports.append((report, None))

    def _closer(self, random: Random) -> Callable[[], None]:
        """Closes at some moment, or when all is settled and the memory must be free."""
        waits = random.random() < 0.5
        patience = random.randrange(10, 200)
        timeout_ms = random.choice((0, 3, 10, FOREVER_MS))

        def is_settled() -> bool:
            if not all(actor.is_over for actor in self._callers):
                return False
            client, is_over = self.client, self.producer.io_thread.is_over
            return is_over or (
                all(call.is_settled for call in self.calls)
                and client.is_idle
                and not (client.requests or client._responses or client._is_woken)
            )

        def work() -> None:
            if waits:
                self.turns.pause(is_settled)
                if not self.producer.io_thread.is_over:
                    self._tell("all is settled")
                    self._check_memory()
                    self.counts["settled before the close"] += 1
            else:
                for _ in range(patience):
                    self.turns.pause()
            self._close(8, timeout_ms)

        return work

    # -- brokers and time ------------------------------------------------------------------------------------

    def _metadata_now(self) -> bytes:
        """What a metadata request is answered with: at times an older answer."""
        if self._is_well or self.random.random() < 0.7:
            self._answered = self.brokers.metadata(self.known)
        return self._answered

    @property
    def _is_well(self) -> bool:
        return self._broker_steps > self._well_after

    def _step_of_brokers(self) -> None:
        self._broker_steps += 1
        random, brokers = self.random, self.brokers
        brokers.look(applied_when_lost=random.random() < 0.5)
        if self._is_well:
            self.known = PARTITIONS
            for node_id in NODES:
                brokers.apply(node_id)
                brokers.answer(node_id)
            self.clock.advance(random.choice((0, 1, 5)))
            return
        node_id, harm, yes = random.choice(NODES), self._harm, random.random() < 0.5
        steps: dict[Callable[[], object], int] = {
            lambda: brokers.apply(node_id): 20,
            lambda: brokers.answer(node_id): 20,
            lambda: (brokers.apply(node_id), brokers.answer(node_id)): 20,
            lambda: brokers.refuse(node_id, random.choice(RETRIABLE)): 3 * harm,
            lambda: brokers.refuse(node_id, random.choice(FATAL)): harm,
            lambda: brokers.say_late(node_id, random.choice(LATE)): 2 * harm,
            lambda: self._disconnect(node_id, yes, 0): 2 * harm,
            lambda: self._disconnect(node_id, yes, random.choice((10, 40, 100))): harm,
            lambda: brokers.move_leader(random.randrange(PARTITIONS)): harm,
            self._add_partition: 3,
            lambda: self.clock.advance(random.choice((1, 1, 5, 20))): 8,
        }
        (chosen,) = random.choices(list(steps), list(steps.values()))
        chosen()

    def _disconnect(self, node_id: int, applied: bool, unreachable_ms: int) -> None:
        """Only in a poll: there the client learns of it."""
        if self.client.is_idle:
            self.brokers.disconnect(node_id, applied=applied)
            if unreachable_ms:
                self.client.set_unreachable(node(node_id), unreachable_ms)

    def _add_partition(self) -> None:
        self.known = min(self.known + 1, PARTITIONS)

    # -- the run ---------------------------------------------------------------------------------------------

    def run(self) -> Ran:
        """Raises Broken."""
        try:
            self._start()
            self.turns.run(self._choose)
            self._check_end()
        except AssertionError as error:
            raise Broken(f"seed {self.seed}, step {self._steps}: {error}") from error
        self.counts["preempted"] = self.turns.preempted
        return Ran(self.seed, self._steps, self.counts)

    def _start(self) -> None:
        random, turns = self.random, self.turns
        self.clock.at_next_reading = lambda: turns.adopt("io")
        self.producer.start()
        turns.wait_for_pause()
        for caller in range(random.choice((1, 2, 3))):
            work = self._work(caller, random.randrange(2, 9), Random(random.random()))
            self._callers.append(turns.start(f"caller {caller}", work))
        turns.start("closer", self._closer(Random(random.random())))

    def _choose(self) -> tuple[Actor, int] | None:
        """Lets brokers act and time pass; returns who goes on, and for how many lines. None: all is over."""
        while not all(actor.is_over for actor in self.turns.actors):
            self._steps += 1
            assert self._steps < _MOST_STEPS, f"not over: {self.turns.actors}"
            actor = self._draw()
            if actor is None:
                continue
            if self.random.random() >= self._preempts:
                return actor, 0
            return actor, self.random.randrange(1, self.random.choice((4, 12, 40, 150, 400)))
        return None

    def _draw(self) -> Actor | None:
        """One who can go on; or None, after brokers have acted or time has passed."""
        random, now_ms = self.random, self.clock._now_ms
        actors = self.turns.actors
        able = [actor for actor in actors if actor.can_run(now_ms)]
        of_callers, of_io, of_brokers = self._weights
        weights = [of_io if actor.name == "io" else of_callers for actor in able]
        total = sum(weights)
        if random.random() * (total + of_brokers) < total:
            return random.choices(able, weights)[0]
        if not able and not (self.client.requests and random.random() < 0.8):
            deadline_ms = min((one.deadline_ms for one in actors if not one.is_over), default=FOREVER_MS)
            if deadline_ms < FOREVER_MS:
                self._check_progress(deadline_ms - now_ms)
                self.clock.advance(deadline_ms - now_ms)
                return None
            assert self.client.requests or not self._is_well, f"all wait for ever: {actors}"
        self._step_of_brokers()
        return None

    # -- what must hold --------------------------------------------------------------------------------------

    def _check_progress(self, silence_ms: int) -> None:
        """Well brokers, and every thread waits: no call may depend on a timeout then."""
        if self._is_well and silence_ms > _LONGEST_SILENCE_MS:
            waiting = [call for call in self.calls if not call.is_settled]
            assert not waiting, f"nobody does anything about {waiting} for {silence_ms} ms"

    def _check_memory(self) -> None:
        pool = self.producer._pool
        assert pool.available_bytes == pool.total_bytes, f"memory is lost: {pool}"

    def _check_end(self) -> None:
        producer = self.producer
        final = producer.close()
        assert not producer.io_thread.failed_turns, f"{producer.io_thread.failed_turns} turns raised"
        assert producer.io_thread.life_cycle.name == "CLOSED", f"{producer.io_thread}"
        for call in self.calls:
            if call.future is not None:
                assert call.future.done(), f"{call} has no outcome"
                assert call.called == 1, f"the callback of {call} was called {call.called} times"
            else:
                assert len(call.settled) == 1, f"{call} was settled {len(call.settled)} times"
                assert len(call.results) <= 1, f"{call} was reported {len(call.results)} times"
                assert call.results or call.is_cancelled, f"{call} was not reported"
        self._check_logs()
        self._check_reports(final)
        accumulator, gate = producer._accumulator, producer._parked.gate
        assert not accumulator.has_incomplete, f"{accumulator}"
        assert not producer._pool.waiters, f"{producer._pool}"
        assert not gate.topics, f"parked for ever: {gate.topics}"
        if not self.client.open_at_close:
            self._check_memory()

    def _check_reports(self, final: CloseReport) -> None:
        failed = sum(call.failed() for call in self.calls)
        counted = _counted(final)
        assert counted == failed, f"{counted} failures in {final}, and callers saw {failed}"
        for report, accepted in ((final, None), *self.reports):
            assert report.flushed == (_counted(report) == 0), f"{report}"
            if accepted is None:
                assert _counted(report) == counted, f"{report}, and later {final}"
            else:  # it lists open records, too, which this turn may still acknowledge
                least = sum(call.failed() for call in accepted)
                assert _counted(report) >= least, f"{report} in a callback, and later {final}"
        self.counts["flushed"] += final.flushed
        self.counts["records"] += sum(len(call.numbers) for call in self.calls)
        self.counts["failed records"] += failed

    def _check_logs(self) -> None:
        logs: list[list[tuple[int, int]]] = []
        for partition in range(PARTITIONS):
            stored = self.brokers.logs[TopicPartition(TOPIC, partition)].records(0)
            logs.append([_name(record.value or b"") for record in stored])
        for partition, log in enumerate(logs):
            for caller in {caller for caller, _ in log}:
                numbers = [number for who, number in log if who == caller]
                if not self.idempotent:  # what was stored again, since its answer was lost, comes again
                    numbers = list(dict.fromkeys(numbers))
                assert numbers == sorted(set(numbers)), f"caller {caller}, partition {partition}: {numbers}"
        anywhere = {name for log in logs for name in log}
        assert not anywhere & self.refused, f"refused, and in a log: {anywhere & self.refused}"
        for call in self.calls:
            for name, outcome in self._outcomes(call):
                if isinstance(outcome, RecordMetadata):
                    log = logs[outcome.partition]
                    in_place = name in log if outcome.offset is None else log[outcome.offset] == name
                    assert in_place, f"{name} of {call} is not where {outcome} says"
                elif outcome.written is Written.NO:
                    assert name not in anywhere, f"{name} of {call} is in a log: {outcome}"

    def _outcomes(self, call: Call) -> list[tuple[tuple[int, int], RecordMetadata | RecordFailure]]:
        if call.future is not None:
            if call.future.exception(0) is not None:
                return []
            return [((call.caller, call.numbers[0]), call.future.result(0))]
        names = [(call.caller, number) for number in call.numbers]
        return [
            pair
            for result in (*call.results, *call.settled)
            for pair in zip(names, result.outcomes, strict=True)
        ]

    def _tell(self, what: str) -> None:
        if self._say is not None:
            self._say(f"{self.clock._now_ms - _START_MS} {threading.current_thread().name}: {what}")


def _counted(report: CloseReport) -> int:
    return report.failed_earlier + sum(left.records for left in report.unacknowledged)


def _name(value: bytes) -> tuple[int, int]:
    caller, number, _ = value.split(b":", 2)
    return int(caller), int(number)


def run(seed: int, say: Callable[[str], None] | None = None) -> Ran:
    """Runs one schedule. Raises Broken."""
    return Schedule(seed, say).run()
