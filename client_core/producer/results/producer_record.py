"""A record to send, and the metadata of a sent one. Source: ProducerRecord, RecordMetadata, Kafka 4.3."""

from __future__ import annotations

from typing import NamedTuple

from client_core.record.record_content import RecordHeaders

#: Header names are text, values bytes or null; a name may be repeated, order is kept. A tuple,
#: or EncodedHeaders where there are many.
Headers = RecordHeaders


class ProducerRecord(NamedTuple):
    """A record for a topic. A value of None is a tombstone; a key of None lets the partitioner choose."""

    topic: str
    value: bytes | None = None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class RecordMetadata(NamedTuple):
    """A record's partition and offset; `offset` is None if the broker sent none (acks=0, old duplicate)."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int
