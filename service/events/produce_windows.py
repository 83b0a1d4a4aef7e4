"""Adds up batches' results in time windows, by topic, partition and broker.

The input is ProduceFinished, on the event log's thread. Histograms have fixed buckets, so that readers can
add up many windows. The rows of a window are bounded: batches beyond that are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from client_core import Errors, ProduceFinished
from service.events.event_v1 import WindowEvent, bucket_of, time_text

#: The most rows of one window: about 4 MB of lines. Further partitions are left out.
MOST_ROWS: Final = 10_000

_Key = tuple[str, int, int | None]


class _Row:
    """The sums of one partition on one broker."""

    __slots__ = ("batches", "bytes", "errors", "latency", "records", "retries")

    def __init__(self) -> None:
        self.records = self.batches = self.bytes = self.retries = 0
        self.errors: dict[str, int] = {}
        self.latency: dict[int, int] = {}


class ProduceWindow:
    """The open window. Event log's thread."""

    def __init__(self, started_ms: int) -> None:
        #: Milliseconds of the clock, not of the calendar.
        self.started_ms = started_ms
        #: Batches without a row, since the start.
        self.left_out = 0
        self._rows: dict[_Key, _Row] = {}

    def add(self, finished: Iterable[ProduceFinished]) -> None:
        """Adds batches that were acknowledged or have failed."""
        for event in finished:
            row = self._row((event.topic, event.partition, event.node_id))
            if row is None:
                self.left_out += 1
                continue
            row.batches += 1
            row.retries += event.retries
            if event.error is Errors.NONE:
                row.records += event.records
                row.bytes += event.batch_bytes
                bucket = bucket_of(event.produce_ms * 1000)
                row.latency[bucket] = row.latency.get(bucket, 0) + event.records
            else:
                name = event.error.name
                row.errors[name] = row.errors.get(name, 0) + event.records

    def _row(self, key: _Key) -> _Row | None:
        row = self._rows.get(key)
        if row is None and len(self._rows) < MOST_ROWS:
            row = self._rows[key] = _Row()
        return row

    def close(self, now_ms: int, wall_ms: int) -> list[WindowEvent]:
        """Ends the window now, and begins the next; returns the rows, [] if no batch finished.

        Its start is the present calendar time minus its length by the clock, so that its length is right.
        """
        started_at, ended_at = time_text(wall_ms - (now_ms - self.started_ms)), time_text(wall_ms)
        rows, self._rows = self._rows, {}
        self.started_ms = now_ms
        return [
            WindowEvent(
                observed_at=ended_at,
                started_at=started_at,
                topic=topic,
                partition=partition,
                broker=broker,
                records=row.records,
                batches=row.batches,
                bytes=row.bytes,
                retries=row.retries,
                errors=row.errors,
                latency_us={str(bucket): records for bucket, records in sorted(row.latency.items())},
            )
            for (topic, partition, broker), row in rows.items()
        ]
