"""What can be said of a record before it is appended: arguments that make no sense, and sizes that never fit.

Pure. Source: ProducerRecord, KafkaProducer.ensureValidRecordSize, Kafka 4.3 (PROD-07, PROD-12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.errors import IllegalArgumentError, RecordTooLargeError
from client_core.record.memory_records_builder import estimate_size_in_bytes_upper_bound

if TYPE_CHECKING:
    from client_core.producer.producer_record import ProducerRecord

#: A record's bytes beyond those of its key and value, at most: the batch's header of 61, the record's own 21,
#: and three lengths. One that is smaller than the limit by more than this needs no exact count.
_OVERHEAD_BYTES: Final = 128


def check_arguments(record: ProducerRecord) -> None:
    """Raises IllegalArgumentError for what Java's ProducerRecord refuses; a topic's name is for brokers."""
    if record.timestamp_ms is not None and record.timestamp_ms < 0:
        raise IllegalArgumentError(
            f"Invalid timestamp: {record.timestamp_ms}. Timestamp should always be non-negative or null."
        )
    if record.partition is not None and record.partition < 0:
        raise IllegalArgumentError(
            f"Invalid partition: {record.partition}. Partition number should always be non-negative or null."
        )


def ensure_valid_size(record: ProducerRecord, max_request_bytes: int, buffer_memory_bytes: int) -> None:
    """Raises RecordTooLargeError for what no request, or no buffer, could ever hold."""
    if not record.headers:
        raw_bytes = len(record.key or b"") + len(record.value or b"")
        if raw_bytes + _OVERHEAD_BYTES <= min(max_request_bytes, buffer_memory_bytes):
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
