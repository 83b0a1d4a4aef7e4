"""Each way to hand records to a sidecar over HTTP: how a request is written, and its answer read. Pure.

A record's value holds `#caller/number#`, by which the wire's trace knows it, and is stored byte for byte.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.chaos import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.chaos.answers import End
    from tests.chaos.history import Headers

_PADDING: Final = "." * 80
_JSON: Final = {"Content-Type": "application/json"}


class Record(NamedTuple):
    """What is asked for."""

    number: int
    key: str
    value: str
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    @classmethod
    def of(cls, caller: str, number: int, **more: Any) -> Record:
        """All records of a caller have one key."""
        return cls(number, caller, f"#{caller}/{number}#{_PADDING}", **more)


class Ask(NamedTuple):
    """A request, but for its deadline."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Dialect:
    """One way to produce. `stored_headers` are those of a record that the dialect itself makes."""

    ask: Callable[[str, Sequence[Record]], Ask]
    ends: Callable[[int, bytes, int], list[End]] = answers.ends_of_v1
    #: Takes `timeout_ms` and `max_block_ms` in its query.
    has_deadlines: bool = False
    has_headers: bool = False
    has_timestamps: bool = False
    has_more_headers: bool = False
    stored_headers: Callable[[Record], Headers] = field(default=lambda record: record.headers)


def _b64(value: str | bytes) -> str:
    return b64encode(value.encode() if isinstance(value, str) else value).decode()


def v1_record(record: Record) -> dict[str, object]:
    """A record as /v1 has it in a body, or in a line of a stream."""
    document: dict[str, object] = {"key": record.key, "value": record.value}
    if record.partition is not None:
        document["partition"] = record.partition
    if record.headers:
        document["headers"] = [{"key": name, "value": _b64(value or b"")} for name, value in record.headers]
    if record.timestamp_ms is not None:
        document["timestamp"] = record.timestamp_ms
    return document


def _v1(topic: str, records: Sequence[Record]) -> Ask:
    document = {"value_format": "text", "records": [v1_record(record) for record in records]}
    return Ask(f"/v1/topics/{topic}/records?", _JSON, json.dumps(document).encode())


def _spool(topic: str, records: Sequence[Record]) -> Ask:
    ask = _v1(topic, records)
    return ask._replace(path=f"{ask.path}delivery=spool")


def _octets(topic: str, records: Sequence[Record]) -> Ask:
    (record,) = records
    headers = {"Content-Type": "application/octet-stream", "Pilotfish-Key": record.key}
    if record.headers:
        pairs = (f"{_b64(name)}:{_b64(value or b'')}" for name, value in record.headers)
        headers["Pilotfish-Headers"] = ",".join(pairs)
    query = "" if record.timestamp_ms is None else f"timestamp={record.timestamp_ms}"
    return Ask(f"/v1/topics/{topic}/records?{query}", headers, record.value.encode())


def _v2(topic: str, records: Sequence[Record]) -> Ask:
    items = [{**v1_record(each), "key": _b64(each.key), "value": _b64(each.value)} for each in records]
    headers = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
    return Ask(f"/topics/{topic}", headers, json.dumps({"records": items}).encode())


def v3(cluster_id: str) -> Dialect:
    """REST Proxy v3 of a cluster."""

    def ask(topic: str, records: Sequence[Record]) -> Ask:
        lines = []
        for each in records:
            line: dict[str, object] = {
                "key": {"type": "STRING", "data": each.key},
                "value": {"type": "STRING", "data": each.value},
                "headers": [{"name": name, "value": _b64(value or b"")} for name, value in each.headers],
            }
            if each.timestamp_ms is not None:
                time = datetime.fromtimestamp(each.timestamp_ms // 1000, UTC)
                line["timestamp"] = f"{time:%Y-%m-%dT%H:%M:%S}.{each.timestamp_ms % 1000:03}Z"
            lines.append(json.dumps(line))
        return Ask(f"/v3/clusters/{cluster_id}/topics/{topic}/records", _JSON, "\n".join(lines).encode())

    return Dialect(ask, answers.ends_of_v3, has_headers=True, has_timestamps=True)


def _event(record: Record) -> dict[str, str]:
    return {
        "specversion": "1.0",
        "id": str(record.number),
        "source": "/chaos",
        "type": "tick",
        "partitionkey": record.key,
    }


def _cloudevent(topic: str, records: Sequence[Record]) -> Ask:
    (record,) = records
    headers = {f"ce-{name}": value for name, value in _event(record).items()}
    return Ask(f"/cloudevents/{topic}", {**headers, "Content-Type": "text/plain"}, record.value.encode())


def _headers_of_event(record: Record) -> Headers:
    attributes = ((f"ce_{name}", value.encode()) for name, value in _event(record).items())
    return (*attributes, ("content-type", b"text/plain"))


def _dapr(topic: str, records: Sequence[Record]) -> Ask:
    (record,) = records
    query = f"metadata.rawPayload=true&metadata.partitionKey={record.key}"
    headers = {"Content-Type": "text/plain"}
    return Ask(f"/v1.0/publish/pubsub/{topic}?{query}", headers, record.value.encode())


V1: Final = Dialect(_v1, has_deadlines=True, has_headers=True, has_timestamps=True)
SPOOL: Final = Dialect(_spool, has_deadlines=True, has_headers=True, has_timestamps=True)
OCTETS: Final = Dialect(_octets, has_deadlines=True, has_headers=True, has_timestamps=True)
V2: Final = Dialect(_v2, answers.ends_of_v2, has_headers=True, has_timestamps=True)
CLOUDEVENTS: Final = Dialect(_cloudevent, stored_headers=_headers_of_event, has_more_headers=True)
DAPR: Final = Dialect(_dapr, answers.ends_of_dapr, has_more_headers=True)
