"""Parses a produce request's JSON to ProducerRecords, validated as a whole.

    {"records": [{"key": K, "value": V, "headers": [{"key": "h", "value": "base64"}], "partition": 3,
    "timestamp": 17}],
     "key_format": "text" | "json" | "base64", "value_format": "json" | "text" | "base64"}

One pass by msgspec over the compacted body; keys and values stay Raw slices of it. No value is silently
converted or dropped. A duplicate member is detected by length: the body is then longer than the parsed
members. Every fault is a BodyError with its place, such as `records[3].key`. `value` is required, since a
forgotten one would be a tombstone.

`LineCodec` parses the same records one by one, for a stream: a fault then concerns one of them. Dialects use
the parsers of single members. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from client_core import EncodedHeaders, Headers, ProducerRecord
from service.produce.many_topics import OWN_TOPICS
from service.produce.record_list import LEAST_BYTES, RecordList
from service.wire.json_parts import LARGE_BYTES, NO_LIMITS, BodyLimits, items_of
from service.wire.payload import DECODERS, Format, bytes_of_base64, bytes_of_text, status_of
from service.wire.strict_json import MAX_INT32, BodyError, Homes, compact, misfit, refuse_unfit

#: int64, as on the wire.
MAX_TIMESTAMP_MS: Final = 2**63 - 1

#: A record with at least this many headers keeps them encoded as on the wire, not as one object each.
_MANY_HEADERS: Final = 32

#: Headers of one record. Kafka limits only the record's size, which a million empty ones would not reach.
MAX_HEADERS: Final = 10_000


class _Header(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: Raw
    value: Raw


class _Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    value: Raw
    key: Raw | UnsetType = UNSET
    partition: Raw | UnsetType = UNSET
    timestamp: Raw | UnsetType = UNSET
    headers: Raw | UnsetType = UNSET


class _TopicRecord(_Record, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A record that names its topic."""

    topic: Raw


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[_Record]
    key_format: Raw | UnsetType = UNSET
    value_format: Raw | UnsetType = UNSET


class _TopicsBody(_Body, forbid_unknown_fields=True, gc=False):
    records: list[_TopicRecord]  # type: ignore[assignment]


class _Decoders(NamedTuple):
    """The decoders of one kind of body."""

    body: msgspec.json.Decoder[Any]
    items: msgspec.json.Decoder[Any]
    faults: RecordList

    @classmethod
    def of(cls, body: type[_Body], record: type[_Record], homes: Homes) -> _Decoders:
        return cls(msgspec.json.Decoder(body), msgspec.json.Decoder(list[record]), RecordList(homes))  # type: ignore[valid-type]


_TIMES: Final = ("max_block_ms", "timeout_ms", "delivery")
_FORMATS: Final = ("key_format", "value_format")
_OF_RECORD: Final = "a member of a record"
#: What a name is in a request with a JSON body.
HOMES: Final[Homes] = {
    **dict.fromkeys(_TIMES, "a query parameter"),
    **dict.fromkeys(_FORMATS, "a member of the body, beside records"),
    **dict.fromkeys(("key", "value", "partition", "timestamp", "headers"), _OF_RECORD),
    "idempotency_key": "the header Idempotency-Key",
    "topic": "in the path; POST /v1/records takes records with their own topics",
}
HOMES_OF_TOPICS: Final[Homes] = {**HOMES, "topic": _OF_RECORD}
_HOMES_OF_LINE: Final[Homes] = {**HOMES, **dict.fromkeys(_FORMATS, "a query parameter")}
_RECORD: Final = msgspec.json.Decoder(_Record)
_OF_TOPIC: Final = _Decoders.of(_Body, _Record, HOMES)
_OF_TOPICS: Final = _Decoders.of(_TopicsBody, _TopicRecord, HOMES_OF_TOPICS)
_HEADERS: Final = msgspec.json.Decoder(list[_Header])
_STRING: Final = msgspec.json.Decoder(str)

# What a member adds to the length of a compact object besides its value: quotes, name, colon, and a comma, or
# the opening brace for the first one. The closing brace is added once.
_VALUE: Final = len('{"value":')
_KEY: Final = len(',"key":')
_TOPIC: Final = len(',"topic":')
_PARTITION: Final = len(',"partition":')
_TIMESTAMP: Final = len(',"timestamp":')
_HEADERS_MEMBER: Final = len(',"headers":')
_HEADER: Final = len('{"key":,"value":}')
_RECORDS: Final = len('{"records":[]}')
_BRACKETS: Final = "[]"
_KEY_FORMAT: Final = len(',"key_format":')
_VALUE_FORMAT: Final = len(',"value_format":')

#: The usual spelling of formats.
_PLAIN_FORMATS: Final = {f'"{form.value}"'.encode(): form for form in Format}
_QUOTE: Final = ord('"')

#: Converts the raw JSON of a key or value to its bytes.
Decode = Callable[[bytes], bytes | None]

#: Makes a record of its six members without the Python call of `ProducerRecord(…)`.
_make_record: Final = partial(tuple.__new__, ProducerRecord)


def parse_records(topic: str, body: bytes, limits: BodyLimits = NO_LIMITS) -> list[ProducerRecord]:
    """Returns the records of a produce body, in order. Raises BodyError with the place of the first fault.

    With OWN_TOPICS in place of a topic, each record has a member `topic`, which is not checked here.
    """
    decoders = _OF_TOPICS if topic == OWN_TOPICS else _OF_TOPIC
    if len(body) > LARGE_BYTES:
        return _parse_parts(topic, body, limits, decoders)
    text = compact(body)
    if len(text) >= LEAST_BYTES * limits.records:
        decoders.faults.bound(text, limits.records)
    envelope = _envelope(text, decoders)
    items = envelope.records
    if not items:
        raise BodyError(422, "records", "at least one record is needed")
    decode_key, decode_value, of_formats = _formats(envelope)
    records, understood = _records(topic, items, decode_key, decode_value, text, _RECORDS + of_formats)
    if understood != len(text):
        # The body is longer than what was parsed: duplicate names, or just names with escapes.
        refuse_unfit(body)
    return records


def _parse_parts(topic: str, body: bytes, limits: BodyLimits, decoders: _Decoders) -> list[ProducerRecord]:
    """Parses a large body as `parse_records` does, but part by part, so that each parser call is short."""
    around, parts = decoders.faults.split(body, limits)
    envelope = _envelope(around, decoders)
    if not parts:
        raise BodyError(422, "records", "at least one record is needed")
    decode_key, decode_value, of_formats = _formats(envelope)
    if _RECORDS + of_formats != len(around):
        refuse_unfit(around)
    records: list[ProducerRecord] = []
    for part in parts:
        first = len(records)
        items = decoders.faults.decode_part(decoders.items, part, first, limits)
        some, understood = _records(topic, items, decode_key, decode_value, part, len(_BRACKETS), first)
        if understood != len(part):
            decoders.faults.refuse_unfit_part(part, first)
        records += some
    return records


def _envelope(text: bytes, decoders: _Decoders) -> _Body:
    try:
        envelope: _Body = decoders.body.decode(text)
        return envelope
    except msgspec.ValidationError as e:
        raise decoders.faults.fault(e) from e


def _formats(envelope: _Body) -> tuple[Decode, Decode, int]:
    """Returns the decoders of keys and values, and the length of the JSON that names them."""
    if envelope.key_format is UNSET and envelope.value_format is UNSET:
        return DECODERS[Format.TEXT], DECODERS[Format.JSON], 0
    of_formats = 0 if envelope.key_format is UNSET else _KEY_FORMAT + len(envelope.key_format)
    of_formats += 0 if envelope.value_format is UNSET else _VALUE_FORMAT + len(envelope.value_format)
    decode_key = DECODERS[_format(envelope.key_format, "key_format", Format.TEXT)]
    return decode_key, DECODERS[_format(envelope.value_format, "value_format", Format.JSON)], of_formats


class LineCodec:
    """Parses records that are one line each, all in the same formats."""

    def __init__(self, topic: str, key_format: Format, value_format: Format) -> None:
        self._topic = topic
        self._decode_key = DECODERS[key_format]
        self._decode_value = DECODERS[value_format]

    def parse(self, lines: Sequence[bytes], first: int) -> list[ProducerRecord | BodyError]:
        """Returns a record or its fault for each line, in order; the first one is `records[first]`."""
        try:
            # Usually all lines are valid, and it is cheaper to parse them together.
            return list(self._parse(lines, first))
        except BodyError:
            return [self._one(line, index) for index, line in enumerate(lines, first)]

    def _one(self, line: bytes, index: int) -> ProducerRecord | BodyError:
        try:
            return self._parse([line], index)[0]
        except BodyError as e:
            place = e.place
            if not place.startswith("records["):
                place = f"records[{index}].{place}" if place else f"records[{index}]"
            # A new error without a traceback, so that it keeps no stack frame in memory.
            return BodyError(e.status, place, e.message)

    def _parse(self, lines: Sequence[bytes], first: int) -> list[ProducerRecord]:
        texts = [compact(line) for line in lines]
        try:
            items = [_RECORD.decode(text) for text in texts]
        except msgspec.ValidationError as e:
            raise misfit(e, homes=_HOMES_OF_LINE) from e
        records, understood = _one_by_one(self._topic, items, self._decode_key, self._decode_value, first)
        if understood != sum(map(len, texts)):
            for line in lines:
                refuse_unfit(line)
        return records


def _records(
    topic: str,
    items: Sequence[_Record],
    decode_key: Decode,
    decode_value: Decode,
    text: bytes,
    around: int,
    first: int = 0,
) -> tuple[list[ProducerRecord], int]:
    """Returns the records, from `records[first]` on, and how many bytes of `text` were parsed.

    `around` is the number of bytes around the records and their commas.
    """
    if decode_value is bytes_of_text and topic != OWN_TOPICS:
        plain = _of_plain_texts(topic, items, text, around)
        if plain is not None:
            return plain, len(text)
    records, understood = _one_by_one(topic, items, decode_key, decode_value, first)
    return records, understood + len(items) - 1 + around


def _of_plain_texts(
    topic: str, items: Sequence[_Record], text: bytes, around: int
) -> list[ProducerRecord] | None:
    """Returns the records, parsed together, if each has only a string value without escapes; else None.

    The length shows that there are no other or duplicate members: the values leave no room for them.
    """
    if b"\\" in text:
        return None
    raws = [bytes(item.value) for item in items]
    if sum(map(len, raws)) + len(raws) * (_VALUE + 2) - 1 + around != len(text):
        return None
    if set(map(itemgetter(0), raws)) != {_QUOTE}:
        return None
    values = [raw[1:-1] for raw in raws]
    nothing = repeat(None)
    return list(map(_make_record, zip(repeat(topic), values, nothing, nothing, nothing, repeat(()))))


def _one_by_one(
    topic: str,
    items: Sequence[_Record],
    decode_key: Decode,
    decode_value: Decode,
    first: int,
) -> tuple[list[ProducerRecord], int]:
    """Returns the records, from `records[first]` on, and how many bytes of their JSON were parsed."""
    records: list[ProducerRecord] = []
    understood = 0
    index, member = 0, ""
    try:
        for index, item in enumerate(items, first):
            key = partition = timestamp = None
            headers: Headers = ()
            if isinstance(item, _TopicRecord):
                member = "topic"
                raw = bytes(item.topic)
                understood += _TOPIC + len(raw)
                topic = _name_of(raw)
            member = "value"
            raw = bytes(item.value)
            understood += _VALUE + len(raw) + 1
            value = decode_value(raw)
            if item.key is not UNSET:
                member = "key"
                raw = bytes(item.key)
                understood += _KEY + len(raw)
                key = decode_key(raw)
            if item.partition is not UNSET:
                member = "partition"
                raw = bytes(item.partition)
                understood += _PARTITION + len(raw)
                partition = whole_number(raw, MAX_INT32)
            if item.timestamp is not UNSET:
                member = "timestamp"
                raw = bytes(item.timestamp)
                understood += _TIMESTAMP + len(raw)
                timestamp = whole_number(raw, MAX_TIMESTAMP_MS)
            if item.headers is not UNSET:
                member = "headers"
                raw = bytes(item.headers)
                headers, of_headers = record_headers(raw, f"records[{index}].headers")
                understood += _HEADERS_MEMBER + of_headers
            records.append(ProducerRecord(topic, value, key, partition, timestamp, headers))
    except ValueError as e:
        raise BodyError(status_of(e), f"records[{index}].{member}", str(e)) from e
    return records, understood


def _name_of(raw: bytes) -> str:
    """Returns a topic's name from its JSON. Raises ValueError."""
    name = bytes_of_text(raw) if raw.startswith(b'"') else None
    if name is None:
        raise ValueError("must be a string")
    return name.decode()


def _format(raw: Raw | UnsetType, name: str, default: Format) -> Format:
    if raw is UNSET:
        return default
    form = _PLAIN_FORMATS.get(bytes(raw))
    if form is not None:
        return form
    try:
        return Format(_STRING.decode(raw))
    except ValueError as e:
        raise BodyError(422, name, "must be json, text or base64") from e


def whole_number(raw: bytes, greatest: int) -> int | None:
    """Parses a whole number from 0 to `greatest` in plain digits; None for null. Raises ValueError."""
    if raw == b"null":
        return None
    if raw.isdigit() and len(raw) <= len(str(greatest)) and (number := int(raw)) <= greatest:
        return number
    raise ValueError(f"must be a whole number from 0 to {greatest}, or null")


def record_headers(raw: bytes, place: str) -> tuple[Headers, int]:
    """Returns the headers (many as EncodedHeaders), and how many bytes were parsed. Raises BodyError."""
    if raw == b"null":
        return (), len(raw)
    may_be_many = raw.count(b"},{") >= MAX_HEADERS and raw.startswith(b"[")
    if may_be_many and len(items_of(raw, MAX_HEADERS)) > MAX_HEADERS:
        raise BodyError(413, place, f"more than {MAX_HEADERS} headers")
    try:
        items = _HEADERS.decode(raw)
    except msgspec.ValidationError as e:
        raise misfit(e, place) from e
    understood = 2 + max(len(items) - 1, 0) + len(items) * _HEADER
    understood += sum([len(item.key) + len(item.value) for item in items])
    return in_one_where_many(len(items), _each_header(items, place)), understood


def in_one_where_many(count: int, headers: Iterator[tuple[str, bytes | None]]) -> Headers:
    """Returns the headers as a tuple; if there are many, encoded, without an object for each."""
    return tuple(headers) if count < _MANY_HEADERS else EncodedHeaders(headers)


def _each_header(items: Sequence[_Header], place: str) -> Iterator[tuple[str, bytes | None]]:
    for index, item in enumerate(items):
        try:
            name = bytes_of_text(bytes(item.key))
        except ValueError as e:
            raise BodyError(422, f"{place}[{index}].key", str(e)) from e
        if name is None:
            raise BodyError(422, f"{place}[{index}].key", "a header needs a name")
        try:
            value = bytes_of_base64(bytes(item.value))
        except ValueError as e:
            raise BodyError(422, f"{place}[{index}].value", str(e)) from e
        yield name.decode(), value
