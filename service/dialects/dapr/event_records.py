"""Builds records as Dapr's Kafka component would.

A record's headers are its event's metadata. An envelope gets one more, which Dapr does not write:
`content-type`, so that other CloudEvents consumers recognize the value. A raw `null` is a record without a
value: a tombstone.

Envelopes and headers may exceed the body by any amount, so their bytes are counted while they are built. Pure
but for the events' ids; any thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from client_core import EncodedHeaders, ProducerRecord
from service.dialects.cloudevents.structured import STRUCTURED_HEADER
from service.dialects.dapr import errors
from service.dialects.dapr.bulk_codec import Entry
from service.dialects.dapr.envelope import CLOUD_EVENT, Origin, Trace, completed, is_media_type, wrapped
from service.dialects.dapr.publish_metadata import PublishMetadata, understand
from service.produce.records_codec import in_one_where_many
from service.wire.errors import ProblemError
from service.wire.strict_json import BodyError

#: Servers replace invalid UTF-8 in a path by this.
NO_CHARACTER: Final = "\ufffd"

_NULL: Final = b"null"


class Target(NamedTuple):
    """Where a request publishes, and the options in its query and headers."""

    pubsub: str
    topic: str
    metadata: Mapping[str, str]
    asked: PublishMetadata
    trace: Trace

    def fault(self, error: errors.Code, message: str) -> ProblemError:
        """Returns one of Dapr's errors, for this request."""
        return errors.fault(error, message, pubsub=self.pubsub, topic=self.topic)


class EventRecords:
    """Builds the records of one request. `bytes` is their total size so far, headers included."""

    def __init__(self, target: Target, app_id: str, now_ms: int, max_bytes: int) -> None:
        self._target = target
        self._app_id = app_id
        self._now_ms = now_ms
        self._max_bytes = max_bytes
        self.bytes = 0

    def of(self, entries: Iterable[Entry]) -> Iterator[ProducerRecord]:
        """Yields a record per entry, in order, built when drawn. Raises ProblemError."""
        for entry in entries:
            record = self._record(entry, self._asked(entry))
            self.bytes += _size(record)
            if self.bytes > self._max_bytes:
                limit = f"{self._max_bytes} bytes (max_waiting_bytes)"
                message = f"the events with their envelopes and metadata take more than {limit}"
                raise self._target.fault(errors.TOO_MUCH, message)
            yield record

    def _asked(self, entry: Entry) -> PublishMetadata:
        """Returns the entry's options; the request's where it has none."""
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
