"""Checks a record before it is appended: its arguments, types and size.

Types are checked because Java's compiler does so. Many callers share a batch: text in place of bytes would
only fail when the batch is encoded, on the I/O thread, for all of them. A topic name that can't be encoded
would fail every Metadata request. Pure. Source: ProducerRecord, KafkaProducer.ensureValidRecordSize,
Kafka 4.3 (PROD-07, PROD-12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    RecordTooLargeError,
    SerializationError,
)
from client_core.record.memory_records_builder import estimate_size_in_bytes_upper_bound
from client_core.record.record_content import EncodedHeaders

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from client_core.producer.results.producer_record import Headers, ProducerRecord

#: The most bytes of a record besides key and value: the batch's header of 61, the record's own 21, and three
#: lengths. A record that is smaller than the limit by more than this needs no exact count.
_OVERHEAD_BYTES: Final = 128

#: int64 on the wire.
_LAST_TIMESTAMP_MS: Final = 2**63 - 1

#: The maximum of a STRING in protocol versions that are not flexible.
_LONGEST_TOPIC_BYTES: Final = 2**15 - 1


def check_topics(topics: Iterable[str]) -> None:
    """Raises IllegalArgumentError or InvalidTopicError for names that can't be requested (PROD-12).

    Brokers decide which names are valid (error 17).
    """
    for topic in topics:
        _check_topic(topic)


def checked_topics(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names. Raises what `check_topics` raises.

    And IllegalArgumentError for one name in place of several: each of its characters would be requested as a
    topic, and perhaps created.
    """
    if isinstance(names, str):
        raise IllegalArgumentError(f"Topics must be a collection of names, such as [{names!r}], not a name.")
    topics = tuple(names)
    check_topics(topics)
    return topics


def _check_topic(topic: str) -> None:
    if topic is None:
        raise IllegalArgumentError("Topic cannot be null.")
    if not isinstance(topic, str):
        raise IllegalArgumentError(f"A topic must be str, not {type(topic).__name__}.")
    try:
        is_too_long = len(topic.encode()) > _LONGEST_TOPIC_BYTES
    except UnicodeEncodeError as error:
        raise InvalidTopicError(f"Invalid topics: [{topic!r}]") from error
    if is_too_long:
        raise InvalidTopicError(f"Invalid topics: [{topic[:100]!r}...]")


def check_arguments(record: ProducerRecord) -> None:
    """Checks a record's fields, except the topic's name, which `check_topics` and the brokers check.

    Raises IllegalArgumentError as Java's ProducerRecord does, SerializationError if a key or
    value is not bytes.
    """
    _, value, key, partition, timestamp_ms, headers = record
    if timestamp_ms is not None and not (
        isinstance(timestamp_ms, int) and 0 <= timestamp_ms <= _LAST_TIMESTAMP_MS
    ):
        raise IllegalArgumentError(
            f"Invalid timestamp: {timestamp_ms!r}. Timestamp should always be non-negative or null."
        )
    if partition is not None and not (isinstance(partition, int) and partition >= 0):
        raise IllegalArgumentError(
            f"Invalid partition: {partition!r}. Partition number should always be non-negative or null."
        )
    if value is not None and not isinstance(value, bytes):
        raise SerializationError(f"A record's value must be bytes or None, not {type(value).__name__}")
    if key is not None and not isinstance(key, bytes):
        raise SerializationError(f"A record's key must be bytes or None, not {type(key).__name__}")
    if headers and not isinstance(headers, EncodedHeaders):  # these were checked when they were encoded
        if not hasattr(headers, "__len__"):
            raise SerializationError(f"Headers must be a sequence of pairs, not {type(headers).__name__}")
        for header in headers:
            _check_header(header)


def _check_header(header: tuple[str, bytes | None]) -> None:
    if not (isinstance(header, tuple | list) and len(header) == 2):
        raise SerializationError(
            f"A header must be a pair of its name and value, such as ('trace', b'1'), not {header!r}"
        )
    name, value = header
    if not isinstance(name, str):
        raise SerializationError(f"A header's name must be str, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SerializationError(f"A header's name must be Unicode text, not {name!r}") from error
    if value is not None and not isinstance(value, bytes):
        raise SerializationError(f"A header's value must be bytes or None, not {type(value).__name__}")


def largest_sure_to_fit(max_request_bytes: int, buffer_memory_bytes: int) -> int:
    """Returns the largest key plus value, without headers, that needs no exact size check."""
    return min(max_request_bytes, buffer_memory_bytes) - _OVERHEAD_BYTES


def check_records(
    topic: str, records: Sequence[ProducerRecord], max_request_bytes: int, buffer_memory_bytes: int
) -> Sequence[ProducerRecord]:
    """Checks one request's records, which are all for `topic`; a RecordTooLargeError has the record_index.

    Returns the records, with copies of headers that their caller could change while the request waits.
    """
    fixed: dict[int, ProducerRecord] = {}
    sure_to_fit_bytes = largest_sure_to_fit(max_request_bytes, buffer_memory_bytes)
    for index, record in enumerate(records):
        of_topic, value, key, partition, timestamp_ms, headers = record
        if (
            # Fast path: most records are plain, and a request may have thousands.
            of_topic == topic
            and type(value) is bytes
            and partition is None
            and timestamp_ms is None
            and headers == ()
            and (key is None or type(key) is bytes)
            and len(value) + (0 if key is None else len(key)) <= sure_to_fit_bytes
        ):
            continue
        if of_topic != topic:
            raise IllegalArgumentError(
                f"Record {index} is for topic {of_topic}, but the request is for topic {topic}: submit the "
                "records of each topic separately."
            )
        check_arguments(record)
        try:
            ensure_valid_size(record, max_request_bytes, buffer_memory_bytes)
        except RecordTooLargeError as error:
            error.record_index = index
            raise
        if _may_change(headers):
            fixed[index] = record._replace(headers=tuple((name, value) for name, value in headers))
    return [fixed.get(index, record) for index, record in enumerate(records)] if fixed else records


def _may_change(headers: Headers) -> bool:
    """Returns whether these are lists, for example. Java's ProducerRecord copies its headers at once."""
    if headers is None or isinstance(headers, EncodedHeaders):
        return False
    return not (isinstance(headers, tuple) and all(isinstance(header, tuple) for header in headers))


def ensure_valid_size(record: ProducerRecord, max_request_bytes: int, buffer_memory_bytes: int) -> None:
    """Raises RecordTooLargeError for a record that exceeds max.request.size or buffer.memory."""
    if not record.headers:
        raw_bytes = len(record.key or b"") + len(record.value or b"")
        if raw_bytes <= largest_sure_to_fit(max_request_bytes, buffer_memory_bytes):
            return
    size_bytes = estimate_size_in_bytes_upper_bound(record.key, record.value, record.headers)
    if size_bytes > max_request_bytes:
        raise RecordTooLargeError(
            f"The message is {size_bytes} bytes when serialized which is larger than {max_request_bytes}, "
            "which is the value of the max.request.size configuration."
        )
    if size_bytes > buffer_memory_bytes:
        raise RecordTooLargeError(
            f"The message is {size_bytes} bytes when serialized which is larger than the total memory buffer "
            "you have configured with the buffer.memory configuration."
        )
