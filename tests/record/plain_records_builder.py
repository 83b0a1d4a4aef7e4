"""Appends records one by one, plainly: what `append_many` and `append_where_more_fits` must equal.

As in Java, whoever appends asks for room first; the producer never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_content import content_pieces, size_of_content
from client_core.record.varint import encode_varint, size_of_varint

if TYPE_CHECKING:
    from client_core.record.record_content import RecordHeaders


class PlainRecordsBuilder(MemoryRecordsBuilder):
    """MemoryRecordsBuilder with Java's hasRoomFor and append."""

    def has_room_for(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: RecordHeaders = ()
    ) -> bool:
        """Whether the record fits."""
        if self.is_full:
            return False
        if not self.record_count:
            return True
        body = (
            1
            + size_of_varint(timestamp_ms - self._base_timestamp_ms)
            + size_of_varint(self.record_count)
            + size_of_content(key, value, headers)
        )
        return self.estimated_size_bytes + size_of_varint(body) + body <= self.write_limit_bytes

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: RecordHeaders = ()
    ) -> None:
        """Appends one record without a check for room."""
        content = content_pieces(key, value, headers)
        if timestamp_ms != self._last_timestamp_ms:
            self._begin_timestamp(timestamp_ms, self.record_count)
        offset_delta = encode_varint(self.record_count)
        body = 1 + len(self._timestamp_delta) + len(offset_delta) + sum(map(len, content))
        length = encode_varint(body)
        self._pieces += (length, b"\0", self._timestamp_delta, offset_delta, *content)
        self._payload_bytes += len(length) + body
        self.record_count += 1
