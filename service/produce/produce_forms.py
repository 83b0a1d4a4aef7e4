"""Parses the head of a produce request, and chooses how its body is read.

The body is JSON with many records, or the value of one record. Faults in the head are refused before the
body is read. The query may have each known parameter once, with numbers in plain digits. Unknown parameters
are refused: a misspelt deadline must not be ignored. One record as `application/octet-stream`:

    value       the body; an empty body is an empty value. A tombstone has no value, and is sent as JSON
    key         `?key=` or the header Pilotfish-Key, in key_format (default: text); otherwise null
    partition   `?partition=`
    timestamp   `?timestamp=`, milliseconds since 1970; default: now
    headers     Pilotfish-Headers: elements separated by commas, each base64(name), or base64(name) ":"
                base64(value). Nothing after the colon is an empty value; no colon is a null value

Record headers are not sent as HTTP headers, whose names lose their case and may not have all bytes. Base64 is
standard and padded. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from client_core import ProducerRecord
from service.admission.caller import Caller, caller_of
from service.produce.many_topics import OWN_TOPICS, check_topics
from service.produce.producing import Times
from service.produce.records_codec import HOMES, HOMES_OF_TOPICS, MAX_TIMESTAMP_MS, parse_records
from service.wire.asgi import Scope, header, header_values
from service.wire.errors import refused
from service.wire.json_parts import BodyLimits
from service.wire.media_type import (
    JSON,
    NDJSON,
    OCTET_STREAM,
    check_encoding,
    check_media_type,
    media_type_of,
)
from service.wire.payload import Format, bytes_of_plain
from service.wire.strict_json import MAX_INT32, NO_HOMES, Homes, home_of
from service.wire.waiting import MAX_WAIT_MS

_FORMS: Final = b", ".join((JSON, NDJSON, OCTET_STREAM)).decode()


#: Query parameters of one record, besides the times.
PARAMETERS: Final = ("key", "key_format", "partition", "timestamp")

_KEY: Final = b"pilotfish-key"
_HEADERS: Final = b"pilotfish-headers"

#: The HTTP headers that are part of one record of bytes, and the same member of a record in JSON.
_PARTS: Final = ((_KEY, "Pilotfish-Key", "key"), (_HEADERS, "Pilotfish-Headers", "headers"))

_HOMES_OF_BYTES: Final[Homes] = {
    name.lower().replace("-", "_"): f"the header {name}"
    for name in ("Idempotency-Key", "Pilotfish-Key", "Pilotfish-Headers")
} | {"headers": "the header Pilotfish-Headers", "value": "the body"}


_TIMES: Final = ("max_block_ms", "timeout_ms")

_MAX_DIGITS: Final = 19

STREAM_NOT_SPOOLED: Final = "a stream is not spooled; send the records as application/json"

#: How records are delivered: "direct", the default, or "spool".
DELIVERY: Final = "delivery"
DELIVERIES: Final = ("direct", "spool")


def record_without_value(topic: str, scope: Scope, given: Mapping[str, str]) -> ProducerRecord:
    """Returns the record without its value, which is the body. Raises ProblemError."""
    return ProducerRecord(
        topic,
        None,
        _key_of(scope, given),
        number_of(given, "partition", MAX_INT32),
        number_of(given, "timestamp", MAX_TIMESTAMP_MS),
        _headers_of(scope),
    )


def _key_of(scope: Scope, given: Mapping[str, str]) -> bytes | None:
    in_header = header_values(scope, _KEY)
    if len(in_header) > 1:
        raise refused(400, "is given twice", place="Pilotfish-Key")
    if in_header and "key" in given:
        raise refused(422, "the header Pilotfish-Key has a key, too; send one of them", place="query.key")
    form = format_of(given, "key_format", Format.TEXT)
    place = "Pilotfish-Key" if in_header else "query.key"
    try:
        written = in_header[0].decode() if in_header else given.get("key")
        return None if written is None else bytes_of_plain(written, form)
    except UnicodeDecodeError as e:
        raise refused(400, "invalid UTF-8", place=place) from e
    except ValueError as e:
        raise refused(422, str(e), place=place) from e


def _headers_of(scope: Scope) -> tuple[tuple[str, bytes | None], ...]:
    written = header(scope, _HEADERS)
    if written is None or not written.strip():
        return ()
    headers: list[tuple[str, bytes | None]] = []
    for index, element in enumerate(written.split(b",")):
        place = f"Pilotfish-Headers[{index}]"
        name, colon, value = element.strip(b" \t").partition(b":")
        if not name and not colon:
            raise refused(422, "an element is empty", place=place)
        try:
            headers.append((_bytes(name).decode(), _bytes(value) if colon else None))
        except UnicodeDecodeError as e:
            raise refused(422, "a name must be UTF-8", place=place) from e
        except ValueError as e:
            raise refused(422, str(e), place=place) from e
    return tuple(headers)


def _bytes(base64: bytes) -> bytes:
    """Decodes base64; raises ValueError."""
    return bytes_of_plain(base64.decode("latin-1"), Format.BASE64) or b""


def refuse_parts_of_one(scope: Scope) -> None:
    """Raises ProblemError if the head has a part of one record: the body has many, and it would be lost."""
    for name, shown, member in _PARTS:
        if header(scope, name) is not None:
            only = f"is for application/octet-stream; here each record has its own {member}"
            raise refused(422, only, place=shown)


def parameters(query: bytes, more: tuple[str, ...] = (), homes: Homes = NO_HOMES) -> dict[str, str]:
    """Returns the parameters by name: those of `Times` and `more`.

    Raises ProblemError for others; `homes` says what they are elsewhere.
    """
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as e:
        raise refused(400, "invalid UTF-8", place="query") from e
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in _TIMES and name not in more:
            *all_but_last, last = _TIMES + more
            known = f"{', '.join(all_but_last)} and {last}"
            must = f"unknown parameter; known are {known}{home_of(name, homes)}"
            raise refused(422, must, place=f"query.{name}")
        if name in given:
            raise refused(400, "is given twice", place=f"query.{name}")
        given[name] = value
    return given


def times_of(given: Mapping[str, str], defaults: Times) -> Times:
    """Returns max_block_ms and timeout_ms. Raises ProblemError if one is invalid."""
    times = defaults
    if "max_block_ms" in given:
        max_block_ms = _number(given, "max_block_ms", MAX_WAIT_MS)
        times = times._replace(max_block_ms=max_block_ms, missing_wait_ms=None)
    if "timeout_ms" in given:
        timeout_ms = _number(given, "timeout_ms", defaults.timeout_ms, " (delivery.timeout.ms)")
        times = times._replace(timeout_ms=timeout_ms)
    return times


def number_of(given: Mapping[str, str], name: str, greatest: int) -> int | None:
    """Returns a whole number from 0 to `greatest`; None if absent. Raises ProblemError."""
    return _number(given, name, greatest) if name in given else None


def format_of(given: Mapping[str, str], name: str, default: Format) -> Format:
    """Returns the format of keys or values. Raises ProblemError."""
    try:
        return Format(given[name]) if name in given else default
    except ValueError as e:
        raise refused(422, "must be json, text or base64", place=f"query.{name}") from e


def is_spooled(given: Mapping[str, str]) -> bool:
    """Returns whether the records are for the spool. Raises ProblemError."""
    delivery = given.get(DELIVERY, "direct")
    if delivery not in DELIVERIES:
        raise refused(422, "must be direct or spool", place=f"query.{DELIVERY}")
    return delivery == "spool"


def _number(given: Mapping[str, str], name: str, greatest: int, of_what: str = "") -> int:
    value = given[name]
    if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS and int(value) <= greatest:
        return int(value)
    raise refused(422, f"must be a whole number from 0 to {greatest}{of_what}", place=f"query.{name}")


class Form(NamedTuple):
    """How the body of one request is read.

    `parse` returns the records or raises BodyError or ProblemError; any thread. `meaning` is what
    distinguishes the request besides topic, body and times (for Idempotency-Key). `spooled`: the records go
    to the spool.
    """

    times: Times
    parse: Callable[[bytes], list[ProducerRecord]]
    meaning: bytes
    spooled: bool = False


def form_of(topic: str, scope: Scope, defaults: Times, limits: BodyLimits) -> Form:
    """Returns the form that the head specifies. Raises ProblemError."""
    content_type = header(scope, b"content-type")
    encoding = header(scope, b"content-encoding")
    query: bytes = scope["query_string"]
    if content_type != JSON:
        media_type = media_type_of(content_type)
        if media_type == OCTET_STREAM and topic != OWN_TOPICS:
            check_encoding(encoding)
            return _octet_stream(topic, scope, defaults)
        if media_type == NDJSON and topic != OWN_TOPICS:  # elsewhere a stream takes another way
            raise refused(415, STREAM_NOT_SPOOLED, place="Content-Type")
        if media_type != JSON and topic != OWN_TOPICS:
            raise refused(415, f"must be one of {_FORMS}", place="Content-Type")
    if content_type != JSON or encoding is not None:
        check_media_type(content_type, encoding)
    refuse_parts_of_one(scope)
    homes = HOMES_OF_TOPICS if topic == OWN_TOPICS else HOMES
    given = parameters(query, (DELIVERY,), homes) if query else {}
    times = times_of(given, defaults) if given else defaults
    form = Form(times, partial(_parsed, topic, caller_of(scope), limits), JSON)
    return _to_the_spool(form) if given and is_spooled(given) else form


def _parsed(topic: str, caller: Caller, limits: BodyLimits, body: bytes) -> list[ProducerRecord]:
    records = parse_records(topic, body, limits)
    if topic == OWN_TOPICS:
        check_topics(records, caller)
    return records


def _octet_stream(topic: str, scope: Scope, defaults: Times) -> Form:
    given = parameters(scope["query_string"], (DELIVERY, *PARAMETERS), _HOMES_OF_BYTES)
    record = record_without_value(topic, scope, given)
    meaning = b"%s %r" % (OCTET_STREAM, record)
    form = Form(times_of(given, defaults), lambda body: [record._replace(value=body)], meaning)
    return _to_the_spool(form) if is_spooled(given) else form


def _to_the_spool(form: Form) -> Form:
    return form._replace(meaning=form.meaning + b" to the spool", spooled=True)
