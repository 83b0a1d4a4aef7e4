"""A partition of the fake cluster takes and refuses batches as a 4.3.1 broker was seen to do."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from client_core.error_codes import Errors
from client_core.testing import StoredRecord, TopicConfig
from client_core.testing.partition_log import Appended, PartitionLog, read_batch, records_of
from tests.support_tests.batches import TIMESTAMP_MS, batch

_NOW_MS: Final = TIMESTAMP_MS + 1_000
_GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden" / "data" / "record_batches.json"


def _append(log: PartitionLog, data: bytes | None, config: TopicConfig | None = None) -> Appended:
    return log.append(data, config or TopicConfig(), _NOW_MS)


def test_offsets_go_on_from_batch_to_batch_and_records_come_back() -> None:
    log = PartitionLog()
    assert _append(log, batch(b"a", None)) == Appended(Errors.NONE, 0)
    assert _append(log, batch(b"c", key=b"k", headers=[("h", b"1"), ("n", None)])) == Appended(Errors.NONE, 2)
    assert log.end_offset == 3
    assert log.records(5) == [
        StoredRecord(5, 0, TIMESTAMP_MS, None, b"a", ()),
        StoredRecord(5, 1, TIMESTAMP_MS, None, None, ()),
        StoredRecord(5, 2, TIMESTAMP_MS, b"k", b"c", (("h", b"1"), ("n", None))),
    ]


@pytest.mark.parametrize("data", [None, b"", batch(b"a") + batch(b"b")])
def test_anything_but_exactly_one_batch_is_an_invalid_record(data: bytes | None) -> None:
    assert _append(PartitionLog(), data).error is Errors.INVALID_RECORD


@pytest.mark.parametrize("byte", [17, 21, 40, 60, 65])
def test_a_damaged_batch_is_corrupt(byte: int) -> None:
    damaged = bytearray(batch(b"value"))
    damaged[byte] ^= 1
    log = PartitionLog()
    assert _append(log, bytes(damaged)).error is Errors.CORRUPT_MESSAGE
    assert not log.batches


@pytest.mark.parametrize("length", [1, 60, 61, 67])
def test_a_truncated_batch_is_corrupt(length: int) -> None:
    assert _append(PartitionLog(), batch(b"value")[:length]).error is Errors.CORRUPT_MESSAGE


def test_a_batch_above_the_topics_limit_is_too_large() -> None:
    config = TopicConfig(max_message_bytes=100)
    assert _append(PartitionLog(), batch(b"x" * 100), config).error is Errors.MESSAGE_TOO_LARGE


def test_a_timestamp_more_than_an_hour_ahead_is_invalid_and_an_old_one_is_not() -> None:
    hour_ms = 3_600_000
    assert _append(PartitionLog(), batch(b"a", timestamp_ms=_NOW_MS + hour_ms)).error is Errors.NONE
    late = batch(b"a", timestamp_ms=_NOW_MS + hour_ms + 1)
    assert _append(PartitionLog(), late).error is Errors.INVALID_TIMESTAMP
    assert _append(PartitionLog(), batch(b"a", timestamp_ms=-1)).error is Errors.NONE


def test_a_topic_of_log_append_time_stamps_records_and_answer() -> None:
    log = PartitionLog()
    assert _append(log, batch(b"a"), TopicConfig(log_append_time=True)) == Appended(Errors.NONE, 0, _NOW_MS)
    assert [record.timestamp_ms for record in log.records(0)] == [_NOW_MS]


# -- idempotence ---------------------------------------------------------------------------------------------


def _sequence(log: PartitionLog, base: int, *, epoch: int = 0, count: int = 1) -> Appended:
    return _append(log, batch(*[b"v"] * count, producer=(7, epoch, base)))


def test_a_duplicate_of_one_of_the_last_five_batches_gets_its_first_offset_again() -> None:
    log = PartitionLog()
    for base in range(6):
        assert _sequence(log, base).base_offset == base
    assert _sequence(log, 1) == Appended(Errors.NONE, 1, TIMESTAMP_MS)
    assert _sequence(log, 5) == Appended(Errors.NONE, 5, TIMESTAMP_MS)
    assert log.end_offset == 6


def test_an_older_duplicate_is_out_of_order_as_a_real_broker_has_it() -> None:
    log = PartitionLog()
    for base in range(6):
        _sequence(log, base)
    assert _sequence(log, 0).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order_and_stores_nothing() -> None:
    log = PartitionLog()
    _sequence(log, 0, count=3)
    assert _sequence(log, 4).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _sequence(log, 3).base_offset == 3


def test_a_new_epoch_begins_at_zero_and_an_old_one_is_fenced() -> None:
    log = PartitionLog()
    _sequence(log, 0)
    assert _sequence(log, 1, epoch=1).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _sequence(log, 0, epoch=1).base_offset == 1
    assert _sequence(log, 1, epoch=0).error is Errors.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = PartitionLog()
    assert _sequence(log, 5).error is Errors.NONE
    log.forget_producers()
    assert _sequence(log, 77).error is Errors.NONE


def test_after_a_kill_the_last_batch_is_known_and_those_before_it_are_out_of_order() -> None:
    log = PartitionLog()
    for sequence in range(3):
        _sequence(log, sequence)
    log.recover_producers()
    assert _sequence(log, 2).base_offset == 2
    assert _sequence(log, 1).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _sequence(log, 3).base_offset == 3


def test_sequences_go_round_behind_the_largest_int32() -> None:
    log = PartitionLog()
    assert _sequence(log, (1 << 31) - 2, count=3).error is Errors.NONE
    assert _sequence(log, 1).error is Errors.NONE


# -- against Java --------------------------------------------------------------------------------------------


def test_batches_of_the_java_client_are_read_as_it_wrote_them() -> None:
    codecs = Counter[int]()
    for case in json.loads(_GOLDEN.read_text(encoding="utf-8")):
        stored = read_batch(bytes.fromhex(case["batch"]))
        records = records_of(stored)
        assert len(records) == len(case["records"])
        for record, expected in zip(records, case["records"], strict=True):
            assert record.key == (None if expected.get("key") is None else bytes.fromhex(expected["key"]))
            if "value_repeat" in expected:
                piece, times = expected["value_repeat"]
                assert record.value == bytes.fromhex(piece) * times
            else:
                assert record.value == (
                    None if expected.get("value") is None else bytes.fromhex(expected["value"])
                )
        codecs[stored.codec] += 1
    assert sorted(codecs) == [0, 1, 2, 3, 4]
    assert codecs.total() >= 50  # the file is there
