"""Structured and batch content mode: one event or an array, as JSON envelopes.

    {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": {"n": 1.10}}
        ─▶  key: partitionkey     content-type: application/cloudevents+json; charset=UTF-8
            value: the envelope without white space, its members, digits and escapes unchanged

All attributes are checked before the first record is appended; `data` is not inspected. A null attribute is
unset (JSON format 2.2). The Kafka binding has no batch mode, so each event of a batch becomes a structured
record.

Pure; any thread. Sources: CloudEvents 1.0.2 JSON format, Kafka protocol binding 3.3.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Raw

from client_core import ProducerRecord
from service.dialects.cloudevents.attributes import (
    PARTITION_KEY,
    check_name,
    check_value,
    is_text_only,
    missing_attribute,
)
from service.dialects.json_members import is_null, members_of, text_of, within
from service.wire.json_parts import NO_LIMITS, BodyLimits, items_of_body
from service.wire.payload import bytes_of_base64
from service.wire.strict_json import BodyError, compact

#: Marks the value as an envelope for consumers.
STRUCTURED_HEADER: Final = ("content-type", b"application/cloudevents+json; charset=UTF-8")

_DATA: Final = "data"
_DATA_BASE64: Final = "data_base64"
#: Members with the sender's own content, of any size.
PAYLOAD: Final = (_DATA, _DATA_BASE64)

_WHOLE_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,9})")
_INT32: Final = range(-(2**31), 2**31)


def record_of_envelope(topic: str, body: bytes, limits: BodyLimits = NO_LIMITS) -> ProducerRecord:
    """Returns the record of one JSON event. Raises BodyError: 400 naming the attribute, 413 if too long."""
    limits.check_text(body)
    return _record(topic, compact(body), "")


def records_of_batch(topic: str, body: bytes, limits: BodyLimits) -> list[ProducerRecord]:
    """Returns the records of a JSON array of events, in order; none for an empty one.

    Raises BodyError: 400 with the place, such as `[3].id`; 413 beyond the limits.
    """
    events = items_of_body(body, limits)
    if len(events) > limits.records:
        raise BodyError(413, "", f"more than {limits.records} events")
    return [_record(topic, bytes(event), f"[{index}]") for index, event in enumerate(events)]


def _record(topic: str, text: bytes, place: str) -> ProducerRecord:
    members = members_of(text, place, payload=PAYLOAD)
    attributes: dict[str, str] = {}
    for name, raw in members.items():
        if name in PAYLOAD:
            continue
        try:
            check_name(name)
            value = None if is_null(raw) else _text_of(name, raw)
            if value is not None:
                check_value(name, value)
                attributes[name] = value
        except ValueError as e:
            raise BodyError(400, within(place, name), str(e)) from e
    missing = missing_attribute(attributes)
    if missing is not None:
        raise BodyError(400, within(place, missing), "the attribute is missing; every CloudEvent needs it")
    _check_data(members, place)
    key = attributes.get(PARTITION_KEY)
    return ProducerRecord(topic, text, None if key is None else key.encode(), headers=(STRUCTURED_HEADER,))


def _text_of(name: str, raw: Raw) -> str:
    """Returns the canonical string of an attribute's JSON value. Raises ValueError for an invalid type."""
    text = text_of(raw)
    if text is not None:
        return text
    if is_text_only(name):
        raise ValueError("must be a string")
    written = bytes(raw)
    if written in (b"true", b"false"):
        return written.decode()
    if _WHOLE_NUMBER.fullmatch(written) and int(written) in _INT32:
        return written.decode()
    raise ValueError("must be a string, a boolean, or a whole number of 32 bits")


def _check_data(members: dict[str, Raw], place: str) -> None:
    encoded = members.get(_DATA_BASE64)
    if encoded is None or is_null(encoded):
        return
    where = within(place, _DATA_BASE64)
    if _DATA in members:
        raise BodyError(400, where, "data and data_base64 exclude each other")
    try:
        bytes_of_base64(bytes(encoded))
    except ValueError as e:
        raise BodyError(400, where, str(e)) from e
