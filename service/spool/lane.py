"""The records of one topic on their way: one request at a time, so that none overtakes another.

    skipped (on the disk only)  ──read──▶  waiting  ──take──▶  in flight  ──▶  done, or back at the front

A topic that stands still keeps no more than LANE_BYTES of its records in memory: what comes behind is passed
over, and read again from the disk once there is room. So the other topics go on.

A request that brokers refuse may have one record that is at fault. It is halved until that record is alone,
and doubled again with each request that is delivered. Nothing behind the record is sent before it is
delivered or set aside. Delivery's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from service.spool.patience import Patience
from service.spool.reader import SpoolReader, Stored

#: What one topic may have in memory.
LANE_BYTES: Final = 1024 * 1024
#: What a record takes besides its bytes: as an object here and in the producer, and its part of a lane.
RECORD_BYTES: Final = 1024
#: What one request takes.
CHUNK_BYTES: Final = 128 * 1024
CHUNK_RECORDS: Final = 500


class Lane:
    """One topic's records. "" is the lane of those that nobody can read."""

    __slots__ = (
        "attempts",
        "in_flight",
        "most_records",
        "patience",
        "reader",
        "resumes_ms",
        "skipped",
        "skipped_from",
        "topic",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, topic: str) -> None:
        self.topic: Final = topic
        self.waiting: deque[Stored] = deque()
        self.waiting_bytes = 0
        self.in_flight: Sequence[Stored] = ()
        #: From which number on its records are on the disk only, how many there are, and who reads them.
        self.skipped_from: int | None = None
        self.skipped = 0
        self.reader: SpoolReader | None = None
        #: When it is to be tried again.
        self.resumes_ms = 0
        #: How often records failed that are still to be delivered, by number.
        self.attempts: dict[int, int] = {}
        #: How many records its next request may have.
        self.most_records = CHUNK_RECORDS
        self.patience: Final = Patience()

    @property
    def first_undone(self) -> int | None:
        """The number from which on it has something left to do; None where it has nothing."""
        first = self.oldest
        return self.skipped_from if first is None else first.sequence

    @property
    def oldest(self) -> Stored | None:
        """The first record that it has in memory."""
        if self.in_flight:
            return self.in_flight[0]
        return self.waiting[0] if self.waiting else None

    @property
    def undone(self) -> int:
        """How many records it has, on the disk too."""
        return len(self.waiting) + len(self.in_flight) + self.skipped

    def bring(self, stored: Stored) -> bool:
        """Takes the next record into memory, or passes it over; whether it took it."""
        if self.skipped_from is None and self.waiting_bytes < LANE_BYTES:
            self.add(stored)
            return True
        if self.skipped_from is None:
            self.skipped_from = stored.sequence
        self.skipped += 1
        return False

    def add(self, stored: Stored) -> None:
        """Takes a record in behind the others."""
        self.waiting.append(stored)
        self.waiting_bytes += memory_bytes_of((stored,))

    def take(self, most_bytes: int) -> Sequence[Stored]:
        """The records of the next request, which are in flight now. Some must wait, and none be in flight."""
        chunk: list[Stored] = []
        chunk_bytes = 0
        while self.waiting and len(chunk) < self.most_records:
            chunk_bytes += len(self.waiting[0].payload)
            if chunk and chunk_bytes > most_bytes:
                break  # a large record goes by itself, so that its size is nobody else's
            chunk.append(self.waiting.popleft())
        self.waiting_bytes -= memory_bytes_of(chunk)
        self.in_flight = chunk
        return chunk

    def landed(self, back: Sequence[Stored], *, halve: bool) -> None:
        """The request is over, and these records are to be tried again; `halve`: in smaller requests."""
        if halve:
            self.most_records = max(len(self.in_flight) // 2, 1)
        elif not back:
            self.most_records = min(2 * self.most_records, CHUNK_RECORDS)
        for stored in self.in_flight:
            self.attempts.pop(stored.sequence, None)
        self.in_flight = ()
        self.waiting.extendleft(reversed(back))
        self.waiting_bytes += memory_bytes_of(back)


def memory_bytes_of(stored: Sequence[Stored]) -> int:
    """What records take of memory, about."""
    return sum(len(one.payload) + RECORD_BYTES for one in stored)
