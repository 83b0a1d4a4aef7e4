"""The batches that are queued or in flight, and the flushes that wait for them.

Appending threads add, the I/O thread removes, any thread may read. One lock, held for set operations only;
flushes are completed outside it. Source: IncompleteBatches, ProduceRequestResult.awaitAllDependents,
Kafka 4.3.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from client_core.producer.accumulator.producer_batch import ProducerBatch


class FlushTicket:
    """A wait for all batches that were incomplete when it began, and for their split parts (ACC-12)."""

    __slots__ = ("_abandon", "_batches", "_lock", "_on_done")

    def __init__(
        self,
        batches: Iterable[ProducerBatch],
        on_done: Callable[[], None] | None,
        abandon: Callable[[FlushTicket], None] = lambda flush: None,
    ) -> None:
        """`abandon` is called if the waiter leaves before the flush is done."""
        self._abandon = abandon
        self._lock = threading.RLock()
        self._batches = set(batches)
        self._on_done = on_done

    @property
    def is_done(self) -> bool:
        return not self._batches

    def abandon(self) -> None:
        """Ends the flush because its waiter has left. Batches then wait for linger.ms again. Any thread."""
        self._abandon(self)

    def replaced(self, batch: ProducerBatch, by: Collection[ProducerBatch]) -> None:
        """Waits for the parts of a split batch, too."""
        with self._lock:
            if batch in self._batches:
                self._batches.update(by)

    def completed(self, batch: ProducerBatch) -> bool:
        """Notes that a batch is finished; returns whether it was the last one."""
        with self._lock:
            if batch not in self._batches:
                return False
            self._batches.discard(batch)
            return not self._batches

    def complete(self) -> None:
        if self._on_done is not None:
            self._on_done()


class IncompleteBatches:
    """The set of all incomplete batches, oldest first."""

    __slots__ = ("_batches", "_flushes", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._batches: dict[ProducerBatch, None] = {}
        self._flushes: list[FlushTicket] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __contains__(self, batch: ProducerBatch) -> bool:
        return batch in self._batches

    @property
    def flush_in_progress(self) -> bool:
        """Whether a flush waits. Read without the lock."""
        return bool(self._flushes)

    def snapshot(self) -> Sequence[ProducerBatch]:
        """Returns all of them now, in the order in which they were added."""
        with self._lock:
            return tuple(self._batches)

    def add(self, batch: ProducerBatch) -> None:
        with self._lock:
            self._batches[batch] = None

    def split(self, batch: ProducerBatch, into: Collection[ProducerBatch]) -> None:
        """Adds the parts of a batch; its flushes wait for them too."""
        with self._lock:
            self._batches.update(dict.fromkeys(into))
            flushes = tuple(self._flushes)
        for flush in flushes:
            flush.replaced(batch, into)

    def remove(self, batch: ProducerBatch) -> None:
        """Removes a completed batch, and notifies flushes that are done. The caller holds no lock."""
        with self._lock:
            flushes = tuple(self._flushes)
            self._batches.pop(batch, None)
        for flush in flushes:
            if flush.completed(batch):
                self._end(flush)
                flush.complete()

    def _end(self, flush: FlushTicket) -> None:
        with self._lock:
            if flush in self._flushes:
                self._flushes.remove(flush)

    def begin_flush(self, on_done: Callable[[], None] | None) -> FlushTicket:
        """Starts a wait for all incomplete batches. `on_done` is called at once if there are none."""
        with self._lock:
            flush = FlushTicket(self._batches, on_done, self._end)
            if not flush.is_done:
                self._flushes.append(flush)
                return flush
        flush.complete()
        return flush
