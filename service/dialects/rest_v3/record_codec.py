"""Parses one REST Proxy v3 record: from JSON to a ProducerRecord and its report data.

    {"partition_id": 0, "headers": [{"name": "h", "value": "base64"}], "timestamp": "2021-02-05T19:14:42Z",
     "key": {"type": "BINARY", "data": "base64"}, "value": {"type": "JSON", "data": {…}}}

Every member may be absent or null. A key or value with absent or null data is null: no key, or a tombstone.
Data without a type would need a schema registry, which is not supported. Each fault is a BodyError with its
place: 400, 404 for a negative partition, 413 for too many headers, 415 for schema formats. Called by the
stream and the batch, on the event loop. Pure.

Timestamps: reads RFC 3339, writes the format of Java's Instant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from sys import intern
from typing import Final, NamedTuple

from msgspec import Raw

from client_core import Headers, ProducerRecord
from service.dialects.json_members import is_null, members_of, text_of, within
from service.dialects.rest_proxy import bytes_of_unpadded_base64, unquoted_number
from service.produce.records_codec import MAX_HEADERS, in_one_where_many
from service.wire.freshness import rfc3339
from service.wire.json_parts import items_of
from service.wire.payload import bytes_of_base64, bytes_of_json, bytes_of_text
from service.wire.strict_json import MAX_INT32, BodyError

_RECORD: Final = frozenset({"partition_id", "headers", "key", "value", "timestamp"})
#: Members whose size is not limited here.
PAYLOAD: Final = ("headers", "key", "value")
_HEADER: Final = frozenset({"name", "value"})
_SCHEMA: Final = ("subject", "subject_name_strategy", "schema_id", "schema_version", "schema")
_DATA: Final = frozenset({"type", "data", *_SCHEMA})

#: From the raw JSON of `data` to the record's bytes, by type.
_DECODERS: Final = {"BINARY": bytes_of_unpadded_base64, "JSON": bytes_of_json, "STRING": bytes_of_text}
_OF_STRINGS: Final = {"BINARY": "a string of base64", "STRING": "a string"}
_SCHEMA_TYPES: Final = frozenset({"AVRO", "JSONSCHEMA", "PROTOBUF"})
_NO_REGISTRY: Final = "a schema registry is not supported; use type BINARY, JSON or STRING"

#: Digits allowed in a partition; one more than the greatest has.
_MAX_DIGITS: Final = len(str(MAX_INT32)) + 1


#: RFC 3339 section 5.6; T and Z in either case, the offset in hours and minutes.
_FORM: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WHOLE_SECOND: Final = ".000Z"

#: The last time that RFC 3339 can express.
LAST_MS: Final = 253_402_300_799_999


def ms_of_rfc3339(text: str) -> int:
    """Returns `2021-02-05T19:14:42Z` as milliseconds since 1970; cuts off finer digits.

    Raises ValueError for another format, an invalid time, a time before 1970 (no record can have one), or a
    time that its offset moves beyond the year 9999.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError("must be an RFC 3339 time, such as 2021-02-05T19:14:42Z")
    *digits, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = map(int, digits)
    try:
        zone = _zone(sign, int(hours), int(minutes)) if sign else UTC
        at = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as e:
        raise ValueError(f"is not a valid time: {e}") from e
    at_ms = (at - _EPOCH) // _MILLISECOND + int(((fraction or "") + "000")[:3])
    if at_ms < 0:
        raise ValueError("is before 1970, when Kafka's timestamps begin")
    if at_ms > LAST_MS:
        raise ValueError("is after the year 9999")
    return at_ms


def text_of_ms(at_ms: int) -> str:
    """Milliseconds from 0 to LAST_MS as `2021-02-05T19:14:42Z`; with three decimals unless zero."""
    text = rfc3339(at_ms)
    return text.removesuffix(_WHOLE_SECOND) + "Z" if text.endswith(_WHOLE_SECOND) else text


def _zone(sign: str, hours: int, minutes: int) -> timezone:
    if minutes > 59:
        raise ValueError("the minutes of its offset must be 0 to 59")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if sign == "-" else offset)


class Posted(NamedTuple):
    """A record, and the types given for its key and value, or None."""

    record: ProducerRecord
    key_type: str | None
    value_type: str | None


def record_of(topic: str, members: Mapping[str, Raw]) -> Posted:
    """Returns the record from its members, each compact JSON. Raises BodyError."""
    _refuse_unknown(members, _RECORD, "")
    key_type, key = _payload(members, "key")
    value_type, value = _payload(members, "value")
    record = ProducerRecord(
        topic,
        value,
        key,
        _partition(members.get("partition_id")),
        _timestamp_ms(members.get("timestamp")),
        _headers(members.get("headers")),
    )
    return Posted(record, key_type, value_type)


# -- keys and values -----------------------------------------------------------------------------------------


def _payload(members: Mapping[str, Raw], name: str) -> tuple[str | None, bytes | None]:
    """Returns type and bytes of a key or value; None and None if it is absent."""
    raw = members.get(name)
    if raw is None or is_null(raw):
        return None, None
    said = members_of(bytes(raw), name, payload=("data",))
    _refuse_unknown(said, _DATA, name)
    kind = _type(said, name)
    data = said.get("data")
    if data is None or is_null(data):
        return kind, None
    if kind is None:
        raise BodyError(415, f"{name}.type", f"a {name} without type needs a schema; {_NO_REGISTRY}")
    text = bytes(data)
    if kind in _OF_STRINGS and not text.startswith(b'"'):
        raise BodyError(400, f"{name}.data", f"must be {_OF_STRINGS[kind]}, or null")
    try:
        return kind, _DECODERS[kind](text)
    except ValueError as e:
        raise BodyError(400, f"{name}.data", str(e)) from e


def _type(said: Mapping[str, Raw], name: str) -> str | None:
    """Returns BINARY, JSON, STRING, or None if absent. Raises BodyError for any use of schemas."""
    raw = said.get("type")
    kind = None
    if raw is not None and not is_null(raw):
        kind = text_of(raw)
        if kind in _SCHEMA_TYPES:
            raise BodyError(415, f"{name}.type", f"{kind} needs a schema; {_NO_REGISTRY}")
        if kind not in _DECODERS:
            raise BodyError(400, f"{name}.type", "must be BINARY, JSON or STRING")
        kind = intern(kind)  # each waiting record has it
    for member in _SCHEMA:
        found = said.get(member)
        if found is not None and not is_null(found):
            raise BodyError(415, f"{name}.{member}", _NO_REGISTRY)
    return kind


# -- the others ----------------------------------------------------------------------------------------------


def _partition(raw: Raw | None) -> int | None:
    if raw is None or is_null(raw):
        return None
    digits = unquoted_number(bytes(raw))
    negative = digits.startswith(b"-")
    digits = digits.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _MAX_DIGITS or int(digits) > MAX_INT32 + negative:
        raise BodyError(400, "partition_id", f"must be a whole number from 0 to {MAX_INT32}, or null")
    if negative and int(digits):
        raise BodyError(404, "partition_id", f"there is no partition -{int(digits)}")
    return int(digits)


def _timestamp_ms(raw: Raw | None) -> int | None:
    if raw is None or is_null(raw):
        return None
    text = text_of(raw)
    try:
        if text is None:
            raise ValueError("must be a string or null")
        return ms_of_rfc3339(text)
    except ValueError as e:
        raise BodyError(400, "timestamp", str(e)) from e


def _headers(raw: Raw | None) -> Headers:
    if raw is None or is_null(raw):
        return ()
    try:
        items = items_of(bytes(raw), MAX_HEADERS)
    except BodyError as e:
        raise BodyError(400, "headers", "must be an array of headers, or null") from e
    if len(items) > MAX_HEADERS:
        raise BodyError(413, "headers", f"more than {MAX_HEADERS} headers")
    each = (_header(bytes(item), f"headers[{index}]") for index, item in enumerate(items))
    return in_one_where_many(len(items), each)


def _header(text: bytes, place: str) -> tuple[str, bytes | None]:
    said = members_of(text, place, payload=("value",))
    _refuse_unknown(said, _HEADER, place)
    raw = said.get("name")
    name = None if raw is None else text_of(raw)
    if name is None:
        raise BodyError(400, f"{place}.name", "must have a name, which is a string")
    value = said.get("value")
    if value is None:
        return name, None
    try:
        return name, bytes_of_base64(bytes(value))
    except ValueError as e:
        raise BodyError(400, f"{place}.value", str(e)) from e


def _refuse_unknown(members: Mapping[str, Raw], known: frozenset[str], place: str) -> None:
    for name in members:
        if name not in known:
            raise BodyError(400, within(place, name), f"unknown member; known are {', '.join(sorted(known))}")
