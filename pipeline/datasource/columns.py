"""The columns of a write, as Spark's own Kafka sink has them, and how a batch of them becomes JSON.

    value       string or binary, must be there; null is a tombstone
    key         string or binary
    topic       string; not needed where the option topic names one, which goes before the column
    partition   int
    timestamp   timestamp
    headers     array<struct<key:string,value:binary>>

Strings go as text, binaries as base64, so that any bytes arrive as they are. Names count without case, as in
Spark; a column that is none of these is refused, for it would be lost. Pure.
"""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from pipeline.datasource.errors import DeliveryFailedError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

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
    """One row: where it goes, and its JSON. `topic` is None where its column is null."""

    topic: str | None
    json: bytes


class Columns(NamedTuple):
    """The columns of a write by place, -1 for one that is not there, and the formats they go in."""

    value: int
    key: int
    topic: int
    partition: int
    timestamp: int
    headers: int
    value_format: str
    key_format: str


def columns_of(schema: StructType, topic: str | None) -> Columns:
    """Raises InvalidOptionError where rows of this schema can't be records."""
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
        raise InvalidOptionError("where to? Give the option topic, or the rows a column topic")
    at = {name: places.get(name, -1) for name in _TYPES}
    return Columns(**at, value_format=_format(kinds["value"]), key_format=_format(kinds.get("key", "string")))


def records_of(
    columns: Columns, topic: str | None, batch: pa.RecordBatch, first_row: int
) -> Iterator[Record]:
    """The rows of a batch as JSON, in order. `first_row` counts the rows of the task before it.

    Raises DeliveryFailedError where a string is no UTF-8.
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
        column = column.cast(pa.int64())  # microseconds, without a datetime for each
    try:
        plain: Sequence[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        raise DeliveryFailedError(
            f"column {name}, among rows {first_row} to {first_row + batch.num_rows - 1} of the task: a "
            f"string is no UTF-8 ({error.reason}); cast the column to binary, and its bytes go as they are"
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
