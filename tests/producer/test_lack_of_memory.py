"""A MemoryError at any line of the I/O thread's turns: no partition is blocked for good, no caller forgotten.

A trace function raises it, once in a run, where the turn reaches a line of client_core. Callers, brokers and
time are the same in each run, so the lines that a run without an error reaches are those to try.
"""

from __future__ import annotations

import inspect
import linecache
import opcode
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import client_core
from client_core.error_codes import Errors
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.sender import sender
from client_core.producer.sender.batch_settlement import BatchSettlement
from tests.support.counted_work import no_collector
from tests.support.mock_clock import MockClock
from tests.support.model_brokers import NODES, TOPIC, ModelBrokers
from tests.support.producer_rig import ProducerRig, Waiting

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from types import FrameType

_ROOT: Final = f"{Path(client_core.__file__).parent}/"
#: The function that catches the error of a turn: its own lines need no memory until there is one.
_OUTERMOST: Final = "_guarded_turn"
#: How a `with` statement begins; it ends with other instructions of the same line.
_BEGINNINGS: Final = {opcode.opmap[name] for name in ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF")}
#: What a batch goes through between its queue and its outcome.
_SENDING: Final = (
    "producer/accumulator/batch_drain.py",
    "producer/accumulator/record_accumulator.py",
    "producer/sender/batch_settlement.py",
    "producer/sender/produce_request.py",
    "producer/sender/sender.py",
)
_BATCH_BYTES: Final = 200


class _Clock(MockClock):
    """Whoever waits, waits alone: time goes on to the deadline."""

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        self.advance(max(deadline_ms - self.now_ms(), 0))
        return predicate()


class _Shortage:
    """Raises MemoryError at the `at`-th line; notes which lines come. Use `trace` for sys.settrace."""

    def __init__(self, at: int | None) -> None:
        self._at = at
        self._count = 0
        #: The numbers at which each line came.
        self.lines: dict[tuple[str, int], list[int]] = {}
        self.has_come = False

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        is_ours = frame.f_code.co_filename.startswith(_ROOT) and frame.f_code.co_name != _OUTERMOST
        return self._line if is_ours else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and not _needs_no_memory(frame):
            self._count += 1
            if self._at is None:
                line = frame.f_code.co_filename.removeprefix(_ROOT), frame.f_lineno
                self.lines.setdefault(line, []).append(self._count)
            elif self._count == self._at:
                self.has_come = True
                raise MemoryError("planted")
        return self._line


def _needs_no_memory(frame: FrameType) -> bool:
    """Whether a `try` begins, which does nothing, or a `with` is left: an error there would keep a lock."""
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return line == "try:" or (code.co_code[frame.f_lasti] not in _BEGINNINGS and line.startswith("with "))


class _Story:
    """A producer, brokers, and the callers of one run."""

    def __init__(self, at: int | None, in_flight: int = 5) -> None:
        self.shortage = _Shortage(at)
        self.rig = ProducerRig(
            topics={TOPIC: 2},
            enable_idempotence=True,
            batch_size=_BATCH_BYTES,
            buffer_memory=900,
            delivery_timeout_ms=800,
            request_timeout_ms=300,
            max_in_flight_requests_per_connection=in_flight,
            clock=_Clock(now_ms=1_000_000),
        )
        self.brokers = ModelBrokers(self.rig.client, self.rig.clock, partitions=2)
        self.rig.client.update_metadata(self.brokers.metadata(), 13)
        self.asked: list[Waiting] = []
        self.settled: list[list[object]] = []

    def submit(
        self, records: int, *, topic: str = TOPIC, partition: int | None = None, timeout_ms: int = 1_000
    ) -> None:
        settled: list[object] = []
        values = [ProducerRecord(topic, b"%060d" % number, partition=partition) for number in range(records)]
        self.settled.append(settled)
        waiting = self.rig.submit(
            topic, *values, block_ms=min(timeout_ms, 300), timeout_ms=timeout_ms, settled=settled.append
        )
        self.asked.append(waiting)

    def turn(self, *, answers: bool = True, refuses: bool = False) -> None:
        if not self.rig.client.has_pending_metadata_updates:
            self.rig.client.prepare_metadata_update(self.brokers.metadata(), 13)
        # The collector would run finalizers of other producers, whose lines count, too.
        with no_collector():
            if not self.shortage.has_come:
                sys.settrace(self.shortage.trace)
            try:
                self.rig.producer.io_thread._guarded_turn()
            finally:
                sys.settrace(None)
        self.brokers.look(applied_when_lost=True)
        for node in NODES:
            if refuses:
                self.brokers.refuse(node, Errors.TOPIC_AUTHORIZATION_FAILED)
            self.brokers.apply(node)
            if answers:
                self.brokers.answer(node)
        self.rig.clock.advance(20)

    def run(self) -> None:
        """Requests that wait for memory, a topic, a partition or time, or expire; a connection ends."""
        for records in (3, 6):
            self.submit(records)
        self.submit(2, topic="unknown")
        self.submit(2, partition=0, timeout_ms=60)
        self.submit(1, partition=7)
        for step in range(240):
            # No answer at all, then one in two turns; then a broker refuses records; then each is answered.
            answers = step > 4 and (step % 2 == 1 or step > 60)
            self.turn(answers=answers, refuses=step == 51)
            if step == 8:
                self.brokers.disconnect(0, applied=True)
            if step == 12:
                self.submit(4, partition=1)
            if step == 50:
                self.submit(2, partition=0)
            if step == 55:
                for node in self.rig.metadata.fetch().nodes:
                    self.rig.client.set_unreachable(node, 1_000)
                self.submit(2, partition=1, timeout_ms=60_000)
            if step > 60 and all(self.settled) and not self.rig.client.requests:
                break

    def is_delivered_now(self) -> bool:
        """Whether a record for each partition is acknowledged."""
        waiting = self.rig.submit(
            TOPIC,
            *(ProducerRecord(TOPIC, b"later", partition=number) for number in range(2)),
            timeout_ms=3_000,
        )
        for _ in range(200):
            self.turn()
            if waiting.reported:
                break
        return bool(waiting.reported) and all(
            isinstance(outcome, RecordMetadata) for outcome in waiting.produced.outcomes
        )

    def delivers(self) -> bool:
        """Whether later records are acknowledged; if the error comes with the first ones, the next ones."""
        return any(self.is_delivered_now() for _ in range(3))

    def untrue(self) -> list[RecordMetadata]:
        """Receipts of records that brokers do not have."""
        logs = [self.brokers.values(number) for number in range(2)]
        receipts = [
            (number, outcome)
            for waiting in self.asked
            for result in waiting.reported
            for number, outcome in enumerate(getattr(result, "outcomes", ()))
            if isinstance(outcome, RecordMetadata)
        ]
        return [
            receipt
            for number, receipt in receipts
            if receipt.offset is not None and logs[receipt.partition][receipt.offset] != b"%060d" % number
        ]


def _lines(in_flight: int = 5) -> dict[tuple[str, int], list[int]]:
    story = _Story(None, in_flight)
    story.run()
    assert story.delivers()
    assert all(len(waiting.reported) == 1 for waiting in story.asked)
    return story.shortage.lines


def _moments(lines: dict[tuple[str, int], list[int]]) -> list[int]:
    """When each line came first, and one of the later times."""
    draw = random.Random(5)
    return sorted({number for came in lines.values() for number in (came[0], draw.choice(came))})


def _run_with_error_at(moment: int, in_flight: int = 5) -> _Story:
    story = _Story(moment, in_flight)
    story.run()
    assert story.delivers(), f"nothing is delivered after an error at {moment}"
    assert not story.rig.producer._accumulator.has_incomplete, f"a batch is lost after an error at {moment}"
    assert not story.untrue()
    return story


def _tried(every: int, in_flight: int = 5) -> Sequence[int]:
    """Moments of the lines that a batch goes through, one in `every`."""
    of_sending = {line: came for line, came in _lines(in_flight).items() if line[0] in _SENDING}
    return _moments(of_sending)[::every]


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.long)])
def test_wherever_memory_is_short_between_queue_and_outcome_all_callers_are_answered(every: int) -> None:
    for moment in _tried(every):
        story = _run_with_error_at(moment)
        assert [len(waiting.reported) for waiting in story.asked] == [1] * len(story.asked), moment
        assert [len(settled) for settled in story.settled] == [1] * len(story.asked), moment


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.long)])
def test_wherever_memory_is_short_later_records_are_delivered(every: int) -> None:
    for moment in _moments(_lines())[::every]:
        _run_with_error_at(moment)


def test_no_partition_stays_muted_if_memory_is_short_as_an_answer_comes() -> None:
    of_answers: set[tuple[str, int]] = set()
    for function in (
        sender.Sender._handle_produce_response,
        sender._landed,
        BatchSettlement.settle,
    ):
        code, first = inspect.getsourcelines(function)
        file = str(inspect.getsourcefile(function)).removeprefix(_ROOT)
        of_answers.update((file, line) for line in range(first, first + len(code)))
    came = _moments({line: came for line, came in _lines(in_flight=1).items() if line in of_answers})
    assert came
    for moment in came:
        _run_with_error_at(moment, in_flight=1)


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.long)])
def test_wherever_memory_is_short_with_one_request_in_flight_no_partition_stays_muted(every: int) -> None:
    for moment in _tried(every, in_flight=1):
        _run_with_error_at(moment, in_flight=1)
