"""What holds for every codec at every level: what goes in comes out, and nothing worse than an error does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import CorruptRecordError, IllegalArgumentError, UnsupportedCompressionTypeError
from client_core.record.codecs import compression_for, compression_of
from client_core.record.compression import Codec, Compression
from client_core.record.gzip_compression import GzipCompression
from client_core.record.lz4_compression import Lz4Compression
from client_core.record.snappy_compression import SnappyCompression
from client_core.record.zstd_compression import ZstdCompression
from tests.record.codec_cases import EVERY_CODEC, EVERY_LEVEL, PACKING_CODECS, PAYLOADS, codec_name

ANY_BYTES = st.binary(max_size=300) | st.builds(
    lambda part, n: part * n, st.binary(max_size=9), st.integers(0, 999)
)


# -- the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_of_kafka_is_there(codec: Codec) -> None:
    assert compression_for(codec).codec is codec
    assert compression_of(codec.config_name).codec is codec


def test_a_codec_has_the_level_that_its_setting_names() -> None:
    levels = {"gzip_level": 2, "lz4_level": 3, "zstd_level": -4}
    assert compression_of("gzip", **levels) == GzipCompression(2)
    assert compression_of("lz4", **levels) == Lz4Compression(3)
    assert compression_of("zstd", **levels) == ZstdCompression(-4)
    assert compression_of("snappy", **levels) == SnappyCompression()


def test_no_gzip_level_is_zlibs_own_choice() -> None:
    assert compression_of("gzip", gzip_level=None) == GzipCompression(-1) == compression_for(Codec.GZIP)


def test_a_name_that_kafka_does_not_have_is_refused() -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match="Unknown compression name: brotli"):
        compression_of("brotli")


@pytest.mark.java("Lz4CompressionTest.CompressionLevels")
@pytest.mark.parametrize(
    ("name", "level"), [("lz4", 0), ("lz4", 18), ("gzip", 0), ("gzip", 10), ("gzip", -2)]
)
def test_a_level_that_a_codec_does_not_have_is_refused(name: str, level: int) -> None:
    with pytest.raises(
        IllegalArgumentError, match=f"{name} doesn't support given compression level: {level}"
    ):
        compression_of(name, gzip_level=level, lz4_level=level)


@pytest.mark.parametrize("level", [-131073, 23])
def test_a_level_that_zstd_does_not_have_is_refused(level: int) -> None:
    with pytest.raises(IllegalArgumentError, match="zstd doesn't support given compression level"):
        compression_of("zstd", zstd_level=level)


# -- there and back ----------------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-06")
@pytest.mark.java("Lz4CompressionTest.CompressionDecompression")
@pytest.mark.parametrize("kind", PAYLOADS)
@pytest.mark.parametrize("compression", EVERY_LEVEL, ids=repr)
def test_what_was_packed_is_unpacked_as_it_was(compression: Compression, kind: str) -> None:
    records = PAYLOADS[kind]
    packed = compression.compress(records)
    assert compression.decompress(packed) == records
    assert compression_for(compression.codec).decompress(packed) == records  # no reader knows the level


@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_packing_makes_it_smaller(compression: Compression) -> None:
    assert len(compression.compress(PAYLOADS["text"])) < len(PAYLOADS["text"]) / 1.5


@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_what_can_not_be_packed_grows_by_little(compression: Compression) -> None:
    records = PAYLOADS[f"random of {96 * 2**10}"]
    assert len(compression.compress(records)) < len(records) + 100


@given(st.sampled_from(EVERY_LEVEL), ANY_BYTES)
def test_any_bytes_come_back_from_any_codec_at_any_level(compression: Compression, records: bytes) -> None:
    assert compression.decompress(compression.compress(records)) == records


# -- no more than was agreed to ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["one byte", "text", f"ones of {2**16}", "random of 1000"])
@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_records_of_the_limit_are_unpacked_and_larger_ones_refused(
    compression: Compression, kind: str
) -> None:
    records = PAYLOADS[kind]
    packed = compression.compress(records)
    assert compression.decompress(packed, len(records)) == records
    with pytest.raises(CorruptRecordError, match=f"larger than {len(records) - 1} bytes"):
        compression.decompress(packed, len(records) - 1)


@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_a_small_batch_that_stands_for_gigabytes_is_refused_by_default(compression: Compression) -> None:
    bomb = compression.compress(bytes(65 * 2**20))
    with pytest.raises(CorruptRecordError, match=f"{codec_name(compression)}: they are larger than 67108864"):
        compression.decompress(bomb)


@pytest.mark.parametrize("compression", EVERY_CODEC, ids=codec_name)
def test_no_records_are_within_a_limit_of_nothing(compression: Compression) -> None:
    assert compression.decompress(compression.compress(b""), 0) == b""


# -- damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_no_bytes_at_all_are_refused(compression: Compression) -> None:
    with pytest.raises(CorruptRecordError, match=f"can't be unpacked with {codec_name(compression)}"):
        compression.decompress(b"")


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_a_stream_that_is_cut_off_anywhere_is_refused(name: str) -> None:
    compression = compression_of(name)
    packed = compression.compress(PAYLOADS["text"][:400])
    for length in range(len(packed)):
        with pytest.raises(CorruptRecordError, match=f"can't be unpacked with {name}"):
            compression.decompress(packed[:length])


@pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)
def test_bytes_behind_the_records_are_refused(compression: Compression) -> None:
    with pytest.raises(CorruptRecordError):
        compression.decompress(compression.compress(b"records") + b"more")


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
