"""The client's status and the report of `close()`, as values for any thread."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from client_core.errors import Cause


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One connection.

    `state`: disconnected, connecting, checking_api_versions, ready, authentication_failed.
    """

    id: int
    host: str
    port: int
    state: str
    in_flight_requests: int
    oldest_in_flight_age_ms: int | None
    backoff_left_ms: int
    throttle_left_ms: int
    last_error: str | None
    last_error_age_ms: int | None
    #: Why there is no connection. None while a connection works or is first set up, or if it was closed as
    #: idle.
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class MetadataStatus:
    """How fresh the cache is. Ages are None before the first success."""

    update_version: int
    request_version: int
    age_ms: int | None
    max_age_ms: int
    refresh_in_progress: bool
    topics: int
    partitions: int
    last_error: str | None
    last_error_age_ms: int | None


@dataclass(frozen=True, slots=True)
class BufferStatus:
    """buffer.memory and the records that wait in it."""

    total_bytes: int
    available_bytes: int
    waiters: int
    batches: int
    records: int
    oldest_batch_age_ms: int | None


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """The whole client. `state`: starting, running, closing, closed, failed."""

    state: str
    loop_turns: int
    loop_age_ms: int
    waiting_for_metadata: int
    waiting_for_buffer: int
    in_flight_batches: int
    producer_id: int | None
    #: Time since any broker last answered; None before the first answer.
    last_answer_age_ms: int | None
    metadata: MetadataStatus
    buffer: BufferStatus
    nodes: tuple[NodeStatus, ...]
    #: Why no broker answers, if none does: the last failure of a connection, else the oldest request, else
    #: the oldest attempt to connect. Timeouts report the same cause.
    cause_of_silence: Cause | None = None

    @property
    def unanswered_ms(self) -> int:
        """How long requests have been in flight without any broker's answer; 0 if no request is in flight."""
        oldest_ms = max((node.oldest_in_flight_age_ms or 0 for node in self.nodes), default=0)
        return oldest_ms if self.last_answer_age_ms is None else min(oldest_ms, self.last_answer_age_ms)


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """Records of one partition that were accepted, had not failed before close(), and were not
    acknowledged.
    """

    topic: str
    partition: int | None  # None: in no batch yet; they waited for metadata or memory
    records: int


@dataclass(frozen=True, slots=True)
class CloseReport:
    """The outcome of the accepted records: those that failed, counted once each.

    A record is accepted when `send` returns its future or `submit` its ticket. It has failed when that
    future, or the ticket's `done`, reports so. Cancelled records are counted only if they were in flight.
    """

    unacknowledged: tuple[Unacknowledged, ...] = ()
    #: Records that failed before close() was called, since the producer's start.
    failed_earlier: int = 0

    @property
    def flushed(self) -> bool:
        """Whether no accepted record failed."""
        return not self.unacknowledged and not self.failed_earlier


class FailedRecords:
    """Counts the accepted records that failed: by partition from `begin_close` on. Any thread; one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._earlier = 0
        self._records: Counter[tuple[str, int | None]] | None = None
        #: Called with the topic and the number of records that have failed.
        self.notify: Callable[[str, int], None] = do_nothing

    def add(self, topic: str, partition: int | None, records: int) -> None:
        """Counts failures that were reported to callers. `partition` None: the records were in no batch."""
        if not records:
            return
        with self._lock:
            self._add(topic, partition, records)
        self.notify(topic, records)

    def _add(self, topic: str, partition: int | None, records: int) -> None:
        if self._records is None:
            self._earlier += records
        else:
            self._records[topic, partition] += records

    def add_if_open(self, topic: str) -> bool:
        """Counts a record that was not appended; False after `end`: it is too late for close's report."""
        with self._lock:
            is_counted = not self._is_over
            if is_counted:
                self._add(topic, None, 1)
        if is_counted:
            self.notify(topic, 1)
        return is_counted

    def end(self) -> None:
        """Makes `add_if_open` refuse: the report may be read now. Idempotent."""
        with self._lock:
            self._is_over = True

    def begin_close(self) -> None:
        """Counts failures as unacknowledged from now on. Idempotent."""
        with self._lock:
            if self._records is None:
                self._records = Counter()

    def report(self, still_open: Iterable[Unacknowledged] = ()) -> CloseReport:
        """Returns the failures so far, and the records that will fail."""
        with self._lock:
            records = Counter(self._records)
            earlier = self._earlier
        for left in still_open:
            records[left.topic, left.partition] += left.records
        return CloseReport(tuple(Unacknowledged(*where, count) for where, count in records.items()), earlier)


def do_nothing(topic: str, records: int) -> None:
    """The default of `notify`."""
