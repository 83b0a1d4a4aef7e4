"""Binary content mode: attributes in `ce-*` headers, data as the body.

    ce-id: A%20234                    ce_id: A 234
    ce-time: 2018-04-05T17:31:00Z     ce_time: 2018-04-05T17:31:00Z
    content-type: application/json    content-type: application/json
    {"a": 1}                          the same bytes as the record's value

Reads a header's value as the binding requires: unwraps a quoted string, then percent-decodes once. Refuses
bad encoding and invalid UTF-8. An empty body is an event without data. By the Kafka binding it becomes a
record without a value: on a compacted topic, a tombstone.

Pure; any thread. Sources: CloudEvents 1.0.2 HTTP protocol binding 3.1, Kafka protocol binding 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

from client_core import ProducerRecord
from service.base.possessive import POSSESSIVE
from service.dialects.cloudevents.attributes import PARTITION_KEY, check_name, check_value, missing_attribute
from service.wire.strict_json import BodyError

_PREFIX: Final = b"ce-"
_CONTENT_TYPE: Final = "content-type"

_QUOTED: Final = re.compile(rf'"((?:[^"\\]|\\.)*{POSSESSIVE})"', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def record_of_binary(topic: str, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> ProducerRecord:
    """Returns the record for a binary-mode request. Raises BodyError (400) that names the header."""
    attributes: dict[str, str] = {}
    content_type: str | None = None
    for raw_name, raw_value in headers:
        if raw_name == b"content-type":
            content_type = _content_type(raw_value, content_type)
        elif raw_name.startswith(_PREFIX):
            _take(raw_name, raw_value, attributes)
    _check_complete(attributes)
    key = attributes.get(PARTITION_KEY)
    record_headers = [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
    if content_type is not None:
        record_headers.append((_CONTENT_TYPE, content_type.encode()))
    return ProducerRecord(
        topic, body or None, None if key is None else key.encode(), headers=tuple(record_headers)
    )


def decoded(value: bytes) -> str:
    """Decodes a header's value to that of the attribute. Raises ValueError."""
    text = _utf8(value).strip(" \t")
    if text.startswith('"'):
        quoted = _QUOTED.fullmatch(text)
        if quoted is None:
            raise ValueError("is a quoted string without its closing quote")
        text = _ESCAPED.sub(r"\1", quoted[1])
    if "%" not in text:
        return text
    if _BAD_PERCENT.search(text):
        raise ValueError("a % must be followed by two hexadecimal digits, or be written as %25")
    return _utf8(unquote_to_bytes(text))


def _take(raw_name: bytes, raw_value: bytes, attributes: dict[str, str]) -> None:
    place = raw_name.decode("latin-1")
    name = place[len(_PREFIX) :]
    try:
        check_name(name)
        if name == "datacontenttype":
            raise ValueError("in binary mode the Content-Type header gives it")
        if name in attributes:
            raise ValueError("duplicate header")
        value = decoded(raw_value)
        check_value(name, value)
    except ValueError as e:
        raise BodyError(400, place, str(e)) from e
    attributes[name] = value


def _content_type(raw_value: bytes, before: str | None) -> str:
    try:
        if before is not None:
            raise ValueError("duplicate header")
        value = _utf8(raw_value).strip(" \t")
        check_value("datacontenttype", value)
    except ValueError as e:
        raise BodyError(400, _CONTENT_TYPE, str(e)) from e
    return value


def _check_complete(attributes: dict[str, str]) -> None:
    missing = missing_attribute(attributes)
    if missing is None:
        return
    if not attributes:
        raise BodyError(
            400,
            "",
            "not a CloudEvent: there are no ce-* headers (binary mode), and Content-Type is neither "
            "application/cloudevents+json nor application/cloudevents-batch+json",
        )
    raise BodyError(400, f"ce-{missing}", "the header is missing; every CloudEvent needs it")


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as e:
        raise ValueError("invalid UTF-8") from e
