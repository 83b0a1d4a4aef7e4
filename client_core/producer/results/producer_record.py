"""A record to send, and the metadata of a sent one. Source: ProducerRecord, RecordMetadata, Kafka 4.3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple

from client_core.record.record_content import RecordHeaders

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: Types of keys and values: bytes, unless a producer has serializers for others.
    K = TypeVar("K", default=bytes | None)
    V = TypeVar("V", default=bytes | None)
    K_co = TypeVar("K_co", default=bytes | None, covariant=True)
    V_co = TypeVar("V_co", default=bytes | None, covariant=True)
else:  # defaults of TypeVar came with Python 3.13
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")
    K_co, V_co = TypeVar("K_co", covariant=True), TypeVar("V_co", covariant=True)

#: Header names are text, values bytes or null; a name may be repeated, order is kept. A tuple,
#: or EncodedHeaders where there are many.
Headers = RecordHeaders


class ProducerRecord(NamedTuple, Generic[K_co, V_co]):
    """A record for a topic. A value of None is a tombstone; a key of None lets the partitioner choose.

    Keys and values are bytes, unless the producer has serializers.
    """

    topic: str
    value: V_co | None = None
    key: K_co | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class RecordMetadata(NamedTuple):
    """A record's partition and offset; `offset` is None if the broker sent none (acks=0, old duplicate)."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int
