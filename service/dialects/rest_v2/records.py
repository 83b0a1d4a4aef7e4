"""Parses REST Proxy v2's produce body, from JSON to ProducerRecords.

    {"records": [{"key": K, "value": V, "partition": 3,
                  "timestamp": 17, "headers": [{"key": "h", "value": "base64"}]}],     both as in Strimzi
     "key_schema": null, "key_schema_id": null, "value_schema": null, "value_schema_id": null}

The media type defines the format of K and V. Null or absent means no key, or a tombstone. A wrong shape is
400/40002. An unknown member, no records, or contradictory partitions are 422/422. A key or value of the wrong
type for its format is 42206, one that can't be serialized is 42207. A schema is 42205, because none can be
used here. Duplicate names are detected by comparing lengths, as in `service/produce/records_codec.py`. That
module also has the readers of single members. Event loop only; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from client_core import Headers, ProducerRecord
from service.dialects.rest_proxy import bytes_of_unpadded_base64, unquoted_number
from service.dialects.rest_v2.error_codes import BAD_REQUEST, INVALID_PAYLOAD, INVALID_SCHEMA, SERIALIZATION
from service.produce.record_list import RecordList
from service.produce.records_codec import MAX_TIMESTAMP_MS, record_headers, whole_number
from service.wire.errors import Problem, ProblemError
from service.wire.json_parts import LARGE_BYTES, BodyLimits
from service.wire.payload import DECODERS, Format, TooDeepError
from service.wire.strict_json import MAX_INT32, BodyError, compact, refuse_unfit


class _Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    partition: Raw | UnsetType = UNSET
    timestamp: Raw | UnsetType = UNSET
    headers: Raw | UnsetType = UNSET


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[_Record] | UnsetType | None = UNSET
    key_schema: Raw | UnsetType = UNSET
    key_schema_id: Raw | UnsetType = UNSET
    value_schema: Raw | UnsetType = UNSET
    value_schema_id: Raw | UnsetType = UNSET


class ProduceBody(NamedTuple):
    """A body's content. `greatest_partition` is None if no record names one."""

    records: list[ProducerRecord]
    greatest_partition: int | None


_BODY: Final = msgspec.json.Decoder(_Body | None)
_ITEMS: Final = msgspec.json.Decoder(list[_Record])

_SCHEMAS: Final = ("key_schema", "key_schema_id", "value_schema", "value_schema_id")
_NULL: Final = b"null"
#: From the raw JSON of a key or value to its bytes.
_DECODERS: Final = {**DECODERS, Format.BASE64: bytes_of_unpadded_base64}

# Bytes that a member adds to a compact object besides its value: its quoted name, a colon, and a comma. The
# first member has no comma, which makes up for one of the two braces; the other is added once.
_KEY: Final = len('"key":,')
_VALUE: Final = len('"value":,')
_PARTITION: Final = len('"partition":,')
_TIMESTAMP: Final = len('"timestamp":,')
_HEADERS: Final = len('"headers":,')
_RECORDS: Final = len('"records":[],')
_EMPTY_RECORD: Final = len("{}") - 1


def _status_of(message: str) -> int:
    return 422 if message.startswith("Object contains unknown field") else 400


_LIST: Final = RecordList({"async": "a query parameter"}, _status_of)


def parse_body(
    topic: str, body: bytes, form: Format, path_partition: int | None, limits: BodyLimits
) -> ProduceBody:
    """Returns a body's records, in order. Raises ProblemError with the code and place of the first fault."""
    if not body or body.isspace():
        raise _unprocessable("", "the body is empty; it must have records")
    try:
        if len(body) > LARGE_BYTES:
            return _parse_parts(topic, body, form, path_partition, limits)
        text = compact(body)
        _LIST.bound(text, limits.records)
        envelope = _decode(text)
        if envelope is None or not envelope.records:
            raise _unprocessable("records", "at least one record is needed")
        understood = _schemas(envelope)
        records, greatest, of_records = _records(topic, envelope.records, form, path_partition)
        understood += 1 + _RECORDS + of_records + len(records) - 1
        if understood != len(text):
            # The text is longer than its parsed parts: names are repeated, or merely written with escapes.
            refuse_unfit(body)
    except BodyError as e:
        raise _refused(e.status, BAD_REQUEST if e.status == 400 else e.status, e.place, e.message) from e
    return ProduceBody(records, greatest)


def _parse_parts(
    topic: str, body: bytes, form: Format, path_partition: int | None, limits: BodyLimits
) -> ProduceBody:
    """Does the same as `parse_body` for a large body, in parts, so that each parser call is short."""
    around, parts = _LIST.split(body, limits)
    envelope = _decode(around)
    if envelope is None or not parts:
        raise _unprocessable("records", "at least one record is needed")
    if 1 + _RECORDS + _schemas(envelope) != len(around):
        refuse_unfit(around)
    records: list[ProducerRecord] = []
    greatest = -1
    for part in parts:
        first = len(records)
        items = _LIST.decode_part(_ITEMS, part, first, limits)
        some, greatest_of_part, of_records = _records(topic, items, form, path_partition, first)
        if of_records + len(items) + 1 != len(part):
            _LIST.refuse_unfit_part(part, first)
        records += some
        greatest = max(greatest, -1 if greatest_of_part is None else greatest_of_part)
    return ProduceBody(records, None if greatest < 0 else greatest)


def _records(
    topic: str, items: Sequence[_Record], form: Format, path_partition: int | None, first: int = 0
) -> tuple[list[ProducerRecord], int | None, int]:
    """Returns the records, their greatest partition, and the number of parsed bytes."""
    decode = _DECODERS[form]
    records: list[ProducerRecord] = []
    greatest = -1 if path_partition is None else path_partition
    understood = 0
    for index, item in enumerate(items, first):
        key = value = timestamp = None
        partition = path_partition
        headers: Headers = ()
        members = 0
        if item.key is not UNSET:
            raw = bytes(item.key)
            members += _KEY + len(raw)
            key = _payload(decode, form, raw, index, "key")
        if item.value is not UNSET:
            raw = bytes(item.value)
            members += _VALUE + len(raw)
            value = _payload(decode, form, raw, index, "value")
        if item.partition is not UNSET:
            raw = bytes(item.partition)
            members += _PARTITION + len(raw)
            own = _number(unquoted_number(raw), MAX_INT32, index, "partition")
            if own is not None:
                partition = _one_of(own, path_partition, index)
                greatest = max(greatest, partition)
        if item.timestamp is not UNSET:
            raw = bytes(item.timestamp)
            members += _TIMESTAMP + len(raw)
            timestamp = _number(raw, MAX_TIMESTAMP_MS, index, "timestamp")
        if item.headers is not UNSET:
            headers, of_headers = record_headers(bytes(item.headers), f"records[{index}].headers")
            members += _HEADERS + of_headers
        understood += 1 + (members or _EMPTY_RECORD)
        records.append(ProducerRecord(topic, value, key, partition, timestamp, headers))
    return records, None if greatest < 0 else greatest, understood


def _payload(
    decode: Callable[[bytes], bytes | None], form: Format, raw: bytes, index: int, member: str
) -> bytes | None:
    """Returns the bytes of a key or value."""
    try:
        return decode(raw)
    except ValueError as e:
        place = f"records[{index}].{member}"
        if form is not Format.JSON and raw[:1] != b'"':
            name = "binary" if form is Format.BASE64 else "text"
            said = f"must be a string in the {name} format, or null"
            raise _refused(422, INVALID_PAYLOAD, place, said) from e
        if isinstance(e, TooDeepError):
            raise BodyError(400, place, str(e)) from e
        raise _refused(422, SERIALIZATION, place, str(e)) from e


def _number(raw: bytes, greatest: int, index: int, member: str) -> int | None:
    try:
        return whole_number(raw, greatest)
    except ValueError as e:
        raise BodyError(400, f"records[{index}].{member}", str(e)) from e


def _one_of(own: int, path_partition: int | None, index: int) -> int:
    """Returns the record's partition; raises ProblemError if the path has another."""
    if path_partition is not None and own != path_partition:
        said = f"the path names partition {path_partition}, the record {own}"
        raise _unprocessable(f"records[{index}].partition", said)
    return own


def _schemas(envelope: _Body) -> int:
    """Returns the parsed bytes of the schema members. Raises a 42205 for one that is not null."""
    understood = 0
    for name in _SCHEMAS:
        raw: Raw | UnsetType = getattr(envelope, name)
        if raw is UNSET:
            continue
        if bytes(raw) != _NULL:
            said = "must be null: a schema registry is not supported"
            raise _refused(422, INVALID_SCHEMA, name, said)
        understood += len(f'"{name}":,') + len(raw)
    return understood


def _decode(text: bytes) -> _Body | None:
    try:
        envelope: _Body | None = _BODY.decode(text)
    except msgspec.ValidationError as e:
        raise _LIST.fault(e) from e
    return envelope


def _unprocessable(place: str, detail: str) -> ProblemError:
    return _refused(422, 422, place, detail)


def _refused(status: int, error_code: int, place: str, detail: str) -> ProblemError:
    said = f"{place}: {detail}" if place else detail
    return ProblemError(Problem(status, said, place=place or None, written="no", dialect_code=error_code))
