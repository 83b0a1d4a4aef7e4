"""One submitted produce request, until each of its records has an outcome.

It is its caller's Ticket and its batches' RecordOwner. It counts down records, not batches, because the parts
of a split batch report separately. `todo` holds what is not appended yet, per partition and in order. The
holder (the caller inside submit, then the I/O thread) appends from it until metadata or memory is lacking.

A request ends for its caller when each record has an outcome, at its deadline, or when it is cancelled. Its
records may be in flight then, and their bytes in this client. It keeps counting, and calls `settled` once,
when the last record is accounted for.

`batch_done`, `give_up` and `forget` may come from different threads. One short lock guards the countdown.
Both ends are reported outside it, exactly once each.
"""

from __future__ import annotations

import threading
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core import forks
from client_core.errors import KafkaError
from client_core.producer.accumulator.partitioner import partition_for_key
from client_core.producer.results.results import BatchSpan, FailedSpan, ProduceResult
from client_core.producer.results.ticket import Phase, RecordFailure, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from client_core.producer.accumulator.buffer_pool import PoolWaiter
    from client_core.producer.results.batch_outcome import BatchOutcome
    from client_core.producer.results.producer_record import ProducerRecord
    from client_core.producer.results.results import Wait
    from client_core.producer.results.ticket import Done


_KEY_AND_PARTITION: Final = attrgetter("key", "partition")
_NEITHER: Final = {(None, None)}


class PartitionGroup(NamedTuple):
    """Records of a request for one partition; with None, keyless ones for the sticky partition."""

    partition: int | None
    indices: Sequence[int]


def group_by_partition(
    records: Sequence[ProducerRecord], indices: Iterable[int], partition_count: int, *, ignore_keys: bool
) -> list[PartitionGroup]:
    """Returns which records go to which partition (ACC-18). In this order, they keep their order.

    An explicit partition is used as it is, even if it does not exist (yet). Keys choose among all partitions,
    with or without a leader. Records with neither may go to any partition, also to that of a neighbour. So a
    new run of groups begins between records with and without a partition: a group has the records of its
    partition within its run only.
    """
    if isinstance(indices, range) and set(map(_KEY_AND_PARTITION, records)) == _NEITHER:
        return [PartitionGroup(None, indices)]  # the usual case: no keys and no partitions, so no sorting
    groups: list[PartitionGroup] = []
    run: dict[int | None, list[int]] = {}
    for index in indices:
        record = records[index]
        partition = record.partition
        if partition is None and record.key is not None and not ignore_keys:
            partition = partition_for_key(record.key, partition_count)
        if partition not in run:
            if run and (partition is None or None in run):
                groups += map(PartitionGroup._make, run.items())
                run = {}
            run[partition] = []
        run[partition].append(index)
    groups += map(PartitionGroup._make, run.items())
    return groups


class PendingRequest:
    """A submitted request. Fields without a lock belong to the request's present holder: see the module."""

    __slots__ = (
        "_count",
        "_done",
        "_finish",
        "_lock",
        "_remaining",
        "_settled",
        "_spans",
        "appended",
        "block_deadline_ms",
        "blocks_others",
        "came_in_callback",
        "deadline_ms",
        "has_waited",
        "in_chunks",
        "is_finished",
        "may_create",
        "missing_deadline_ms",
        "parked_ms",
        "records",
        "reserved_bytes",
        "submitted_ms",
        "todo",
        "topic",
        "ungrouped",
        "waiter",
        "waits",
        "was_given_up",
    )

    def __init__(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        done: Done,
        finish: Callable[[PendingRequest, Done, Done | None], None],
        *,
        submitted_ms: int,
        block_deadline_ms: int,
        deadline_ms: int,
        may_create: bool = True,
        missing_deadline_ms: int | None = None,
        settled: Done | None = None,
        appended: Done | None = None,
        in_chunks: bool = False,
    ) -> None:
        """`finish` gets `done` when the request ends, and `settled` when all records are accounted for: both
        at once, or one after the other.

        `appended` is posted when the request is no longer parked, for any reason.

        From `missing_deadline_ms` on it waits for no topic or partition that brokers report missing.

        `in_chunks`: the records are appended a chunk per turn, on the I/O thread.
        """
        self.topic: Final = topic
        #: A copy: the caller may change its list while the request waits. It may be dropped after the end for
        #: the caller: `_count` has their number.
        self.records: Final = tuple(records)
        self._count: Final = len(records)
        self.submitted_ms: Final = submitted_ms
        self.block_deadline_ms: Final = block_deadline_ms
        self.deadline_ms: Final = deadline_ms
        self.may_create: Final = may_create
        self.missing_deadline_ms: Final = missing_deadline_ms
        self.appended: Final = appended
        self.in_chunks: Final = in_chunks
        #: Groups to append; and records without a group yet, because metadata is missing.
        self.todo: deque[PartitionGroup] = deque()
        self.ungrouped: Sequence[int] = range(len(records))
        #: When it was parked, its entry in the pool's queue, and the memory granted.
        self.parked_ms = submitted_ms
        self.waiter: PoolWaiter | None = None
        #: How long it was parked, once it no longer is.
        self.waits: tuple[Wait, ...] = ()
        self.reserved_bytes = 0
        #: Whether it was parked for more than its next chunk.
        self.has_waited = not in_chunks
        #: Whether later requests for the topic must wait behind this one.
        self.blocks_others = False
        #: Whether it was submitted on the I/O thread. Set when it is parked.
        self.came_in_callback = False
        #: Whether its caller got an unknown outcome for records in flight, at the deadline.
        self.was_given_up = False
        self._done = done
        self._finish = finish
        self._lock = threading.Lock()
        self._remaining: int = len(records)
        #: Whether no caller is left to notify. Others read it without the lock.
        self.is_finished = False
        self._settled: Final = settled
        self._spans: list[BatchSpan | FailedSpan] = []

    def __repr__(self) -> str:
        return (
            f"<PendingRequest topic={self.topic} records={self._count} remaining={self._remaining} "
            f"parked={self.is_parked}>"
        )

    @property
    def is_parked(self) -> bool:
        """Returns whether some records are not appended."""
        return bool(self.todo or self.ungrouped)

    @property
    def waits_for_partition(self) -> int | None:
        """Returns the explicit, still unknown partition of the next group;

        None while the topic itself is unknown.
        """
        return self.todo[0].partition if self.todo else None

    def not_appended(self) -> list[int]:
        """Returns the records that are in no batch."""
        return sorted([*self.ungrouped, *(index for group in self.todo for index in group.indices)])

    def drop_not_appended(self) -> list[int]:
        """Removes the records that are in no batch, and returns those to report as failed.

        Empty for a cancelled request, which accounts for them itself.
        """
        indices = self.not_appended()
        self.todo.clear()
        self.ungrouped = ()
        if self.is_finished:
            error = KafkaError("The request was cancelled before this record was appended.")
            self.fail(indices, RecordFailure(error, Phase.METADATA, Written.NO, 0))
            return []
        return indices

    # -- the countdown: any thread ---------------------------------------------------------------------------

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        self._account_for(BatchSpan(indices, first_in_batch, outcome))

    def fail(self, indices: Sequence[int], failure: RecordFailure) -> None:
        """Notes why records are in no batch, and never will be."""
        if indices:
            self._account_for(FailedSpan(indices, failure))

    def _account_for(self, span: BatchSpan | FailedSpan) -> None:
        with self._lock:
            self._spans.append(span)
            self._remaining -= len(span.indices)
            if self._remaining > 0:
                return
            # Cancelled, or given up at its deadline? The batch was delivered nevertheless.
            ends, self.is_finished = not self.is_finished, True
        self._report(ends=ends, settles=True)

    def _report(self, *, ends: bool, settles: bool) -> None:
        settled = self._settled if settles else None
        if ends:
            self._finish(self, self._done, settled)
        elif settled is not None:
            self._finish(self, settled, None)

    def give_up(self, error: KafkaError, cancelled: Sequence[int], waited_ms: int) -> int:
        """Ends the request at its deadline: all records without an outcome have failed.

        `cancelled` are records that were removed before they were sent. The others may be in flight, and
        `settled` waits for those. Returns the number of records that are now reported as failed.
        """
        with self._lock:
            known: set[int] = set()
            for span in self._spans:
                known.update(span.indices)
            taken_back = [index for index in cancelled if index not in known]
            known.update(taken_back)
            ends = not self.is_finished
            under_way = [index for index in range(self._count) if ends and index not in known]
            for indices, written in ((taken_back, Written.NO), (under_way, Written.UNKNOWN)):
                if indices:
                    failure = RecordFailure(error, Phase.DELIVERY, written, waited_ms)
                    self._spans.append(FailedSpan(indices, failure))
            self._remaining -= len(taken_back)
            # `ends` with nothing left: the result was lost (not_posted), and `settled` with it.
            settles = self._remaining == 0 and (ends or bool(taken_back))
            self.was_given_up = self.was_given_up or ends
            self.is_finished = True
        self._report(ends=ends, settles=settles)
        return len(taken_back) + len(under_way) if ends else 0

    def not_posted(self, done: Done) -> None:
        """Notes that the result for `done` was lost by an error. The request's deadline ends it again."""
        with self._lock:
            if done is self._done:
                self.is_finished = False

    def forget(self) -> bool:
        """Ends the request without notifying its caller; returns whether it was still running."""
        with self._lock:
            was_running, self.is_finished = not self.is_finished, True
        return was_running

    def result(self, now_ms: int) -> ProduceResult:
        """Returns the result of a request that has ended.

        Records that were in flight at its deadline get their final outcome when it is settled: the last
        result counts.
        """
        return ProduceResult(self._count, tuple(self._spans), now_ms - self.submitted_ms, self.waits)


class ProduceTicket:
    """The handle of a submitted request. Any thread. In the child of a fork it does nothing."""

    __slots__ = ("_cancel", "_made_at", "_request")

    def __init__(self, request: PendingRequest, cancel: Callable[[PendingRequest], None]) -> None:
        self._request = request
        self._cancel = cancel
        self._made_at = forks.count

    @property
    def is_parked(self) -> bool:
        """Whether some of its records wait for metadata or memory. A plain read."""
        return self._request.is_parked

    def cancel(self) -> None:
        """See Ticket."""
        if self._made_at == forks.count:
            self._cancel(self._request)
