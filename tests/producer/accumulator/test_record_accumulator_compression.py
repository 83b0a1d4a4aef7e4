"""RecordAccumulator with a codec: batches whose size is a guess, and that are split where it was wrong.

Twins of RecordAccumulatorTest.
"""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from client_core.record.compression import Codec
from client_core.record.gzip_compression import GzipCompression
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch
from tests.producer.batches import TOPIC, Bench, has_incomplete, has_undrained, queued, record, tp

BATCH_BYTES: Final = 1024


def poorly_packed(random: Random) -> bytes:
    """What can't be packed at all."""
    return random.randbytes(100)


def well_packed(random: Random) -> bytes:
    """What packs to about six tenths."""
    return b"".join(random.randrange(1000).to_bytes(4) for _ in range(25))


@pytest.mark.behaviour("ACC-02")
@pytest.mark.java("RecordAccumulatorTest.AppendLargeCompressed")
def test_a_record_larger_than_a_batch_is_packed_alone() -> None:
    bench = Bench(batch_bytes=512 + HEADER_SIZE, total_bytes=10 * 1024, compression=GzipCompression())
    bench.append([record(bytes(1024), b"key", timestamp_ms=0)])
    assert bench.ready_ids == {0}
    assert queued(bench, 0) == [1]
    (batch,) = bench.drain()
    decoded = decode_record_batch(batch.records())
    (read,) = decoded.records()
    assert (decoded.codec, decoded.base_offset) == (Codec.GZIP, 0)
    assert (read.offset, read.key, read.value, read.timestamp_ms) == (0, b"key", bytes(1024), 0)


@pytest.mark.behaviour("ACC-14")
@pytest.mark.java("RecordAccumulatorTest.SplitBatchOffAccumulator")
def test_the_parts_of_a_batch_that_packed_worse_than_expected_hold_no_memory() -> None:
    random = Random(5)
    bench = Bench(batch_bytes=BATCH_BYTES, total_bytes=3 * 1024, compression=GzipCompression())
    bench.accumulator._ratios.set_estimation(TOPIC, Codec.GZIP, 0.1)
    for _ in range(20):
        bench.append([record(poorly_packed(random))])
    (batch,) = bench.drain(*(node.id for node in bench.ready().ready_nodes))
    assert len(batch.records()) > BATCH_BYTES
    parts = bench.accumulator.split_and_reenqueue(batch)
    ratio = bench.accumulator._ratios.estimation(TOPIC, Codec.GZIP)
    assert ratio == max(1.0, batch.compression_ratio), "nothing is expected to pack until it has"
    bench.accumulator.complete_and_deallocate_batch(batch)
    assert parts > 1
    for _ in range(parts):
        (part,) = bench.drain(*(node.id for node in bench.ready().ready_nodes))
        assert len(part.records()) <= BATCH_BYTES
    assert bench.ready_ids == set()
    assert bench.pool.available_bytes == 3 * 1024


def complete_or_split(bench: Bench) -> tuple[int, int]:
    """Sends all that is ready; how many batches there were, and how many of them were too large."""
    splits = batches = 0
    while drained := bench.drain(*(node.id for node in bench.ready().ready_nodes or ())):
        for batch in drained:
            batches += 1
            if batch.estimated_size_bytes > BATCH_BYTES + HEADER_SIZE:
                bench.accumulator.split_and_reenqueue(batch)
                bench.accumulator.complete_and_deallocate_batch(batch)
                splits += 1
            else:
                bench.finish(batch)
    return batches, splits


@pytest.mark.behaviour("ACC-14")
@pytest.mark.java("RecordAccumulatorTest.SplitFrequency")
@pytest.mark.parametrize("well_packed_percent", range(1, 100, 7))
def test_of_ten_batches_at_most_one_is_too_large_however_well_the_records_pack(
    well_packed_percent: int,
) -> None:
    random = Random(well_packed_percent)
    bench = Bench(batch_bytes=BATCH_BYTES, total_bytes=3 * 1024, linger_ms=10, compression=GzipCompression())
    batches = splits = 0
    for number in range(1001):
        if number == 1000:
            bench.clock.advance(10)  # the last one has lingered
        else:
            make = well_packed if random.randrange(100) < well_packed_percent else poorly_packed
            assert bench.append([record(make(random))]).appended == 1
        sent, too_large = complete_or_split(bench)
        batches, splits = batches + sent, splits + too_large
    assert batches > 50
    assert splits / batches < 0.1
    assert not has_undrained(bench)
    assert not has_incomplete(bench)
    assert bench.accumulator.batches_of(tp(0)) == ()


def test_what_is_expected_of_a_topic_goes_with_it() -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, compression=GzipCompression())
    bench.append([record(b"a")])
    (batch,) = bench.drain(*(node.id for node in bench.ready().ready_nodes))
    bench.finish(batch)
    bench.accumulator._ratios.set_estimation(TOPIC, Codec.GZIP, 0.5)
    bench.accumulator.forget_topics(lambda topic: True)
    assert bench.accumulator._ratios.estimation(TOPIC, Codec.GZIP) == 0.5
    bench.accumulator.forget_topics(lambda topic: False)
    assert bench.accumulator._ratios.estimation(TOPIC, Codec.GZIP) == 1.0
