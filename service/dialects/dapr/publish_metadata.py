"""Interprets `?metadata.…` of a publish, and the metadata of a bulk entry.

    rawPayload                     whether the body is sent unchanged, without an envelope
    partitionKey, __key            the record's key
    partitionNumber                the record's partition
    ttl, ttlInSeconds              when the envelope expires: seconds, or a Go duration (1h30m)
    cloudevent.id, .source, …      attributes of the envelope

All metadata, known or not, becomes headers of the record, as in Dapr's Kafka component. An unusable value
raises a ValueError that names it. Dapr ignores an unreadable ttl, so that the event never expires.

Pure; any thread. Sources: dapr/components-contrib metadata/utils.go, common/component/kafka/producer.go;
dapr/dapr pkg/runtime/pubsub/cloudevents.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from client_core import Headers
from service.produce.records_codec import in_one_where_many
from service.wire.strict_json import MAX_INT32

_PREFIX: Final = "metadata."
_CLOUD_EVENT: Final = "cloudevent."

#: Envelope attributes that metadata may set; other names with the prefix are only headers.
_OVERRIDES: Final = frozenset({"id", "source", "type", "subject", "traceid", "traceparent", "tracestate"})

#: Go's strconv.ParseBool.
BOOLEANS: Final = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)

#: Go's time.ParseDuration, except for a bare 0.
DURATION: Final = "([+-]?)((?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+"
_DURATION: Final = re.compile(DURATION)
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
#: The maximum of a Go duration, some 292 years.
_MAX_TTL_MS: Final = (2**63 - 1) // 10**6
_LONGEST_NUMBER: Final = 19


class PublishMetadata(NamedTuple):
    """The options of a publish."""

    raw: bool
    key: bytes | None
    partition: int | None
    ttl_ms: int | None
    overrides: Mapping[str, str]
    headers: Headers


def metadata_of_query(parameters: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the metadata by name, without the prefix. Raises ValueError for any other parameter."""
    metadata: dict[str, str] = {}
    for name, value in parameters:
        if not name.startswith(_PREFIX) or name == _PREFIX:
            raise ValueError(f"{name}: unknown parameter; metadata parameters begin with {_PREFIX}")
        metadata[name[len(_PREFIX) :]] = value
    return metadata


def understand(metadata: Mapping[str, str]) -> PublishMetadata:
    """Returns the options in the metadata. Raises ValueError that names an unusable one."""
    folded = {name.lower(): value for name, value in metadata.items()}
    _refuse_schemas(folded.get("valueschematype", ""))
    key = _key(metadata)
    ttl = folded.get("ttl", folded.get("ttlinseconds", ""))
    return PublishMetadata(
        raw=_raw(metadata.get("rawPayload", "")),
        key=None if key is None else key.encode(),
        partition=_partition(metadata.get("partitionNumber")),
        ttl_ms=_ttl_ms(ttl) if ttl else None,
        overrides={
            name: folded[_CLOUD_EVENT + name] for name in _OVERRIDES if folded.get(_CLOUD_EVENT + name)
        },
        headers=in_one_where_many(len(metadata), ((n, v.encode()) for n, v in metadata.items())),
    )


def _raw(written: str) -> bool:
    if written == "":
        return False
    if written not in BOOLEANS:
        raise ValueError(f"rawPayload value must be a valid boolean: actual is '{written}'")
    return BOOLEANS[written]


def _key(metadata: Mapping[str, str]) -> str | None:
    keys = {metadata[name] for name in ("partitionKey", "__key") if name in metadata}
    if len(keys) > 1:
        raise ValueError("partitionKey and __key differ; both are the record's key")
    return keys.pop() if keys else None


def _partition(written: str | None) -> int | None:
    if written is None:
        return None
    if written.isascii() and written.isdigit() and len(written) <= _LONGEST_NUMBER:
        partition = int(written)
        if partition <= MAX_INT32:
            return partition
    raise ValueError(f"partitionNumber must be a whole number from 0 to {MAX_INT32}: actual is '{written}'")


def _ttl_ms(written: str) -> int:
    """Parses positive whole seconds, or a duration; a negative duration has already expired."""
    if written.isascii() and written.isdigit() and len(written) <= _LONGEST_NUMBER and int(written) > 0:
        return min(int(written) * 1000, _MAX_TTL_MS)
    found = _DURATION.fullmatch(written) if len(written) <= 100 else None
    if found is None:
        raise ValueError(f"ttl must be seconds greater than zero, or a duration: actual is '{written}'")
    parts = _DURATION_PART.findall(written)
    total_ns = sum(float(number) * _NANOSECONDS[unit] for number, unit in parts)
    return 0 if found[1] == "-" else min(int(total_ns) // 10**6, _MAX_TTL_MS)


def _refuse_schemas(value_schema_type: str) -> None:
    if value_schema_type.lower() not in ("", "none"):
        raise ValueError(
            f"valueSchemaType {value_schema_type} needs a schema registry, which is not supported: "
            "encode the value yourself and send it with rawPayload=true"
        )
