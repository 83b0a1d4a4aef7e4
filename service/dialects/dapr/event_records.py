"""From entries to the records that Dapr's Kafka component would write.

A record's headers are the metadata of its event. An envelope gets one more that Dapr does not write,
`content-type`, by which other consumers of CloudEvents know what the value is. A raw `null` is a record
without a value: a tombstone.

Envelopes and headers are larger than the body they were made of, by as much as a caller likes: they are
counted while they are made. Pure but for the ids of events; any thread.

The CloudEvent that Dapr makes of what it is given to publish.

    application/json           data: the JSON itself; what is no JSON, as a string
    application/octet-stream   data_base64
    application/cloudevents+json   the caller's own event, completed
    anything else              data: a string

Dapr decodes and encodes anew; here the body's JSON goes on the wire compacted, its digits and escapes as they
came. Where Dapr would lose something this does not: text that is not UTF-8 becomes data_base64 and not
question marks, what follows a JSON value is no longer cut off, an event without id gets one.

Pure; any thread. Source: dapr/components-contrib pubsub/envelope.go, contenttype/utils.go.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from client_core import EncodedHeaders, ProducerRecord
from service.dialects.cloudevents.structured import PAYLOAD, STRUCTURED_HEADER
from service.dialects.dapr import errors
from service.dialects.dapr.bulk_codec import Entry
from service.dialects.dapr.publish_metadata import PublishMetadata, understand
from service.dialects.json_members import is_null, members_of
from service.produce.records_codec import in_one_where_many
from service.wire.errors import ProblemError
from service.wire.strict_json import BodyError, compact, too_deep

#: What servers make of bytes in a path that are not UTF-8.
NO_CHARACTER: Final = "\ufffd"

_NULL: Final = b"null"


JSON: Final = "application/json"
CLOUD_EVENT: Final = "application/cloudevents+json"
BINARY: Final = "application/octet-stream"
_PROTOBUF: Final = ("application/cloudevents+protobuf", "application/x-protobuf")

DEFAULT_CONTENT_TYPE: Final = "text/plain"
_TYPE: Final = "com.dapr.event.sent"
_SPECVERSION: Final = "1.0"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Trace(NamedTuple):
    """The W3C trace context that a request brings; empty texts where it brings none."""

    parent: str = ""
    state: str = ""


class Origin(NamedTuple):
    """What an envelope says of where it came from and when."""

    topic: str
    pubsub: str
    app_id: str
    event_id: str
    now_ms: int
    trace: Trace = Trace()


def wrapped(
    data: bytes, content_type: str, origin: Origin, overrides: Mapping[str, str], ttl_ms: int | None
) -> bytes:
    """The envelope around a body. Raises BodyError where the body is JSON that nests too deeply."""
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
    """The caller's own event, with what it lacks. Raises BodyError for what is no JSON object."""
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
    """Whether it is one of them, parameters or not."""
    return content_type.lower().partition(";")[0].rstrip() in media_types


def time_text(wall_ms: int) -> str:
    """RFC 3339 in UTC, to the second, as Dapr writes it."""
    return (_EPOCH + timedelta(milliseconds=wall_ms)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _data(data: bytes, content_type: str) -> tuple[str, object]:
    """The member that holds the body, and its value."""
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
    """The body compacted; None where it is no JSON, which Dapr takes for a string."""
    try:
        text = compact(data)
    except BodyError:
        return None
    if too_deep(text):
        raise BodyError(400, "", "nested too deeply for JSON; send it as application/octet-stream")
    return Raw(text)


def _base64(data: bytes) -> tuple[str, object]:
    return "data_base64", base64.b64encode(data).decode()


def _is_unset(value: object) -> bool:
    return value is None or (isinstance(value, Raw) and is_null(value))


def _encoded(members: Mapping[str, object]) -> bytes:
    """By name, as Go's maps are encoded."""
    return msgspec.json.encode(members, order="sorted")


class Target(NamedTuple):
    """Where a request publishes to, as its path says, and what its query and headers ask for."""

    pubsub: str
    topic: str
    metadata: Mapping[str, str]
    asked: PublishMetadata
    trace: Trace

    def fault(self, error: errors.Code, message: str) -> ProblemError:
        """One of Dapr's errors, of this request."""
        return errors.fault(error, message, pubsub=self.pubsub, topic=self.topic)


class EventRecords:
    """Makes the records of one request. `bytes` is what those that were made take, headers and all."""

    def __init__(self, target: Target, app_id: str, now_ms: int, max_bytes: int) -> None:
        self._target = target
        self._app_id = app_id
        self._now_ms = now_ms
        self._max_bytes = max_bytes
        self.bytes = 0

    def of(self, entries: Iterable[Entry]) -> Iterator[ProducerRecord]:
        """A record for each entry, in order, made when it is drawn. Raises ProblemError."""
        for entry in entries:
            record = self._record(entry, self._asked(entry))
            self.bytes += _size(record)
            if self.bytes > self._max_bytes:
                limit = f"{self._max_bytes} bytes (max_waiting_bytes)"
                message = f"the events with their envelopes and metadata take more than {limit}"
                raise self._target.fault(errors.TOO_MUCH, message)
            yield record

    def _asked(self, entry: Entry) -> PublishMetadata:
        """What the metadata of the entry asks for, and where it says nothing that of the request."""
        if not entry.metadata:
            return self._target.asked
        try:
            return understand({**self._target.metadata, **entry.metadata})
        except ValueError as e:
            message = f"failed deserializing metadata of entry {entry.entry_id}. Error: {e}"
            raise self._target.fault(errors.METADATA, message) from e

    def _record(self, entry: Entry, asked: PublishMetadata) -> ProducerRecord:
        topic = self._target.topic
        if asked.raw:
            value = None if entry.event == _NULL else entry.event
            return ProducerRecord(topic, value, asked.key, asked.partition, headers=asked.headers)
        given = any(name.lower() == STRUCTURED_HEADER[0] for name, _ in asked.headers)
        headers = (
            asked.headers
            if given
            else in_one_where_many(len(asked.headers) + 1, iter((*asked.headers, STRUCTURED_HEADER)))
        )
        value = self._envelope(entry, asked)
        return ProducerRecord(topic, value, asked.key, asked.partition, headers=headers)

    def _envelope(self, entry: Entry, asked: PublishMetadata) -> bytes:
        pubsub, topic, event_id = self._target.pubsub, self._target.topic, str(uuid.uuid4())
        origin = Origin(topic, pubsub, self._app_id, event_id, self._now_ms, self._target.trace)
        try:
            if is_media_type(entry.content_type, CLOUD_EVENT):
                return completed(entry.event, origin, asked.ttl_ms)
            return wrapped(entry.event, entry.content_type, origin, asked.overrides, asked.ttl_ms)
        except BodyError as e:
            which = f" of entry {entry.entry_id}" if entry.entry_id else ""
            raise self._target.fault(errors.CLOUD_EVENT, f"cannot create cloudevent{which}: {e}") from e


def _size(record: ProducerRecord) -> int:
    if isinstance(record.headers, EncodedHeaders):
        headers = len(record.headers.encoded)
    else:
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
