"""Java's MemoryRecordsBuilder against ours: whether a record fits, and the batch's size after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client_core.producer.results.producer_record import ProducerRecord
from client_core.record.memory_records_builder import MemoryRecordsBuilder

if TYPE_CHECKING:
    from tests.golden.conftest import Cases


def _record(step: dict[str, Any]) -> ProducerRecord:
    key, value = (None if step[name] < 0 else bytes(step[name]) for name in ("key_len", "value_len"))
    headers = (("h", b"123"),) if step["header_h_3_bytes"] else ()
    return ProducerRecord("t", value, key, timestamp_ms=step["timestamp"], headers=headers)


@pytest.mark.golden("batch_room.json")
def test_a_batch_has_room_for_what_javas_has(cases: Cases) -> None:
    for case in cases:
        builder = MemoryRecordsBuilder(case["write_limit"])
        for step in case["steps"]:
            assert builder.append_many([_record(step)], (0,), 0, 0) == step["has_room"]
            if step["has_room"]:
                assert builder.estimated_size_bytes == step["estimated_size_after"]
                assert builder.is_full == step["is_full_after"]
        assert builder.record_count == case["num_records"]
        assert len(builder.build()) == case["final_size"]


@pytest.mark.golden("batch_room.json")
def test_append_many_takes_what_javas_has_room_for(cases: Cases) -> None:
    for case in cases:
        builder = MemoryRecordsBuilder(case["write_limit"])
        records = [_record(step) for step in case["steps"]]
        taken, refused = 0, 0
        while taken + refused < len(records):
            count = builder.append_many(records, range(len(records)), taken + refused, 0)
            taken, refused = taken + count, refused + (count == 0)
        assert taken == case["num_records"]
        assert len(builder.build()) == case["final_size"]
