"""Records that a consumer may stumble over, and how they are compared with what it read."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from client_core import ProducerRecord
from tests.support.kafka_admin import ReadRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIME_MS: Final = 1_700_000_000_000
#: Beyond the 64 KiB of a block of lz4, and beyond zstd's smallest window.
_LARGE_BYTES: Final = 300_000


def records_of_all_kinds(topic: str, *, many: int = 2_000) -> list[ProducerRecord]:
    """Nulls, nothing, headers, size, old times, and many small ones; all for partition 0."""
    noise = Random(7).randbytes(_LARGE_BYTES)
    few = [
        ProducerRecord(topic, b"value", key=b"key", timestamp_ms=_TIME_MS),
        ProducerRecord(topic, b"no key", timestamp_ms=_TIME_MS + 1),
        ProducerRecord(topic, None, key=b"tombstone", timestamp_ms=_TIME_MS - 100_000),
        ProducerRecord(topic, None, timestamp_ms=0),
        ProducerRecord(topic, b"", key=b"", timestamp_ms=1),
        ProducerRecord(
            topic,
            b"headers",
            headers=(("a", b"1"), ("a", b"2"), ("none", None), ("empty", b""), ("ключ", b"\x00\xff\n\t")),
            timestamp_ms=_TIME_MS,
        ),
        ProducerRecord(topic, bytes(range(256)), key=bytes(range(255, -1, -1)), timestamp_ms=_TIME_MS),
        ProducerRecord(topic, b"squeeze me " * (_LARGE_BYTES // 11), timestamp_ms=_TIME_MS),
        ProducerRecord(topic, noise, key="großer Schlüssel".encode() * 50, timestamp_ms=_TIME_MS),
    ]
    small = [
        ProducerRecord(topic, f"reading {n} of sensor {n % 7}".encode(), timestamp_ms=_TIME_MS + n)
        for n in range(many)
    ]
    return [record._replace(partition=0) for record in (*few, *small)]


def as_read(sent: Sequence[ProducerRecord]) -> list[ReadRecord]:
    """What a consumer should read of these, sent in this order to an empty partition 0."""
    return [
        ReadRecord(0, offset, r.key, r.value, tuple(r.headers), r.timestamp_ms or 0, "CreateTime")
        for offset, r in enumerate(sent)
    ]


def assert_same(read: Sequence[ReadRecord], sent: Sequence[ReadRecord]) -> None:
    """As ==, but the failure shows the first record that differs and not megabytes."""
    for back, there in zip(read, sent, strict=True):
        for field, got, wanted in zip(ReadRecord._fields, back, there, strict=True):
            assert got == wanted, f"{field} of offset {there.offset}: {got!r:.200} instead of {wanted!r:.200}"
