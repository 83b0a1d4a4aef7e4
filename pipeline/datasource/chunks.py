"""Rows into requests: a chunk is what goes to one topic in one POST, bounded by records and bytes. Pure.

The same rows in the same order become the same chunks with the same numbers, so a task that runs again asks
under the same keys:

    spark-<write id>-<task's partition>-<chunk>.<resend>-<first 16 hex digits of the body's SHA-256>

The write id is made once per job, or is the streaming query's id and batch number, which a restart from the
checkpoint repeats. The digest makes a request with other rows another one: where a retried task brings its
rows in another order they are written again, and nothing is refused for it or taken for what it is not.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.datasource.errors import DeliveryFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pipeline.datasource.columns import Record

#: How many chunks' bytes may lie half full, where rows of many topics are mixed, before all of them go.
_OPEN_CHUNKS: Final = 8


class Chunk(NamedTuple):
    """Records of one topic, and the row of the task that each was."""

    topic: str
    number: int
    rows: Sequence[int]
    records: Sequence[bytes]

    def body(self, key_format: str, value_format: str) -> bytes:
        formats = f'"key_format":"{key_format}","value_format":"{value_format}"'
        return b'{%s,"records":[%s]}' % (formats.encode(), b",".join(self.records))

    def only(self, indexes: Sequence[int]) -> Chunk:
        """The chunk with some of its records."""
        return self._replace(
            rows=[self.rows[index] for index in indexes], records=[self.records[index] for index in indexes]
        )

    def __repr__(self) -> str:
        return f"<Chunk {self.number} topic={self.topic} rows={self.rows[0]}..{self.rows[-1]}>"


def key_of(write_id: str, partition: int, chunk: int, resend: int, body: bytes) -> str:
    """The Idempotency-Key of a request."""
    return f"spark-{write_id}-{partition}-{chunk}.{resend}-{hashlib.sha256(body).hexdigest()[:16]}"


class _Open:
    """A chunk that is being filled."""

    __slots__ = ("bytes", "records", "rows")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.records: list[bytes] = []
        self.bytes = 0


def chunks_of(records: Iterable[Record], max_records: int, max_bytes: int) -> Iterator[Chunk]:
    """Chunks in the order in which they are full; the records of a topic stay in theirs.

    A record larger than `max_bytes` goes alone. Raises DeliveryFailedError for a row without a topic.
    """
    filling: dict[str, _Open] = {}
    open_bytes = 0
    number = 0

    def closed(topic: str) -> Chunk:
        nonlocal number, open_bytes
        full = filling.pop(topic)
        open_bytes -= full.bytes
        number += 1
        return Chunk(topic, number - 1, full.rows, full.records)

    for row, (topic, json) in enumerate(records):
        if not topic:
            raise DeliveryFailedError(
                f"row {row} of the task names no topic; fill its column, or give the option"
            )
        open_chunk = filling.get(topic)
        if open_chunk is not None and open_chunk.bytes + len(json) > max_bytes:
            yield closed(topic)
            open_chunk = None
        if open_chunk is None:
            open_chunk = filling[topic] = _Open()
        open_chunk.rows.append(row)
        open_chunk.records.append(json)
        open_chunk.bytes += len(json)
        open_bytes += len(json)
        if len(open_chunk.rows) >= max_records or open_chunk.bytes >= max_bytes:
            yield closed(topic)
        elif open_bytes >= _OPEN_CHUNKS * max_bytes:
            for name in list(filling):
                yield closed(name)
    for name in list(filling):
        yield closed(name)
