"""Faults that schedules must find: changes of the producer's text, planted in a copy of the tree.

Each is here because schedules have found it, the rarest after 2,573. The last was a defect of the producer
that they found first, and needs a thread that is paused between two lines. Defects that take longer to find
have tests by hand: tests/producer/requests/test_ends_of_requests.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.mutants.behaviour.mutant import Change, Mutant

if TYPE_CHECKING:
    from collections.abc import Sequence

_REQUESTS: Final = "client_core/producer/requests"
_RESULTS: Final = "client_core/producer/results"
_SENDER: Final = "client_core/producer/sender"


def _fault(name: str, fault: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, fault, [Change(file, old, new)])


FAULTS: Final[Sequence[Mutant]] = (
    _fault(
        "send-overtakes",
        "A send does not wait behind parked requests of its topic.",
        f"{_REQUESTS}/blocking_calls.py",
        "if record.topic in self._gate.topics:",
        "if record.topic in self._gate.topics and self._io_thread.is_current:",
    ),
    _fault(
        "submit-overtakes",
        "A submit is appended although earlier requests for its topic are parked.",
        f"{_REQUESTS}/submissions.py",
        "self.parked.gate.is_blocked(request.topic)",
        "self.parked.gate.has_callbacks(request.topic)",
    ),
    _fault(
        "done-twice",
        "A request that ended at its deadline is reported again when its batch comes back.",
        f"{_REQUESTS}/pending_request.py",
        """            # Cancelled, or given up at its deadline? The batch was delivered nevertheless.
            ends, self.is_finished = not self.is_finished, True
""",
        """            ends, self.is_finished = True, True
""",
    ),
    _fault(
        "done-after-cancel",
        "A cancelled request is reported when its records are acknowledged.",
        f"{_REQUESTS}/pending_request.py",
        "            was_running, self.is_finished = not self.is_finished, True\n",
        "            was_running = not self.is_finished\n",
    ),
    _fault(
        "callback-dropped",
        "The callback of a send that was never appended is not called.",
        f"{_RESULTS}/future_record_metadata.py",
        """            self._outcome = error.with_traceback(None)
            if self._listeners:
                self._report()
""",
        """            self._outcome = error.with_traceback(None)
""",
    ),
    _fault(
        "settled-dropped",
        "A request that is cancelled while it is parked is never settled.",
        f"{_REQUESTS}/pending_request.py",
        """            self.fail(indices, RecordFailure(error, Phase.METADATA, Written.NO, 0))
            return []
""",
        """            return []
""",
    ),
    _fault(
        "memory-leak",
        "Memory that a send waited for, and then did not need, is not given back.",
        f"{_REQUESTS}/appending.py",
        """        if reserved_bytes:
            pool.deallocate(reserved_bytes)
""",
        """        pass
""",
    ),
    _fault(
        "memory-leak-of-grants",
        "Memory that is granted to a request as it leaves the queue is not given back.",
        f"{_REQUESTS}/parked_requests.py",
        """        if waiter is not None and not waiter.cancel():
            request.reserved_bytes += waiter.size_bytes
""",
        """        if waiter is not None:
            waiter.cancel()
""",
    ),
    _fault(
        "flush-early",
        "A flush does not wait for parked requests.",
        f"{_REQUESTS}/blocking_calls.py",
        "self._flush_parked if self._is_parked else self._wait_for_results",
        "self._wait_for_results",
    ),
    _fault(
        "flush-before-callbacks",
        "A flush does not wait for the results to be posted.",
        f"{_REQUESTS}/blocking_calls.py",
        "        if self._completions.is_reported:\n",
        "        if True:\n",
    ),
    _fault(
        "flushed-falsely",
        "The report does not count the records of parked requests that fail.",
        f"{_REQUESTS}/parked_requests.py",
        """        indices = request.drop_not_appended()
        self._accumulator.failed.add(request.topic, None, len(indices))
        request.fail(indices, failure)
""",
        """        indices = request.drop_not_appended()
        request.fail(indices, failure)
""",
    ),
    _fault(
        "not-flushed-falsely",
        "The report counts a batch that is tried again as failed.",
        f"{_SENDER}/batch_settlement.py",
        "        self._accumulator.reenqueue(batch, now_ms)\n",
        "        self._accumulator.reenqueue(batch, now_ms)\n"
        "        self._accumulator.failed.add(*batch.topic_partition, batch.record_count)\n",
    ),
    _fault(
        "wakeup-forgotten",
        "A submitted request does not wake the I/O thread.",
        f"{_SENDER}/io_thread.py",
        "        if wake or request.deadline_ms < self._wakes_by_ms:\n",
        "        if wake and request.deadline_ms < 0:\n",
    ),
    _fault(
        "notification-forgotten",
        "A flush is not notified when the last parked request before it is gone.",
        f"{_REQUESTS}/ordering_gate.py",
        "calls.append(self._flushes.popleft()[1])",
        "self._flushes.popleft()",
    ),
    _fault(
        "gate-left-too-early-race",
        "A failed request leaves the gate before its result is added: a flush returns before it is posted.",
        f"{_REQUESTS}/parked_requests.py",
        """        self._release(request)
        if request.appended""",
        """        self._release(request)
        self.gate.remove(request)
        if request.appended""",
    ),
)
