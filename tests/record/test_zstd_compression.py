from __future__ import annotations

import cramjam
import pytest

from client_core.errors import CorruptRecordError
from client_core.record.zstd_compression import ZstdCompression
from tests.record.codec_cases import PAYLOADS

ZSTD = ZstdCompression()


@pytest.mark.behaviour("REC-06")
def test_a_frame_is_these_bytes() -> None:
    assert ZSTD.compress(b"abc") == bytes.fromhex(
        "28b52ffd"  # magic, little-endian
        "20"  # a single segment: its size follows, no checksum
        "03"  # three bytes, unpacked
        "190000"  # the last block, stored as it is, of three bytes
        "616263"
    )


def test_a_frame_says_how_large_its_records_are() -> None:
    frame = ZSTD.compress(bytes(100_000))
    assert frame[4:9] == bytes.fromhex("a0") + (100_000).to_bytes(4, "little")  # a single segment


def test_a_frame_without_a_size_is_read_as_java_writes_it() -> None:
    # magic; no size; a window of 2 MiB; the last block, stored, of seven bytes
    frame = bytes.fromhex("28b52ffd 00 58 390000") + b"records"
    assert ZSTD.decompress(frame) == b"records"


def test_a_frame_with_a_checksum_is_read_and_verified() -> None:
    packer = cramjam.zstd.Compressor(level=3)
    packer.compress(PAYLOADS["text"])
    assert ZSTD.decompress(bytes(packer.finish())) == PAYLOADS["text"]
    # magic; a single segment of one byte with a checksum; the last block, stored; the checksum, of zeros
    with pytest.raises(CorruptRecordError, match="doesn't match checksum"):
        ZSTD.decompress(bytes.fromhex("28b52ffd 24 01 090000 61 00000000"))


def test_a_higher_level_packs_better() -> None:
    sizes = [len(ZstdCompression(level).compress(PAYLOADS["text"])) for level in (-131072, -5, 1, 22)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4


def test_a_frame_of_another_magic_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="Unknown frame descriptor"):
        ZSTD.decompress(b"\x29" + ZSTD.compress(b"records")[1:])


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    with pytest.raises(CorruptRecordError):
        ZSTD.decompress(bytes.fromhex("28b52ffd 20 02 190000 616263"))


def test_a_run_of_one_byte_that_unpacks_to_more_than_the_limit_is_refused() -> None:
    # A thousand blocks of four bytes, each of which unpacks to 128 KiB.
    head = bytes.fromhex("28b52ffd 00 38")  # magic; no size; a window of 128 KiB
    block, last = ((128 * 1024 << 3 | kind).to_bytes(3, "little") + b"x" for kind in (0b010, 0b011))
    assert len(ZSTD.decompress(head + block * 99 + last)) == 100 * 128 * 1024
    with pytest.raises(CorruptRecordError, match="larger than 67108864 bytes"):
        ZSTD.decompress(head + block * 999 + last)
