"""Writes records to the spool: many requests share one fsync, and are answered after it.

    submit (event loop)  ──queue──▶  turn (thread pilotfish-spool-writer): number, write, fsync, report

Requests that are queued when an fsync ends form the next group. A group that cannot be written or fsynced is
refused as a whole: none of it is delivered. After a failed fsync the system may have dropped the pages, and
reports this only once. So the file is never trusted after its last good byte: it is cut there, and a new file
begins. The new file's name makes readers ignore anything after that byte in the old one (segments.py).

`submit` and `close`: any thread. `turn`: the writer's thread, or the CLI's.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from client_core import Clock, ProducerRecord
from service.base.disk import DISK_IS_FULL
from service.base.fast_metrics import SECONDS, Histogram
from service.spool.entry import FRAME_BYTES, frame_of, most_bytes_of, payload_of
from service.spool.segments import Segment, Segments

_log: Final = logging.getLogger(__name__)

#: The most bytes of one group. A larger queue is split, so that its first requests do not wait for all.
_GROUP_BYTES: Final = 4 * 1024 * 1024
#: The most bytes that wait in memory for a slow disk; their callers may have got a 504 in the meantime.
QUEUE_BYTES: Final = 32 * 1024 * 1024
#: How long a disk counts as failing after its last failure. A full disk takes small records in between.
FAILING_FOR_MS: Final = 30_000


class Spooled(NamedTuple):
    """The records of a request are on the disk, with these sequence numbers."""

    first_sequence: int
    records: int


class SpoolFault(NamedTuple):
    """The records of a request are not in the spool.

    `written` is "unknown" in two cases: no new file could be created, so the next process may find some of
    the records; or an unexpected exception was raised.
    """

    detail: str
    written: Literal["no", "unknown"]


Completion = Callable[[Spooled | SpoolFault], None]


class SpoolFullError(Exception):
    """The records would exceed the limit of the folder, or of the queue for the disk."""


class TooLargeForSpoolError(Exception):
    """The records would not even fit in an empty spool."""


class SpoolClosedError(Exception):
    """The spool accepts no more records."""


class _Waiting(NamedTuple):
    records: Sequence[ProducerRecord]
    most_bytes: int
    on_done: Completion


class _Failing(NamedTuple):
    """Failures of the disk, and whether it took records after the last one."""

    first_ms: int
    last_ms: int
    took_since: bool


class _Open:
    """The file that is written to. `end` is the offset after its last good byte."""

    __slots__ = ("descriptor", "end", "segment")

    def __init__(self, segment: Segment, descriptor: int) -> None:
        self.segment = segment
        self.descriptor = descriptor
        self.end = 0


class SpoolWriter:
    """Writes all records, on one thread. `call` runs a function on the event loop of the requests."""

    def __init__(
        self,
        segments: Segments,
        clock: Clock,
        *,
        max_bytes: int,
        segment_bytes: int,
        call: Callable[[Callable[[], None]], None],
        committed: Callable[[], None],
        dead_letter_bytes: Callable[[], int],
        keep_folder: Callable[[], None],
    ) -> None:
        """`max_bytes` limits the whole folder, with dead letters. `segment_bytes` is the approximate size of
        a file.

        `committed` is called on the writer's thread when there are more records to deliver. `keep_folder`
        raises OSError if the folder is not this process's any more.
        """
        self._segments = segments
        self._disk = segments.disk
        self._clock = clock
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._call = call
        self._report_committed = committed
        self._dead_letter_bytes = dead_letter_bytes
        self._keep_folder = keep_folder
        self._condition = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._closed = False
        self._open: _Open | None = None
        self._fault: str | None = None
        #: Every entry below it is on the disk. Written by one thread, read by any.
        self.committed_sequence = segments.next_sequence
        self.spooled = 0
        self.fsync_seconds: Final = Histogram(SECONDS)
        # Replaced as a whole: a scrape reads it on another thread.
        self._failing: _Failing | None = None
        self._thread = threading.Thread(target=self._run, name="pilotfish-spool-writer", daemon=True)

    @property
    def held_bytes(self) -> int:
        """The bytes that count against the limit, without the queue."""
        return self._segments.total_bytes + self._dead_letter_bytes()

    @property
    def failing_ms(self) -> int:
        """For how long the disk has refused records. Any thread.

        0 once FAILING_FOR_MS have passed since the last refusal and records were written in that time.
        """
        failing, now_ms = self._failing, self._clock.now_ms()
        if failing is None or (failing.took_since and now_ms - failing.last_ms >= FAILING_FOR_MS):
            return 0
        return now_ms - failing.first_ms

    def start(self) -> None:
        """Starts the thread. Called once."""
        self._thread.start()

    def submit(self, records: Sequence[ProducerRecord], on_done: Completion) -> None:
        """Queues records; calls `on_done` when they are on the disk, or will not be.

        Raises TooLargeForSpoolError, SpoolFullError or SpoolClosedError: nothing was accepted.
        """
        self._queue_up(records, on_done, self._max_bytes)

    def put_back(self, records: Sequence[ProducerRecord], on_done: Completion) -> None:
        """Queues records that are already in the folder, so `max_bytes` does not apply."""
        self._queue_up(records, on_done, None)

    def _queue_up(
        self, records: Sequence[ProducerRecord], on_done: Completion, max_bytes: int | None
    ) -> None:
        most_bytes = sum(map(most_bytes_of, records))
        held_bytes = self.held_bytes
        with self._condition:
            if self._closed:
                raise SpoolClosedError("the spool is closed")
            if max_bytes is not None and most_bytes > max_bytes:
                raise TooLargeForSpoolError(
                    f"the records may take {most_bytes} bytes, more than spool_max_bytes ({max_bytes})"
                )
            if max_bytes is not None and held_bytes + self._queued_bytes + most_bytes > max_bytes:
                raise SpoolFullError(
                    f"the spool is full: it holds {held_bytes + self._queued_bytes} bytes, {most_bytes} "
                    f"more would exceed spool_max_bytes ({max_bytes})"
                )
            if self._queued_bytes and self._queued_bytes + most_bytes > QUEUE_BYTES:
                raise SpoolFullError(
                    f"the disk of the spool is behind: {self._queued_bytes} bytes wait to be written"
                )
            self._queue.append(_Waiting(records, most_bytes, on_done))
            self._queued_bytes += most_bytes
            self._condition.notify()

    def close(self, timeout_ms: int) -> bool:
        """Accepts nothing more and writes the queue; returns whether that was done in time."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    # -- the writer's thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._has_work():
            try:
                self.turn()
            except Exception:  # noqa: BLE001
                # The group has got its answers; an exception must not end the thread that others wait for.
                _log.exception("spool: a write failed with an unexpected exception")
        if self._open is not None:
            self._disk.close(self._open.descriptor)
            self._open = None

    def _has_work(self) -> bool:
        """Waits for requests; returns False once the spool is closed and all are written."""
        with self._condition:
            while not self._queue and not self._closed:
                self._condition.wait()
            return bool(self._queue)

    def turn(self) -> None:
        """Writes the next group, if one waits, and reports the outcomes."""
        group = self._take_group()
        if not group:
            return
        outcomes: Sequence[Spooled | SpoolFault] = [
            SpoolFault("an unexpected exception; the log has the stack", "unknown")
        ] * len(group)
        try:
            outcomes = self._commit(group)
        finally:
            with self._condition:
                self._queued_bytes -= sum(waiting.most_bytes for waiting in group)
            self._call(lambda: _report(group, outcomes))

    def _take_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        group_bytes = 0
        with self._condition:
            while self._queue and (not group or group_bytes + self._queue[0].most_bytes <= _GROUP_BYTES):
                waiting = self._queue.popleft()
                group_bytes += waiting.most_bytes
                group.append(waiting)
        return group

    def _commit(self, group: Sequence[_Waiting]) -> Sequence[Spooled | SpoolFault]:
        wall_ms = self._clock.wall_ms()
        sequence = self.committed_sequence
        payloads: list[bytes] = []
        outcomes: list[Spooled | SpoolFault] = []
        for records, _, _ in group:
            outcomes.append(Spooled(sequence, len(records)))
            payloads += [payload_of(record, wall_ms) for record in records]
            sequence += len(records)
        fault = self._append(payloads)
        if fault is not None:
            return [fault] * len(group)
        self.spooled += sequence - self.committed_sequence
        self.committed_sequence = sequence
        self._report_committed()
        return outcomes

    def _append(self, payloads: Sequence[bytes]) -> SpoolFault | None:
        """Writes entries to the disk with the next sequence numbers; returns None, or why it failed."""
        try:
            opened = self._room_for(sum(map(len, payloads)) + FRAME_BYTES * len(payloads))
        except OSError as e:
            return self._refused("begin a file", e, "no")
        salt = opened.segment.salt
        numbered = enumerate(payloads, self.committed_sequence)
        data = b"".join([frame_of(salt, sequence, payload) for sequence, payload in numbered])
        try:
            self._disk.write_all(opened.descriptor, data)
        except OSError as e:
            return self._refused("write", e, self._take_back(opened))
        try:
            self._fsync(opened.descriptor)
        except OSError as e:
            return self._refused("fsync", e, self._leave(opened))
        opened.end += len(data)
        self._segments.has_size(opened.segment, opened.end)
        if self._failing is not None:
            self._failing = self._failing._replace(took_since=True)
        if self._fault is not None:
            self._fault = None
            _log.info("spool: %s can be written to again", self._segments.folder)
        return None

    def _room_for(self, data_bytes: int) -> _Open:
        """Returns the file for so many bytes: the present one, or a new one."""
        self._keep_folder()
        opened = self._open
        if opened is not None and (
            (opened.end and opened.end + data_bytes > self._segment_bytes)
            # What is written to a deleted file is lost.
            or not self._disk.is_at(opened.descriptor, self._segments.path_of(opened.segment))
        ):
            self._disk.close(opened.descriptor)
            opened = self._open = None
        if opened is None:
            opened = self._open = _Open(*self._segments.begin(self.committed_sequence))
        return opened

    def _fsync(self, descriptor: int) -> None:
        started_ms = self._clock.now_ms()
        self._disk.fsync(descriptor)
        self.fsync_seconds.observe((self._clock.now_ms() - started_ms) / 1000)

    # -- disk faults -----------------------------------------------------------------------------------------

    def _take_back(self, opened: _Open) -> Literal["no", "unknown"]:
        """Cuts off what a failed write left, and fsyncs the file; if that fails, ends the file (`_leave`)."""
        try:
            self._disk.truncate(opened.descriptor, opened.end)
            self._disk.fsync(opened.descriptor)
        except OSError:
            return self._leave(opened)
        return "no"

    def _leave(self, opened: _Open) -> Literal["no", "unknown"]:
        """Ends a file at its last good byte, and begins another: later bytes of the old file are ignored."""
        self._open = None
        try:
            self._disk.truncate(opened.descriptor, opened.end)
        except OSError as e:
            _log.warning("spool: %s can't be truncated: %s", opened.segment, e.strerror or e)
        self._disk.close(opened.descriptor)
        try:
            self._open = _Open(*self._segments.begin(self.committed_sequence))
            if not opened.end:
                # Otherwise a disk that keeps failing would fill with empty files.
                self._segments.delete(opened.segment)
        except OSError:
            return "no" if self._open is not None else "unknown"
        return "no"

    def _refused(self, doing: str, error: OSError, written: Literal["no", "unknown"]) -> SpoolFault:
        now_ms = self._clock.now_ms()
        self._failing = _Failing(now_ms - self.failing_ms, now_ms, took_since=False)
        said = error.strerror or str(error)
        if said != self._fault:
            self._fault = said
            _log.error(
                "spool: can't %s in %s: %s; these requests get a 503", doing, self._segments.folder, said
            )
        reason = "the disk is full" if error.errno in DISK_IS_FULL else f"{doing}: {said}"
        return SpoolFault(f"the spool could not store the records: {reason}", written)


def _report(group: Sequence[_Waiting], outcomes: Sequence[Spooled | SpoolFault]) -> None:
    for waiting, outcome in zip(group, outcomes, strict=True):
        try:
            waiting.on_done(outcome)
        except Exception:  # noqa: BLE001
            # An exception in one callback must not cost the others their answers.
            _log.exception("spool: a request's callback failed")
