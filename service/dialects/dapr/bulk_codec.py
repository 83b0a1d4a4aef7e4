"""Parses the body of a bulk publish, from JSON to entries.

    [{"entryId": "1", "event": E, "contentType": "text/plain", "metadata": {"partitionKey": "k"}}, …]

The content type defines E: for JSON and CloudEvents the value itself, for text/* and XML a string, for
application/octet-stream a string of base64. Member names match in any case: Dapr's server does so, and its
JavaScript SDK sends `entryID`. Faults are ProblemErrors with Dapr's codes and a place, such as `[3].event`.

Pure; any thread. Source: dapr/dapr pkg/api/http/http.go (onBulkPublish), util.go (ConvertEventToBytes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

import msgspec
from msgspec import Raw

from service.dialects.dapr.envelope import BINARY, CLOUD_EVENT, JSON, is_media_type
from service.dialects.dapr.errors import ENTRIES, MISMATCH, TOO_MUCH, UNREADABLE, Code, fault
from service.dialects.json_members import is_null, members_of, text_of
from service.wire.json_parts import BodyLimits, items_of_body
from service.wire.payload import bytes_of_base64
from service.wire.strict_json import BodyError

_MEMBERS: Final = frozenset({"entryid", "event", "contenttype", "metadata"})
_METADATA: Final = msgspec.json.Decoder(dict[str, str])


class Entry(NamedTuple):
    """One event of a bulk publish. `id_name` is the caller's spelling of `entryId`."""

    id_name: str
    entry_id: str
    event: bytes
    content_type: str
    metadata: dict[str, str]


class _Where(NamedTuple):
    """The context for a fault's message."""

    pubsub: str
    topic: str
    place: str = ""

    def fault(self, error: Code, message: str) -> NoReturn:
        said = f"{self.place}: {message}" if self.place else message
        raise fault(
            error,
            f"error when reading the entries for topic {self.topic} pubsub {self.pubsub}: {said}",
            pubsub=self.pubsub,
            topic=self.topic,
        )


def parse_entries(body: bytes, pubsub: str, topic: str, limits: BodyLimits) -> Iterator[Entry]:
    """Yields the entries, in order; each is parsed when drawn. Raises ProblemError."""
    where = _Where(pubsub, topic)
    try:
        items = items_of_body(body, limits)
    except BodyError as e:
        where.fault(TOO_MUCH if e.status == TOO_MUCH.status else UNREADABLE, str(e))
    if len(items) > limits.records:
        where.fault(TOO_MUCH, f"more than {limits.records} entries")
    seen: set[str] = set()
    for index, item in enumerate(items):
        entry = _entry(bytes(item), where._replace(place=f"[{index}]"))
        if entry.entry_id in seen:
            where._replace(place=f"[{index}].entryId").fault(ENTRIES, "duplicate entryId")
        seen.add(entry.entry_id)
        yield entry


def _entry(text: bytes, where: _Where) -> Entry:
    try:
        members = members_of(text, payload=("event",))
    except BodyError as e:
        where.fault(UNREADABLE, str(e))
    known: dict[str, Raw] = {}
    id_name = "entryId"
    for name, raw in members.items():
        folded = name.lower()
        if folded not in _MEMBERS:
            where.fault(
                UNREADABLE, f"{name}: unknown member; an entry has entryId, event, contentType, metadata"
            )
        if folded in known:
            where.fault(UNREADABLE, f"{name}: duplicate field")
        known[folded] = raw
        id_name = name if folded == "entryid" else id_name
    if "event" not in known:
        where.fault(UNREADABLE, "event is missing")
    entry_id = _text(known.get("entryid"), "entryId", where)
    if not entry_id:
        where.fault(ENTRIES, "entryId is missing or empty")
    content_type = _text(known.get("contenttype"), "contentType", where)
    event = _event(known["event"], content_type, where)
    return Entry(id_name, entry_id, event, content_type, _metadata(known.get("metadata"), where))


def _text(raw: Raw | None, name: str, where: _Where) -> str:
    if raw is None or is_null(raw):
        return ""
    text = text_of(raw)
    if text is None:
        where.fault(UNREADABLE, f"{name} must be a string")
    return text


def _metadata(raw: Raw | None, where: _Where) -> dict[str, str]:
    if raw is None or is_null(raw):
        return {}
    try:
        members_of(bytes(raw))  # checks for duplicate names
        return _METADATA.decode(raw)
    except (BodyError, msgspec.DecodeError) as e:
        where.fault(UNREADABLE, f"metadata must be an object of strings: {e}")


def _event(raw: Raw, content_type: str, where: _Where) -> bytes:
    """Returns the event's bytes, as if they had been a request's body."""
    if is_media_type(content_type, JSON, CLOUD_EVENT):
        return bytes(raw)
    text = text_of(raw)
    if is_media_type(content_type, BINARY) and text is not None:
        try:
            return bytes_of_base64(bytes(raw)) or b""
        except ValueError as e:
            where.fault(MISMATCH, f"event: {e}")
    if _is_text(content_type) and text is not None:
        return text.encode()
    where.fault(
        MISMATCH,
        f"event does not match contentType {content_type!r}: JSON and CloudEvents are values, text/* and "
        "application/xml are strings, application/octet-stream is a string of base64",
    )


def _is_text(content_type: str) -> bool:
    return content_type.lower().startswith("text/") or is_media_type(content_type, "application/xml")
