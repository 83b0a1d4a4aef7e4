"""Groups rows into requests. A chunk is one POST to one topic, bounded by records and bytes. Pure.

The same rows in the same order give the same chunks with the same numbers, so a retried task sends the same
keys:

    spark-<write id>-<task's partition>-<chunk>.<resend>-<first 16 hex digits of the body's SHA-256>

The write id is made once per job, or is the streaming query's id and batch number, which are the same after a
restart from the checkpoint. Because of the digest, a request with other rows has another key. So if a
retried task has its rows in another order, it is not refused, but writes them again.

A write has the columns of Spark's own Kafka sink:

    value       string or binary, required; null is a tombstone
    key         string or binary
    topic       string; not needed with the option topic, which takes precedence over the column
    partition   int
    timestamp   timestamp
    headers     array<struct<key:string,value:binary>>

Strings are sent as text, binaries as base64, so any bytes arrive unchanged. Column names are compared without
case, as in Spark. Other columns are refused, because their data would be lost.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from pipeline.datasource.sidecar_http import DeliveryFailedError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType


#: Rows of mixed topics fill several chunks at once. When the open chunks have as many bytes as this number of
#: full chunks, all of them are sent.
_OPEN_CHUNKS: Final = 8


_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": (_HEADERS,),
}

_text: Final = json.JSONEncoder(ensure_ascii=False).encode


class Record(NamedTuple):
    """One row's topic and its JSON. `topic` is None if its column is null."""

    topic: str | None
    json: bytes


class Columns(NamedTuple):
    """The indexes of the columns, -1 for a missing one, and the formats of value and key."""

    value: int
    key: int
    topic: int
    partition: int
    timestamp: int
    headers: int
    value_format: str
    key_format: str


def columns_of(schema: StructType, topic: str | None) -> Columns:
    """Returns the columns. Raises InvalidOptionError if rows of this schema can't be records."""
    kinds: dict[str, str] = {}
    places: dict[str, int] = {}
    for place, column in enumerate(schema.fields):
        name, kind = column.name.lower(), column.dataType.simpleString()
        if name not in _TYPES:
            raise InvalidOptionError(
                f"column {column.name} is none of {', '.join(_TYPES)} and would be lost; drop it or rename it"
            )
        if kind not in _TYPES[name]:
            raise InvalidOptionError(
                f"column {column.name} is {kind}, and must be {' or '.join(_TYPES[name])}; cast it"
            )
        kinds[name], places[name] = kind, place
    if "value" not in places:
        raise InvalidOptionError(f"there is no column value; the columns are {', '.join(kinds) or 'none'}")
    if topic is None and "topic" not in places:
        raise InvalidOptionError("no topic is given; set the option topic, or add a column topic to the rows")
    at = {name: places.get(name, -1) for name in _TYPES}
    return Columns(**at, value_format=_format(kinds["value"]), key_format=_format(kinds.get("key", "string")))


def records_of(
    columns: Columns, topic: str | None, batch: pa.RecordBatch, first_row: int
) -> Iterator[Record]:
    """Yields the rows of a batch as JSON, in order. `first_row`: the number of earlier rows of the task.

    Raises DeliveryFailedError if a string is not valid UTF-8.
    """
    rows = batch.num_rows

    def listed(name: str, write: Callable[[Any], str], member: str) -> Iterable[str]:
        place: int = getattr(columns, name)
        if place < 0:
            return repeat("", rows)
        return [
            "" if one is None else f',"{member}":{write(one)}'
            for one in _plain(batch, place, name, first_row)
        ]

    values = [
        "null" if one is None else _payload(columns.value_format, one)
        for one in _plain(batch, columns.value, "value", first_row)
    ]
    keys = listed("key", lambda one: _payload(columns.key_format, one), "key")
    partitions = listed("partition", str, "partition")
    timestamps = listed("timestamp", lambda us: str(us // 1000), "timestamp")
    headers = listed("headers", _headers_json, "headers")
    topics: Iterable[str | None] = repeat(topic, rows)
    if topic is None:
        topics = _plain(batch, columns.topic, "topic", first_row)
    for name, value, *others in zip(topics, values, keys, partitions, timestamps, headers, strict=True):
        yield Record(name, f'{{"value":{value}{"".join(others)}}}'.encode())


def _plain(batch: pa.RecordBatch, place: int, name: str, first_row: int) -> Sequence[Any]:
    column = batch.column(place)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())  # microseconds: avoids a datetime object per value
    try:
        plain: Sequence[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        raise DeliveryFailedError(
            f"column {name}: a string in rows {first_row} to {first_row + batch.num_rows - 1} of the task is "
            f"not valid UTF-8 ({error.reason}); cast the column to binary, and its bytes are sent unchanged"
        ) from error
    return plain


def _payload(form: str, value: Any) -> str:
    return _text(value) if form == "text" else f'"{b64encode(value).decode("ascii")}"'


def _headers_json(headers: Sequence[dict[str, Any] | None]) -> str:
    return json.dumps(
        [
            {
                "key": header["key"],
                "value": None if header["value"] is None else b64encode(header["value"]).decode("ascii"),
            }
            for header in headers
            if header is not None
        ]
    )


def _format(kind: str) -> str:
    return "text" if kind == "string" else "base64"


class Chunk(NamedTuple):
    """Records of one topic, and the task's row number of each."""

    topic: str
    number: int
    rows: Sequence[int]
    records: Sequence[bytes]

    def body(self, key_format: str, value_format: str) -> bytes:
        formats = f'"key_format":"{key_format}","value_format":"{value_format}"'
        return b'{%s,"records":[%s]}' % (formats.encode(), b",".join(self.records))

    def only(self, indexes: Sequence[int]) -> Chunk:
        """Returns the chunk with only these records."""
        return self._replace(
            rows=[self.rows[index] for index in indexes], records=[self.records[index] for index in indexes]
        )

    def __repr__(self) -> str:
        return f"<Chunk {self.number} topic={self.topic} rows={self.rows[0]}..{self.rows[-1]}>"


def key_of(write_id: str, partition: int, chunk: int, resend: int, body: bytes) -> str:
    """Returns the Idempotency-Key of a request."""
    return f"spark-{write_id}-{partition}-{chunk}.{resend}-{hashlib.sha256(body).hexdigest()[:16]}"


class _Open:
    """A chunk that is being filled."""

    __slots__ = ("bytes", "records", "rows")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.records: list[bytes] = []
        self.bytes = 0


def chunks_of(records: Iterable[Record], max_records: int, max_bytes: int) -> Iterator[Chunk]:
    """Yields chunks in the order in which they are full; the records of a topic keep their order.

    A record larger than `max_bytes` is sent alone. Raises DeliveryFailedError for a row without a topic.
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

    for row, (topic, record) in enumerate(records):
        if not topic:
            raise DeliveryFailedError(
                f"row {row} of the task has no topic; fill the row's column topic, or set the option topic"
            )
        open_chunk = filling.get(topic)
        if open_chunk is not None and open_chunk.bytes + len(record) > max_bytes:
            yield closed(topic)
            open_chunk = None
        if open_chunk is None:
            open_chunk = filling[topic] = _Open()
        open_chunk.rows.append(row)
        open_chunk.records.append(record)
        open_chunk.bytes += len(record)
        open_bytes += len(record)
        if len(open_chunk.rows) >= max_records or open_chunk.bytes >= max_bytes:
            yield closed(topic)
        elif open_bytes >= _OPEN_CHUNKS * max_bytes:
            for name in list(filling):
                yield closed(name)
    for name in list(filling):
        yield closed(name)
