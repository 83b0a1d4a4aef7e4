"""The future that `KafkaProducer.send` returns for one record.

It is the record's owner: the batch completes it on the I/O thread, before a flush of that batch returns. Its
callbacks run there too, in append order; one that raises is logged, and the others still run. Any thread may
wait. Source: FutureRecordMetadata, ProduceRequestResult, KafkaProducer.FutureFailure, Kafka 4.3.

There may be a million futures, and most have no waiter. So a future has no lock of its own, builds its
metadata on demand, and is checked for waiters only when there are any.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from client_core import forks
from client_core.errors import KafkaError, TimeoutError
from client_core.latch import Latch
from client_core.uncaught import is_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.producer.results.batch_outcome import BatchOutcome
    from client_core.producer.results.producer_record import RecordMetadata

_log: Final = logging.getLogger(__name__)

#: Guards `_listeners` of every future. Held briefly, when a wait begins or ends, and by the I/O thread for a
#: future with waiters.
_LISTENING = threading.Lock()


def renew_lock() -> None:
    """Replaces the lock in the child of a fork: the lock's holder may not exist there."""
    global _LISTENING
    _LISTENING = threading.Lock()


class FutureRecordMetadata:
    """A record's RecordMetadata, or its error.

    In the child of a fork a pending future never gets an outcome: there everything except its repr raises
    IllegalStateError.
    """

    __slots__ = ("_listeners", "_made_at", "_outcome", "_position")

    #: Always False: a future waits for its record without a time limit.
    was_given_up: Final = False

    def __init__(self, on_done: Callable[[FutureRecordMetadata], None] | None = None) -> None:
        """`on_done` is the first callback."""
        self._outcome: BatchOutcome | KafkaError | None = None
        self._position = 0  # the record's position in the outcome's batch
        self._made_at = forks.count
        self._listeners: tuple[Callable[[FutureRecordMetadata], None], ...] = (
            () if on_done is None else (on_done,)
        )

    @staticmethod
    def failed(error: KafkaError) -> FutureRecordMetadata:
        """Returns a future that has failed already (PROD-06)."""
        future = FutureRecordMetadata()
        future._outcome = error
        return future

    def __repr__(self) -> str:
        if self._outcome is None:
            return "<FutureRecordMetadata pending>"
        error = self._error()
        return f"<FutureRecordMetadata {self._receipt() if error is None else error!r}>"

    @property
    def partition(self) -> int | None:
        """The partition of a record that has an outcome; None while it has none, or was never appended."""
        outcome = self._outcome
        return None if outcome is None or isinstance(outcome, KafkaError) else outcome.partition

    def done(self) -> bool:
        if self._outcome is None:
            forks.ensure_own_process(self._made_at, self)
        return self._outcome is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Returns the receipt; waits for it for at most timeout_s, or without a limit.

        Raises the record's error, or TimeoutError if there is no outcome in time.
        """
        error = self.exception(timeout_s)
        try:
            if error is not None:
                # All records of a batch share their error, and each raise would lengthen its traceback.
                raise error.with_traceback(None)
            return self._receipt()
        finally:
            # A traceback holds its frames: this one would hold the future, which holds the error.
            del self, error

    def exception(self, timeout_s: float | None = None) -> KafkaError | None:
        """Returns the record's error, None for success; waits as `result` does."""
        if self._outcome is None:
            self._wait(timeout_s)
        return self._error()

    def add_done_callback(self, callback: Callable[[FutureRecordMetadata], None]) -> None:
        """Calls `callback(self)` when it is done:

        on the I/O thread, or at once on this one if it is done.
        """
        if self._outcome is None:
            forks.ensure_own_process(self._made_at, self)
        if not self._listen(callback):
            self._call(callback)

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        if self._outcome is None:
            self._position = first_in_batch
            self._outcome = outcome
            if self._listeners:
                self._report()

    def fail(self, error: KafkaError) -> None:
        """Fails a record that was never appended. Drops the error's traceback.

        Its frames hold the record and this future, which would stay until the next garbage collection.
        """
        if self._outcome is None:
            self._outcome = error.with_traceback(None)
            if self._listeners:
                self._report()

    def _report(self) -> None:
        """Calls the listeners. Reads them after the outcome is stored: `_listen` relies on that."""
        with _LISTENING:
            listeners, self._listeners = self._listeners, ()
        for listener in listeners:
            self._call(listener)

    def _listen(self, listener: Callable[[FutureRecordMetadata], None]) -> bool:
        """Returns whether the listener will be called; False if there is an outcome already."""
        with _LISTENING:
            self._listeners = (*self._listeners, listener)
            if self._outcome is None:
                return True
            # The setter saw no listener, or waits for the lock.
            self._cease(listener)
            return False

    def _cease(self, listener: Callable[[FutureRecordMetadata], None]) -> None:
        """Removes the listener. Under the lock."""
        self._listeners = tuple(each for each in self._listeners if each is not listener)

    def _call(self, callback: Callable[[FutureRecordMetadata], None]) -> None:
        try:
            callback(self)
        except BaseException as error:  # a user's code, its sys.exit() and CancelledError too
            if is_interrupt(error):
                raise
            _log.exception("A callback failed on %r", self)

    def _wait(self, timeout_s: float | None) -> None:
        forks.ensure_own_process(self._made_at, self)
        completed = Latch()

        def report(_: FutureRecordMetadata) -> None:
            completed.set()

        if self._listen(report) and not completed.wait(timeout_s):
            with _LISTENING:
                self._cease(report)
            if self._outcome is None:
                raise TimeoutError(f"Timeout after waiting for {timeout_s} s.")

    def _error(self) -> KafkaError | None:
        outcome = self._outcome
        if outcome is None or isinstance(outcome, KafkaError):
            return outcome
        return outcome.error_for(self._position)

    def _receipt(self) -> RecordMetadata:
        outcome = self._outcome
        assert outcome is not None
        assert not isinstance(outcome, KafkaError)
        return outcome.metadata_for(self._position)
