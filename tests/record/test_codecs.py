"""Rules for every codec at every level: round trips are exact, and bad input gives only an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import (
    CorruptRecordError,
    IllegalArgumentError,
    KafkaError,
    UnsupportedCompressionTypeError,
)
from client_core.record.codecs import compression_for, compression_of
from client_core.record.compression import NO_COMPRESSION, Codec, Compression
from client_core.record.gzip_compression import GzipCompression
from client_core.record.lz4_compression import Lz4Compression
from client_core.record.snappy_compression import SnappyCompression
from client_core.record.zstd_compression import ZstdCompression
from tests.record.codec_cases import EVERY_CODEC, EVERY_LEVEL, PACKING_CODECS, PAYLOADS, codec_name

ANY_BYTES = st.binary(max_size=300) | st.builds(
    lambda part, n: part * n, st.binary(max_size=9), st.integers(0, 999)
)


# -- the table ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-06")
def test_codecs_have_kafkas_ids_and_names() -> None:
    named = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
    assert {codec.id: codec.config_name for codec in Codec} == named
    for codec_id, name in named.items():
        codec = Codec.of(codec_id)
        assert (codec.id, codec.config_name) == (codec_id, name)
        assert Codec.named(name) is codec
        assert compression_for(codec).codec is codec
        assert compression_of(name).codec is codec


def test_an_id_that_kafka_does_not_have_is_a_corrupt_batch() -> None:
    for codec_id in (5, 6, 7):
        with pytest.raises(CorruptRecordError, match=f"Unknown compression type id: {codec_id}"):
            Codec.of(codec_id)


def test_no_compression_leaves_records_as_they_are() -> None:
    assert NO_COMPRESSION.compress(b"records") == b"records"
    assert NO_COMPRESSION.decompress(b"records") == b"records"


def test_a_codec_has_the_level_that_its_setting_names() -> None:
    levels = {"gzip_level": 2, "lz4_level": 3, "zstd_level": -4}
    assert compression_of("gzip", **levels) == GzipCompression(2)
    assert compression_of("lz4", **levels) == Lz4Compression(3)
    assert compression_of("zstd", **levels) == ZstdCompression(-4)
    assert compression_of("snappy", **levels) == SnappyCompression()


def test_no_gzip_level_is_zlibs_own_choice() -> None:
    assert compression_of("gzip", gzip_level=None) == GzipCompression(-1) == compression_for(Codec.GZIP)


def test_a_name_that_kafka_does_not_have_is_refused() -> None:
    for name in ("", "NONE", "brotli"):
        for read in (Codec.named, compression_of):
            with pytest.raises(UnsupportedCompressionTypeError, match=f"Unknown compression name: {name}"):
                read(name)


@pytest.mark.java("Lz4CompressionTest.CompressionLevels")
def test_a_level_that_a_codec_does_not_have_is_refused() -> None:
    for name, levels in {"lz4": (0, 18), "gzip": (0, 10, -2), "zstd": (-131073, 23)}.items():
        for level in levels:
            said = f"{name} doesn't support given compression level: {level}"
            with pytest.raises(IllegalArgumentError, match=said):
                compression_of(name, gzip_level=level, lz4_level=level, zstd_level=level)


# -- there and back ----------------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-06")
@pytest.mark.java("Lz4CompressionTest.CompressionDecompression")
def test_packed_bytes_unpack_to_the_same() -> None:
    for compression in EVERY_LEVEL:
        for kind, records in PAYLOADS.items():
            packed = compression.compress(records)
            assert compression.decompress(packed) == records, (compression, kind)
            # No reader knows the level.
            assert compression_for(compression.codec).decompress(packed) == records, (compression, kind)


def test_packing_makes_it_smaller_and_what_can_not_be_packed_grows_by_little() -> None:
    text, random = PAYLOADS["text"], PAYLOADS[f"random of {96 * 2**10}"]
    for compression in PACKING_CODECS:
        assert len(compression.compress(text)) < len(text) / 1.5, compression
        assert len(compression.compress(random)) < len(random) + 100, compression


@given(st.sampled_from(EVERY_LEVEL), ANY_BYTES)
def test_any_bytes_come_back_from_any_codec_at_any_level(compression: Compression, records: bytes) -> None:
    assert compression.decompress(compression.compress(records)) == records


# -- no more than was agreed to ----------------------------------------------------------------------------


@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_records_of_the_limit_are_unpacked_and_larger_ones_refused(compression: Compression) -> None:
    for kind in ("one byte", "text", f"ones of {2**16}", "random of 1000"):
        records = PAYLOADS[kind]
        packed = compression.compress(records)
        assert compression.decompress(packed, len(records)) == records, kind
        with pytest.raises(CorruptRecordError, match=f"larger than {len(records) - 1} bytes"):
            compression.decompress(packed, len(records) - 1)


@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_a_small_batch_that_unpacks_to_gigabytes_is_refused_by_default(compression: Compression) -> None:
    bomb = compression.compress(bytes(65 * 2**20))
    with pytest.raises(CorruptRecordError, match=f"{codec_name(compression)}: they are larger than 67108864"):
        compression.decompress(bomb)


def test_a_limit_that_memory_does_not_allow_says_so() -> None:
    for codec in (Lz4Compression(), ZstdCompression()):
        with pytest.raises(KafkaError, match=f"There is no memory to unpack up to {1 << 62} bytes"):
            codec.decompress(codec.compress(b"records"), 1 << 62)


def test_no_records_are_within_a_limit_of_nothing() -> None:
    for compression in EVERY_CODEC:
        assert compression.decompress(compression.compress(b""), 0) == b"", compression


# -- damage ------------------------------------------------------------------------------------------------


def test_no_bytes_at_all_and_bytes_behind_the_records_are_refused() -> None:
    for compression in PACKING_CODECS:
        with pytest.raises(CorruptRecordError, match=f"can't be unpacked with {codec_name(compression)}"):
            compression.decompress(b"")
        with pytest.raises(CorruptRecordError, match=codec_name(compression)):
            compression.decompress(compression.compress(b"records") + b"more")


def test_a_stream_that_is_cut_off_anywhere_is_refused() -> None:
    for name in ("gzip", "lz4", "zstd"):
        compression = compression_of(name)
        packed = compression.compress(PAYLOADS["text"][:400])
        for length in range(len(packed)):
            with pytest.raises(CorruptRecordError, match=f"can't be unpacked with {name}"):
                compression.decompress(packed[:length])


@given(
    st.sampled_from(EVERY_LEVEL),
    ANY_BYTES,
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=4),
)
def test_flipped_bits_do_no_more_harm_than_a_corrupt_record_error(
    compression: Compression, records: bytes, flips: list[tuple[float, int]]
) -> None:
    damaged = bytearray(compression.compress(records))
    for where, bit in flips:
        damaged[int(where * len(damaged))] ^= 1 << bit
    try:
        unpacked = compression.decompress(bytes(damaged), 10_000)
    except CorruptRecordError:
        return
    assert len(unpacked) <= 10_000  # a batch's checksum is what finds the rest


@given(st.sampled_from(PACKING_CODECS), st.binary(max_size=200))
def test_any_bytes_do_no_more_harm_than_a_corrupt_record_error(
    compression: Compression, packed: bytes
) -> None:
    try:
        unpacked = compression.decompress(packed, 10_000)
    except CorruptRecordError:
        return
    assert len(unpacked) <= 10_000
