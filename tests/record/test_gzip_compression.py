from __future__ import annotations

import gzip
import zlib

import pytest

from client_core.errors import CorruptRecordError
from client_core.record.gzip_compression import GzipCompression
from tests.record.codec_cases import PAYLOADS


@pytest.mark.behaviour("REC-06")
def test_a_stream_is_these_bytes() -> None:
    assert GzipCompression().compress(b"") == bytes.fromhex(
        "1f8b"  # gzip
        "08"  # deflate
        "00"  # flags: no name, no comment, nothing extra
        "00000000"  # made at no time
        "00"  # no word on the level
        "ff"  # on an unknown system
        "0300"  # one empty block, the last
        "00000000"  # its CRC-32
        "00000000"  # its size
    )


def test_the_head_is_the_same_at_every_level() -> None:
    assert {GzipCompression(level).compress(b"records")[:10] for level in (-1, *range(1, 10))} == {
        bytes.fromhex("1f8b08000000000000ff")
    }


@pytest.mark.parametrize("kind", PAYLOADS)
def test_the_standard_librarys_gzip_reads_it(kind: str) -> None:
    assert gzip.decompress(GzipCompression().compress(PAYLOADS[kind])) == PAYLOADS[kind]


def test_the_level_is_zlibs() -> None:
    records = PAYLOADS["text"]
    for level in range(1, 10):
        bare = zlib.compressobj(level, zlib.DEFLATED, -15)
        deflated = bare.compress(records) + bare.flush()
        assert GzipCompression(level).compress(records)[10:-8] == deflated


def test_a_stream_with_a_name_and_a_time_is_read() -> None:
    packed = gzip.compress(b"records", mtime=1_700_000_000)
    named = packed[:3] + b"\x08" + packed[4:10] + b"orders.txt\x00" + packed[10:]
    assert GzipCompression().decompress(packed) == GzipCompression().decompress(named) == b"records"


@pytest.mark.parametrize(
    ("at", "said"),
    [(0, "incorrect header check"), (2, "unknown compression method"), (-8, "incorrect data check")],
)
def test_a_damaged_stream_is_refused(at: int, said: str) -> None:
    damaged = bytearray(GzipCompression().compress(b"records"))
    damaged[at] ^= 0xFF
    with pytest.raises(CorruptRecordError, match=said):
        GzipCompression().decompress(bytes(damaged))


def test_a_stream_of_zlib_is_none_of_gzip() -> None:
    with pytest.raises(CorruptRecordError, match="incorrect header check"):
        GzipCompression().decompress(zlib.compress(b"records"))


def test_a_size_that_is_not_that_of_the_records_is_refused() -> None:
    packed = GzipCompression().compress(b"records")
    with pytest.raises(CorruptRecordError, match="incorrect length check"):
        GzipCompression().decompress(packed[:-4] + b"\x08\x00\x00\x00")


def test_a_second_stream_behind_the_first_is_refused() -> None:
    packed = GzipCompression().compress(b"records")
    with pytest.raises(CorruptRecordError, match=f"{len(packed)} bytes follow the stream"):
        GzipCompression().decompress(packed + packed)


def test_a_limit_that_is_no_size_is_a_bug_and_no_corrupt_record() -> None:
    with pytest.raises(OverflowError):
        GzipCompression().decompress(GzipCompression().compress(b"records"), 1 << 70)
