"""A record batch is encoded by look-ups, one join and one checksum: counted, not timed (`benchmarks/`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.producer.results.producer_record import ProducerRecord
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.speed.counted_calls import calls_of
from tests.support.traced_memory import least_peak_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_BYTES: Final = 1 << 20
TIMESTAMP_MS: Final = 1_750_000_000_000
#: Pieces of a record: head, both deltas, key and its length, value and its length, no headers. A list takes
#: eight bytes for each, and grows an eighth ahead.
MOST_PIECES: Final = 8
BYTES_A_PIECE: Final = 9


def _records(count: int, key: bytes | None = None) -> list[ProducerRecord]:
    return [ProducerRecord("t", b"v" * 100, key) for _ in range(count)]


def _filled(records: Sequence[ProducerRecord]) -> MemoryRecordsBuilder:
    builder = MemoryRecordsBuilder(LIMIT_BYTES)
    assert builder.append_many(records, range(len(records)), 0, TIMESTAMP_MS) == len(records)
    return builder


@pytest.mark.parametrize("key", [None, b"key"])
def test_appending_calls_no_python_function_for_a_record(key: bytes | None) -> None:
    few, many = _records(10, key), _records(1_000, key)

    assert calls_of(lambda: _filled(many)).python == calls_of(lambda: _filled(few)).python


def test_building_costs_as_many_calls_for_a_thousand_records_as_for_ten() -> None:
    few, many = _filled(_records(10)), _filled(_records(1_000))

    assert calls_of(many.build) == calls_of(few.build)


def test_a_batch_is_joined_once_and_gone_over_once_for_its_checksum() -> None:
    calls = calls_of(_filled(_records(1_000)).build)

    assert 1 <= calls.c["crc32c"] <= 2  # the head's, which goes on over the records
    assert 1 <= calls.c["join"] <= 2  # the records' pieces, and the head before them


def test_building_twice_encodes_once() -> None:
    builder = _filled(_records(10))
    built = builder.build()

    calls = calls_of(builder.build)

    assert builder.build() is built
    assert not calls.c


@pytest.mark.parametrize("key", [None, b"key"])
def test_a_record_appended_takes_its_places_in_a_list_and_nothing_else(key: bytes | None) -> None:
    records = _records(1_000, key)
    filled: list[MemoryRecordsBuilder] = []

    def fill() -> None:
        builder = MemoryRecordsBuilder(LIMIT_BYTES)
        builder.append_many(records, range(1_000), 0, TIMESTAMP_MS)
        filled.append(builder)

    assert least_peak_bytes(fill) <= MOST_PIECES * BYTES_A_PIECE * 1_000
    assert {builder.record_count for builder in filled} == {1_000}
