"""The receipt for one sent record, to be had later: what `KafkaProducer.send` returns.

It is the record's owner: the batch tells it on the I/O thread, before a flush that waits for the batch
returns. A callback runs there too, in the order in which the records were appended; one that fails is
logged, the others run. Any thread may wait. Source: FutureRecordMetadata, ProduceRequestResult,
KafkaProducer.FutureFailure, Kafka 4.3.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from client_core.errors import KafkaError, TimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.producer.batch_outcome import BatchOutcome
    from client_core.producer.producer_record import RecordMetadata

_log: Final = logging.getLogger(__name__)


class FutureRecordMetadata:
    """A record's RecordMetadata, or the error that it failed with."""

    __slots__ = ("_callbacks", "_condition", "_outcome")

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._outcome: RecordMetadata | KafkaError | None = None
        self._callbacks: list[Callable[[FutureRecordMetadata], None]] = []

    @staticmethod
    def failed(error: KafkaError) -> FutureRecordMetadata:
        """A future that is over before it began (PROD-06)."""
        future = FutureRecordMetadata()
        future._outcome = error
        return future

    def __repr__(self) -> str:
        return (
            f"<FutureRecordMetadata {self._outcome!r}>" if self.done() else "<FutureRecordMetadata pending>"
        )

    def done(self) -> bool:
        return self._outcome is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """The receipt; waits for it for at most timeout_s, or for as long as it takes.

        Raises the error that the record failed with, or TimeoutError when it is not known in time.
        """
        outcome = self._wait(timeout_s)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def exception(self, timeout_s: float | None = None) -> KafkaError | None:
        """The error that the record failed with, None for success; waits as `result` does."""
        outcome = self._wait(timeout_s)
        return outcome if isinstance(outcome, KafkaError) else None

    def add_done_callback(self, callback: Callable[[FutureRecordMetadata], None]) -> None:
        """Has `callback(self)` called when it is done:

        on the I/O thread, or at once on this one if it is done.
        """
        with self._condition:
            if self._outcome is None:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        error = outcome.error_for(first_in_batch)
        self._set(outcome.metadata_for(first_in_batch) if error is None else error)

    def fail(self, error: KafkaError) -> None:
        """The record was never appended."""
        self._set(error)

    def _set(self, outcome: RecordMetadata | KafkaError) -> None:
        with self._condition:
            if self._outcome is not None:
                return
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[FutureRecordMetadata], None]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 -- a user's code
            _log.exception("A callback failed on %r", self)

    def _wait(self, timeout_s: float | None) -> RecordMetadata | KafkaError:
        with self._condition:
            self._condition.wait_for(self.done, timeout_s)
            if self._outcome is None:
                raise TimeoutError(f"Timeout after waiting for {timeout_s} s.")
            return self._outcome
