"""One record whose value is the body as it is: `application/octet-stream`.

    value       the body; an empty one is an empty value. A tombstone has none, and is sent as JSON
    key         `?key=` or the header Pilotfish-Key, in key_format (text unless given); none without them
    partition   `?partition=`
    timestamp   `?timestamp=`, milliseconds since 1970; now if absent
    headers     Pilotfish-Headers: elements parted by commas, each base64(name), or base64(name) ":"
                base64(value). Nothing after the colon is an empty value, no colon is a null one

Names of HTTP headers lose their case and their bytes on the way, so record headers do not become some.
Base64 is standard and padded. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from client_core import ProducerRecord
from service.produce.produce_query import format_of, number_of
from service.produce.records_codec import MAX_TIMESTAMP_MS
from service.wire.asgi import Scope, header, header_values
from service.wire.errors import refused
from service.wire.payload import Format, bytes_of_plain
from service.wire.strict_json import MAX_INT32

#: What the query may say besides the times.
PARAMETERS: Final = ("key", "key_format", "partition", "timestamp")

_KEY: Final = b"pilotfish-key"
_HEADERS: Final = b"pilotfish-headers"

#: The HTTP headers that are part of the record.
MEANT: Final = (_KEY, _HEADERS)


def record_without_value(topic: str, scope: Scope, given: Mapping[str, str]) -> ProducerRecord:
    """The record but for its value, which comes with the body. Raises ProblemError."""
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
    if len(in_header) + ("key" in given) > 1:
        raise refused(422, "may be given once, in the query or in the header Pilotfish-Key", place="key")
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
    """What the base64 stands for; raises ValueError."""
    return bytes_of_plain(base64.decode("latin-1"), Format.BASE64) or b""
