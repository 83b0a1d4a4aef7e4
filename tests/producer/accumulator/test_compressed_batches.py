"""The effects of compression on a batch: how many records fit, the learnt ratio, and a broker's refusal.

First the accumulator alone, then Sender, then the whole producer over loopback. The codecs themselves are
tested in `tests/record/`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core import Errors, UnsupportedCompressionTypeError, Written
from client_core.events import BatchSent, BatchSplit, NodeDisconnected, ProduceFinished
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.wiring import accumulator_config
from client_core.producer.settings.config import ProducerConfig
from client_core.protocol.api_keys import ApiKey
from client_core.record.codecs import compression_for
from client_core.record.compression import Codec
from client_core.record.gzip_compression import GzipCompression
from client_core.record.lz4_compression import Lz4Compression
from client_core.record.memory_records_builder import LEAST_COMPRESSION_RATIO
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch
from client_core.record.snappy_compression import SnappyCompression
from client_core.record.zstd_compression import ZstdCompression
from client_core.testing import KAFKA_4_3, FakeCluster
from client_core.testing.controller import TopicConfig
from tests.producer.batches import (
    TOPIC,
    Bench,
    Owner,
    has_incomplete,
    has_undrained,
    record,
    tp,
    values_in,
)
from tests.record.codec_cases import PACKING_CODECS, codec_name
from tests.support.live_producer import live_producer, submit
from tests.support.recorded_events import RecordedEvents
from tests.support.sender_rig import ORDERS_0, SenderRig, produced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.record.compression import Compression

# -- twins of RecordAccumulatorTest --------------------------------------------------------------------------

SMALL_BATCH_BYTES: Final = 1024


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
    (batch,) = bench.drain()
    decoded = decode_record_batch(batch.records())
    (read,) = decoded.records()
    assert (decoded.codec, decoded.base_offset) == (Codec.GZIP, 0)
    assert (read.offset, read.key, read.value, read.timestamp_ms) == (0, b"key", bytes(1024), 0)


def complete_or_split(bench: Bench) -> tuple[int, int]:
    """Sends all that is ready; how many batches there were, and how many of them were too large."""
    splits = batches = 0
    while drained := bench.drain(*(node.id for node in bench.ready().ready_nodes or ())):
        for batch in drained:
            batches += 1
            if batch.estimated_size_bytes > SMALL_BATCH_BYTES + HEADER_SIZE:
                bench.accumulator.split_and_reenqueue(batch)
                bench.accumulator.complete_and_deallocate_batch(batch)
                splits += 1
            else:
                bench.finish(batch)
    return batches, splits


@pytest.mark.behaviour("ACC-14")
@pytest.mark.java("RecordAccumulatorTest.SplitFrequency")
def test_of_ten_batches_at_most_one_is_too_large_however_well_the_records_pack() -> None:
    for well_packed_percent in range(1, 100, 14):
        random = Random(well_packed_percent)
        bench = Bench(
            batch_bytes=SMALL_BATCH_BYTES, total_bytes=3 * 1024, linger_ms=10, compression=GzipCompression()
        )
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
        assert splits / batches < 0.1, well_packed_percent
        assert not has_undrained(bench)
        assert not has_incomplete(bench)
        assert bench.accumulator.batches_of(tp(0)) == ()


def test_the_expected_ratio_of_a_topic_is_forgotten_with_it() -> None:
    bench = Bench(batch_bytes=SMALL_BATCH_BYTES, compression=GzipCompression())
    bench.append([record(b"a")])
    bench.drain_and_finish_all()
    ratios, codecs = bench.accumulator._ratios, (Codec.GZIP, Codec.LZ4)
    for codec in codecs:
        ratios.set_estimation(TOPIC, codec, 0.5)
        ratios.set_estimation("stays", codec, 0.5)
    for is_held in (True, False):
        bench.accumulator.forget_topics(lambda _, is_held=is_held: is_held)  # type: ignore[misc]
        expected = {codec: ratios.estimation(TOPIC, codec) for codec in codecs}
        assert expected == dict.fromkeys(codecs, 0.5 if is_held else 1.0)
        assert {ratios.estimation("stays", codec) for codec in codecs} == {0.5}


BATCH_BYTES: Final = 2048

packing_codecs: Final = pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)


def values(count: int) -> list[bytes]:
    """Values of 100 bytes that pack to less than a third, and differ from each other."""
    return [
        b'{"id": %06d, "state": "paid", "currency": "EUR", "shop": "somewhere"}' % n * 2 for n in range(count)
    ]


def noise(count: int) -> list[bytes]:
    """Values of 100 bytes that can't be packed."""
    random = Random(8)
    return [random.randbytes(100) for _ in range(count)]


def ratio(bench: Bench, codec: Codec) -> float:
    """What is expected of the topic's next batch."""
    return bench.accumulator._ratios.estimation(TOPIC, codec)


def expect(bench: Bench, codec: Codec, expected: float) -> None:
    bench.accumulator._ratios.set_estimation(TOPIC, codec, expected)


def append(bench: Bench, what: Sequence[bytes], owner: Owner | None = None) -> None:
    records = [record(value) for value in what]
    assert bench.append(records, 0, owner).appended == len(records)


# -- how many records a batch takes (REC-05) ---------------------------------------------------------------


@packing_codecs
def test_nothing_is_expected_of_a_topics_first_batch(compression: Compression) -> None:
    packed, plain = Bench(batch_bytes=BATCH_BYTES, compression=compression), Bench(batch_bytes=BATCH_BYTES)
    for bench in (packed, plain):
        append(bench, values(100))
    first, as_if_plain = packed.drain(0)[0], plain.drain(0)[0]
    assert first.record_count == as_if_plain.record_count - 1  # a twentieth is kept in reserve
    assert len(first.records()) < 0.7 * BATCH_BYTES
    assert values_in(first) == values(100)[: first.record_count]


@pytest.mark.behaviour("REC-05")
@packing_codecs
def test_batches_take_more_as_it_is_learnt_that_they_pack_well(compression: Compression) -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, compression=compression)
    counts, expected = [], []
    for _ in range(150):
        append(bench, values(30))
        (batch,) = bench.drain(0)
        counts.append(batch.record_count)
        expected.append(ratio(bench, compression.codec))
        assert len(batch.records()) <= BATCH_BYTES
        bench.finish(batch)
    assert expected[:3] == pytest.approx([0.995, 0.99, 0.985])
    assert expected == sorted(expected, reverse=True)
    assert counts[-1] > 1.5 * counts[0]
    bench.drain_and_finish_all()


@pytest.mark.behaviour("REC-05")
def test_a_batch_that_packs_worse_than_expected_is_believed_at_once() -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, compression=GzipCompression())
    expect(bench, Codec.GZIP, 0.3)
    append(bench, noise(40))
    (batch,) = bench.drain(0)
    assert len(batch.records()) > BATCH_BYTES  # a batch that only the broker can refuse
    assert ratio(bench, Codec.GZIP) == batch.compression_ratio > 0.9


def test_the_expected_ratio_of_a_batch_is_fixed_at_its_beginning() -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, compression=GzipCompression())
    append(bench, values(1))
    expect(bench, Codec.GZIP, 0.2)
    append(bench, values(100))
    (first, second, *_) = bench.accumulator.batches_of(tp(0))
    assert second.record_count > 4 * first.record_count


def test_nothing_is_learnt_without_a_codec() -> None:
    bench = Bench(batch_bytes=BATCH_BYTES)
    append(bench, values(100))
    bench.drain_and_finish_all()
    assert repr(bench.accumulator._ratios) == "<CompressionRatioEstimator>"


def test_the_sticky_partition_is_left_after_what_batches_are_estimated_at() -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, compression=GzipCompression(), leaders=(0, 0))
    expect(bench, Codec.GZIP, 0.25)
    records = [record(value) for value in values(400)]
    assert bench.append(records, None).appended == 400
    batches = [batch for p in range(2) for batch in bench.accumulator.batches_of(tp(p))]
    full = [batch.record_count for batch in batches if batch.is_full]
    assert max(full) - min(full) <= 2  # none was torn apart in the middle
    assert {bool(bench.accumulator.batches_of(tp(p))) for p in range(2)} == {True}


# -- memory ------------------------------------------------------------------------------------------------


@packing_codecs
def test_a_batch_holds_its_share_of_the_memory_however_well_it_packs(compression: Compression) -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, total_bytes=4 * BATCH_BYTES, compression=compression)
    expect(bench, compression.codec, 0.2)
    append(bench, values(30))
    (batch,) = bench.accumulator.batches_of(tp(0))
    assert batch.uncompressed_size_bytes > 1.5 * BATCH_BYTES
    assert bench.pool.available_bytes == 3 * BATCH_BYTES
    bench.drain_and_finish_all()
    assert bench.pool.available_bytes == 4 * BATCH_BYTES


@packing_codecs
def test_records_that_wait_to_be_packed_are_bounded_by_the_memory(compression: Compression) -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, total_bytes=4 * BATCH_BYTES, compression=compression)
    expect(bench, compression.codec, 0.001)
    result = bench.append([record(bytes(100))] * 10_000)
    assert result.needed_bytes == BATCH_BYTES
    waiting = bench.accumulator.batches_of(tp(0))
    assert len(waiting) == 4
    raw_bytes = sum(batch.uncompressed_size_bytes for batch in waiting)
    assert 4 * BATCH_BYTES < raw_bytes < 4 * BATCH_BYTES / LEAST_COMPRESSION_RATIO


class CountedPacking:
    """gzip that counts how often it packs."""

    codec: Final = Codec.GZIP

    def __init__(self) -> None:
        self.packed = 0

    def compress(self, records: bytes, /) -> bytes:
        self.packed += 1
        return GzipCompression().compress(records)

    def decompress(self, packed: bytes, /, limit_bytes: int = 0) -> bytes:
        raise NotImplementedError


def test_records_are_packed_when_they_are_drained_and_once() -> None:
    compression = CountedPacking()
    bench, leaving = Bench(batch_bytes=BATCH_BYTES, compression=compression), Owner()
    append(bench, values(3), leaving)
    append(bench, values(5))
    bench.accumulator.cancel([leaving])
    assert compression.packed == 0
    (batch,) = bench.drain(0)
    assert decode_record_batch(batch.records()).codec is Codec.GZIP
    assert values_in(batch) == values(5)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    bench.clock.advance(1_000)
    assert bench.drain(0) == [batch]
    assert batch.records() is batch.records()
    assert compression.packed == 1


# -- splitting (ACC-14) ------------------------------------------------------------------------------------


@pytest.mark.behaviour("ACC-14", "REC-05")
@pytest.mark.java("RecordAccumulatorTest.SplitBatchOffAccumulator")
@packing_codecs
def test_the_parts_of_a_batch_are_as_if_nothing_could_be_packed_and_hold_no_memory(
    compression: Compression,
) -> None:
    bench, owner = Bench(batch_bytes=1024, total_bytes=3 * 1024, compression=compression), Owner()
    expect(bench, compression.codec, 0.1)
    append(bench, noise(20), owner)
    (batch,) = bench.drain(0)
    assert len(batch.records()) > 1024
    parts = bench.accumulator.split_and_reenqueue(batch)
    assert ratio(bench, compression.codec) == max(1.0, batch.compression_ratio), "until it has packed"
    bench.accumulator.complete_and_deallocate_batch(batch)
    assert parts > 1
    sent: list[bytes | None] = []
    for _ in range(parts):
        (part,) = bench.drain(*bench.ready_ids)
        assert decode_record_batch(part.records()).codec is compression.codec
        assert len(part.records()) <= 1024
        base = len(sent)
        sent += values_in(part)
        bench.finish(part, base)
    assert sent == noise(20)
    assert [owner.receipts[n].offset for n in range(20)] == list(range(20))
    assert bench.ready_ids == set()
    assert bench.pool.available_bytes == 3 * 1024


@packing_codecs
def test_the_expected_ratio_after_a_split_is_learnt_from_its_parts(compression: Compression) -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, compression=compression)
    append(bench, values(10))
    (batch,) = bench.drain(0)
    bench.accumulator.split_and_reenqueue(batch)  # a broker that takes less than batch.size
    assert ratio(bench, compression.codec) == 1.0
    bench.drain_and_finish_all()
    assert ratio(bench, compression.codec) == pytest.approx(0.99)  # two parts


def test_a_batch_larger_packed_than_plain_is_split_by_what_it_was() -> None:
    """LZ4, gzip and snappy put a head before what they could not pack."""
    bench = Bench(batch_bytes=BATCH_BYTES, compression=SnappyCompression())
    append(bench, noise(70))
    batch = bench.drain(0)[0]
    assert batch.compression_ratio > 1
    bench.accumulator.split_and_reenqueue(batch)
    assert ratio(bench, Codec.SNAPPY) == batch.compression_ratio


def test_records_that_unpack_to_more_than_any_reader_allows_by_default_are_split_all_the_same() -> None:
    bench = Bench(batch_bytes=80 * 2**20, total_bytes=2**28, compression=ZstdCompression())
    expect(bench, Codec.ZSTD, 0.1)
    large = record(bytes(2**20 + 1))
    assert bench.append([large] * 70).appended == 70
    (batch,) = bench.drain(0)
    assert batch.uncompressed_size_bytes > 2**26
    assert bench.accumulator.split_and_reenqueue(batch) == 2
    assert [part.record_count for part in bench.accumulator.batches_of(tp(0))] == [35, 35]


# -- Sender ------------------------------------------------------------------------------------------------


@packing_codecs
def test_the_events_of_a_sent_batch_have_its_packed_and_plain_sizes(compression: Compression) -> None:
    rig = SenderRig(compression=compression)
    rig.send(value=bytes(1000), count=5)
    rig.answer(produced(ORDERS_0, offset=0))
    (sent,), (finished,) = rig.events.of(BatchSent), rig.events.of(ProduceFinished)
    assert sent.raw_bytes == pytest.approx(5 * 1010 + HEADER_SIZE, abs=20)
    assert sent.batch_bytes == finished.batch_bytes < 500


@pytest.mark.behaviour("SND-09", "ACC-14")
@pytest.mark.parametrize("idempotent", [True, False])
@packing_codecs
def test_a_packed_batch_that_is_too_large_is_sent_again_in_parts(
    compression: Compression, idempotent: bool
) -> None:
    rig = SenderRig(
        batch_bytes=4_096,
        compression=compression,
        idempotent=idempotent,
        retries=0,
        guarantee_message_order=True,
    )
    rig.accumulator._ratios.set_estimation("orders", compression.codec, 0.1)
    futures = [rig.append(value=value) for value in noise(16)]
    rig.turn()
    log: list[bytes | None] = []
    while rig.client.requests:
        (batch,) = rig.sent(0)
        if batch.record_count > 4:
            rig.respond(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
        else:
            if idempotent:
                assert batch.base_sequence == len(log)
            rig.respond(produced(ORDERS_0, offset=len(log)))
            log += [read.value for read in batch.records()]
        rig.turn(2)
    assert log == noise(16)
    assert [future.result(0).offset for future in futures] == list(range(16))
    assert len(rig.events.of(BatchSplit)) == 3  # 16 to 8 and 8, each to 4 and 4
    assert rig.pool.available_bytes == rig.pool.total_bytes


@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_a_batch_whose_sequence_is_reset_is_not_packed_again(compression: Compression) -> None:
    bench = Bench(batch_bytes=BATCH_BYTES, compression=compression)
    append(bench, values(10))
    (batch,) = bench.drain(0)
    before = batch.records()
    batch.reset_producer_state(7, 1, 40)
    batch.close()
    after = decode_record_batch(batch.records())
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 1, 40)
    assert after.payload == before[HEADER_SIZE:]
    assert values_in(batch) == values(10)


# -- the whole producer ------------------------------------------------------------------------------------


def stored(cluster: FakeCluster, topic: str) -> list[bytes | None]:
    """The values in a partition's log."""
    batches = (decode_record_batch(batch.data) for batch in cluster.batches(topic))
    return [read.value for batch in batches for read in batch.records()]


@pytest.mark.behaviour("REC-06")
@packing_codecs
def test_a_producer_packs_as_its_setting_says(compression: Compression) -> None:
    settings: dict[str, str | int] = {"compression.type": compression.codec.config_name}
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        with live_producer(cluster.bootstrap_servers, settings) as producer:
            assert submit(producer, "orders", values(500)).offsets() == list(range(500))
        assert {batch.codec for batch in cluster.batches("orders")} == {compression.codec.id}
        assert stored(cluster, "orders") == values(500)
        assert sum(len(batch.data) for batch in cluster.batches("orders")) < 0.6 * sum(map(len, values(500)))


@packing_codecs
def test_records_too_small_to_raise_the_estimate_of_a_batch_are_sent_once(compression: Compression) -> None:
    codec = compression.codec
    settings: dict[str, str | int] = {"compression.type": codec.config_name, "linger.ms": 100}
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        with live_producer(cluster.bootstrap_servers, settings) as producer:
            producer.send(ProducerRecord("orders", b"")).result(30)
            producer._accumulator._ratios.set_estimation("orders", codec, 0.1)
            sent = [producer.send(ProducerRecord("orders", b"")) for _ in range(50)]
            assert [future.result(30).offset for future in sent] == list(range(1, 51))
        assert stored(cluster, "orders") == [b""] * 51


@pytest.mark.behaviour("ACC-14", "SND-09")
@packing_codecs
def test_a_broker_that_takes_less_than_a_batch_gets_every_record_once_and_in_order(
    compression: Compression,
) -> None:
    events = RecordedEvents()
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders", config=TopicConfig(max_message_bytes=1_000))
        settings: dict[str, str | int] = {"compression.type": compression.codec.config_name, "linger.ms": 5}
        with live_producer(cluster.bootstrap_servers, settings, events=events) as producer:
            mixed = [value for pair in zip(values(60), noise(60), strict=True) for value in pair]
            reported = submit(producer, "orders", mixed, partition=0)
            assert reported.offsets() == list(range(120))
        assert stored(cluster, "orders") == mixed
        assert max(len(batch.data) for batch in cluster.batches("orders")) <= 1_000
    assert events.of(BatchSplit)


@pytest.mark.behaviour("REC-06")
@pytest.mark.parametrize("idempotent", [True, False])
def test_zstd_is_not_sent_to_a_broker_that_does_not_know_it(idempotent: bool) -> None:
    """Java's I/O thread fails with this error, and the records wait until their delivery timeout."""
    with FakeCluster(brokers=1, versions={**KAFKA_4_3, ApiKey.PRODUCE.id: (3, 6)}) as cluster:
        cluster.create_topic("orders")
        settings: dict[str, str | bool] = {"compression.type": "zstd", "enable.idempotence": idempotent}
        events = RecordedEvents()
        with live_producer(cluster.bootstrap_servers, settings, events=events) as producer:
            for _ in range(2):
                failures = submit(producer, "orders", values(3), partition=0).failures()
                assert [type(failure.error) for failure in failures] == [UnsupportedCompressionTypeError] * 3
                assert {failure.written for failure in failures} == {Written.NO}
            assert failures[0].error.code == 76
            assert "version 6 are not allowed to use ZStandard" in str(failures[0].error)
            assert producer.status().buffer.batches == 0
            cluster.set_versions(KAFKA_4_3)  # an upgrade is seen at the next connect
            cluster.drop_connections(1)
            events.wait_for(NodeDisconnected, lambda ended: ended.node_id == 1)
            assert submit(producer, "orders", values(3), partition=0).offsets() == [0, 1, 2]
        assert {seen.version for seen in cluster.requests(ApiKey.PRODUCE)} == {13}


def test_other_codecs_are_sent_to_brokers_of_any_version() -> None:
    with FakeCluster(brokers=1, versions={**KAFKA_4_3, ApiKey.PRODUCE.id: (3, 3)}) as cluster:
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            cluster.create_topic(codec.config_name)
            settings: dict[str, str | int] = {"compression.type": codec.config_name}
            with live_producer(cluster.bootstrap_servers, settings) as producer:
                assert submit(producer, codec.config_name, values(3)).offsets() == [0, 1, 2]
            assert stored(cluster, codec.config_name) == values(3)


# -- settings ----------------------------------------------------------------------------------------------


CODECS_OF_SETTINGS: Final[list[tuple[dict[str, object], Compression]]] = [
    ({}, compression_for(Codec.NONE)),
    ({"compression.type": "snappy"}, SnappyCompression()),
    ({"compression.type": "gzip"}, GzipCompression(-1)),
    ({"compression.type": "gzip", "compression.gzip.level": 9}, GzipCompression(9)),
    ({"compression.type": "lz4"}, Lz4Compression(9)),
    ({"compression.type": "lz4", "compression.lz4.level": "17"}, Lz4Compression(17)),
    ({"compression.type": "zstd"}, ZstdCompression(3)),
    ({"compression.type": "zstd", "compression.zstd.level": -5}, ZstdCompression(-5)),
    ({"compression.type": "lz4", "compression.zstd.level": -5}, Lz4Compression(9)),
]


def test_settings_become_a_codec_at_its_level() -> None:
    for settings, compression in CODECS_OF_SETTINGS:
        config = ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092", **settings})
        assert accumulator_config(config, whole_requests=False).compression == compression, settings
