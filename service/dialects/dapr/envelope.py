"""Builds the CloudEvent that Dapr would publish.

    application/json           data: the JSON itself; invalid JSON as a string
    application/octet-stream   data_base64
    application/cloudevents+json   the caller's own event, completed
    anything else              data: a string

Dapr decodes and encodes again; here the body's JSON is compacted, with digits and escapes unchanged. Unlike
Dapr, nothing is lost. Invalid UTF-8 becomes data_base64, not question marks. Text after a JSON value is not
cut off. An event without id gets one.

Pure; any thread. Source: dapr/components-contrib pubsub/envelope.go, contenttype/utils.go.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from service.base.settings import Settings
from service.dialects.cloudevents.structured import PAYLOAD
from service.dialects.json_members import is_null, members_of
from service.wire.strict_json import BodyError, compact, too_deep

JSON: Final = "application/json"
CLOUD_EVENT: Final = "application/cloudevents+json"
BINARY: Final = "application/octet-stream"
_PROTOBUF: Final = ("application/cloudevents+protobuf", "application/x-protobuf")

DEFAULT_CONTENT_TYPE: Final = "text/plain"
#: The app id of a sidecar without service_name.
_USUAL_APP_ID: Final = "pilotfish"
_TYPE: Final = "com.dapr.event.sent"
_SPECVERSION: Final = "1.0"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def app_id(settings: Settings) -> str:
    """Returns the sidecar's app id: the source of envelopes, and the id in Dapr's metadata."""
    return settings.service_name or _USUAL_APP_ID


class Trace(NamedTuple):
    """A request's W3C trace context; empty strings if it has none."""

    parent: str = ""
    state: str = ""


class Origin(NamedTuple):
    """Where and when an envelope originated."""

    topic: str
    pubsub: str
    app_id: str
    event_id: str
    now_ms: int
    trace: Trace = Trace()


def wrapped(
    data: bytes, content_type: str, origin: Origin, overrides: Mapping[str, str], ttl_ms: int | None
) -> bytes:
    """Returns the envelope around a body. Raises BodyError for JSON that nests too deeply."""
    name, value = _data(data, content_type)
    trace_id = overrides.get("traceparent") or overrides.get("traceid") or origin.trace.parent
    members: dict[str, object] = {
        "specversion": _SPECVERSION,
        "id": overrides.get("id") or origin.event_id,
        "source": overrides.get("source") or origin.app_id,
        "type": overrides.get("type") or _TYPE,
        "subject": overrides.get("subject", ""),
        "time": time_text(origin.now_ms),
        "topic": origin.topic,
        "pubsubname": origin.pubsub,
        "traceid": trace_id,
        "traceparent": trace_id,
        "tracestate": overrides.get("tracestate") or origin.trace.state,
        "expiration": "" if ttl_ms is None else time_text(origin.now_ms + ttl_ms),
    }
    said: dict[str, object] = {member: text for member, text in members.items() if text}
    return _encoded(said | {"datacontenttype": content_type, name: value})


def completed(event: bytes, origin: Origin, ttl_ms: int | None) -> bytes:
    """Returns the caller's event, completed. Raises BodyError unless it is a JSON object."""
    members: dict[str, object] = dict(members_of(compact(event), payload=PAYLOAD))
    for name, value in (
        ("id", origin.event_id),
        ("source", origin.app_id),
        ("type", _TYPE),
        ("specversion", _SPECVERSION),
    ):
        if _is_unset(members.get(name)):
            members[name] = value
    members.setdefault("time", time_text(origin.now_ms))
    if origin.trace.parent and "traceid" not in members:
        members |= {"traceid": origin.trace.parent, "traceparent": origin.trace.parent}
    if origin.trace.state:
        members.setdefault("tracestate", origin.trace.state)
    members |= {"topic": origin.topic, "pubsubname": origin.pubsub}
    if ttl_ms is not None:
        members["expiration"] = time_text(origin.now_ms + ttl_ms)
    return _encoded(members)


def is_media_type(content_type: str, *media_types: str) -> bool:
    """Returns whether it is one of them, with or without parameters."""
    return content_type.lower().partition(";")[0].rstrip() in media_types


def time_text(wall_ms: int) -> str:
    """Returns RFC 3339 in UTC, to the second, in Dapr's format."""
    return (_EPOCH + timedelta(milliseconds=wall_ms)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _data(data: bytes, content_type: str) -> tuple[str, object]:
    """Returns the name and value of the member for the body."""
    if is_media_type(content_type, JSON):
        value = _json(data)
        if value is not None:
            return "data", value
    if is_media_type(content_type, BINARY, *_PROTOBUF):
        return _base64(data)
    try:
        return "data", data.decode()
    except UnicodeDecodeError:
        return _base64(data)


def _json(data: bytes) -> Raw | None:
    """Returns the body compacted; None for invalid JSON, which Dapr sends as a string.

    JSON that is too deep for the parser is refused as all that nests too deeply: it may be valid.
    """
    try:
        text = compact(data)
    except BodyError as e:
        if not isinstance(e.__cause__, RecursionError):
            return None
        text = data
    if too_deep(text):
        raise BodyError(400, "", "nested too deeply for JSON; send it as application/octet-stream")
    return Raw(text)


def _base64(data: bytes) -> tuple[str, object]:
    return "data_base64", base64.b64encode(data).decode()


def _is_unset(value: object) -> bool:
    return value is None or (isinstance(value, Raw) and is_null(value))


def _encoded(members: Mapping[str, object]) -> bytes:
    """Returns JSON sorted by name, as Go encodes maps."""
    return msgspec.json.encode(members, order="sorted")
