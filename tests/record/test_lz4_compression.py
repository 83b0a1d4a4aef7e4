"""LZ4 frames; twins of Lz4CompressionTest. A frame is bytes here, and no stream that reads on demand."""

from __future__ import annotations

import struct

import cramjam
import pytest

from client_core.errors import CorruptRecordError
from client_core.record.lz4_compression import Lz4Compression, blocks_of
from tests.record.codec_cases import PAYLOADS

LZ4 = Lz4Compression()
HEAD = bytes.fromhex("04224d18 60 40 82")
LEVELS = (1, 9, 17)
STORED = 1 << 31

Frames = dict[tuple[int, str], bytes]


@pytest.fixture(scope="module")
def frames() -> Frames:
    """Every payload at each level."""
    return {
        (level, kind): Lz4Compression(level).compress(records)
        for level in LEVELS
        for kind, records in PAYLOADS.items()
    }


def read_blocks(frame: bytes) -> list[tuple[bool, bytes]]:
    """The blocks of a frame without checksums: whether they are stored as they are, and their bytes."""
    blocks, position = [], len(HEAD)
    while length := struct.unpack_from("<I", frame, position)[0]:
        size = length & ~STORED
        blocks.append((bool(length & STORED), frame[position + 4 : position + 4 + size]))
        position += 4 + size
    assert position + 4 == len(frame)
    return blocks


@pytest.mark.behaviour("REC-06")
@pytest.mark.java("Lz4CompressionTest.Compression")
def test_a_frame_has_javas_head_and_ends_with_its_mark(frames: Frames) -> None:
    head = bytes.fromhex(
        "04224d18"  # magic, little-endian
        "60"  # version 1, independent blocks; no checksums, no size
        "40"  # blocks of 64 KiB at most
        "82"  # of the xxhash of these two: the second byte
    )
    assert {case: (frame[:7], frame[-4:]) for case, frame in frames.items()} == dict.fromkeys(
        frames, (head, bytes(4))
    )


def test_a_frame_is_these_bytes() -> None:
    assert LZ4.compress(b"") == HEAD + bytes(4)
    assert LZ4.compress(b"abc") == HEAD + bytes.fromhex("03000080 616263") + bytes(4)
    assert LZ4.compress(b"a" * 100) == HEAD + bytes.fromhex(
        "0b000000"  # a block of 11 bytes
        "1f 61 0100 4b"  # one literal, then 94 bytes from 1 back (15 + 75 + 4)
        "50 6161616161"  # five literals
    ) + bytes(4)


@pytest.mark.parametrize("level", LEVELS)
def test_a_block_holds_64_kib_and_is_stored_where_packing_gains_nothing(level: int) -> None:
    records = PAYLOADS[f"random of {2**16 + 1}"]
    assert read_blocks(Lz4Compression(level).compress(records)) == [
        (True, records[: 2**16]),
        (True, records[2**16 :]),
    ]
    packed = read_blocks(Lz4Compression(level).compress(PAYLOADS[f"ones of {96 * 2**10}"]))
    unpacked = [bytes(cramjam.lz4.decompress_block(block, output_len=2**16)) for _, block in packed]
    assert [stored for stored, _ in packed] == [False, False]
    assert unpacked[0] == b"\x01" * 2**16


def test_the_default_is_the_fast_compressor_and_every_other_level_packs_better() -> None:
    sizes = {level: len(Lz4Compression(level).compress(PAYLOADS["text"])) for level in range(1, 18)}
    assert max(sizes, key=lambda level: sizes[level]) == 9
    assert sizes[12] < sizes[3] < sizes[1] < sizes[9]
    assert sizes[17] == sizes[12]


@pytest.mark.parametrize("content_checksum", [True, False])
@pytest.mark.parametrize("linked", [True, False])
def test_frames_with_checksums_or_linked_blocks_are_read(linked: bool, content_checksum: bool) -> None:
    packer = cramjam.lz4.Compressor(level=1, content_checksum=content_checksum, block_linked=linked)
    packer.compress(PAYLOADS["text"])
    frame = bytes(packer.finish())
    assert LZ4.decompress(frame) == PAYLOADS["text"]
    if content_checksum:
        with pytest.raises(CorruptRecordError, match="contentChecksum_invalid"):
            LZ4.decompress(frame[:-1] + bytes([frame[-1] ^ 1]))


def test_a_frame_with_its_contents_size_is_read() -> None:
    # magic, version 1 with independent blocks and a size, blocks of 4 MiB, the size, the head's checksum
    head = bytes.fromhex("04224d18 68 70 0300000000000000 cc")
    assert LZ4.decompress(head + bytes.fromhex("03000080 616263") + bytes(4)) == b"abc"


@pytest.mark.java("Lz4CompressionTest.HeaderPrematureEnd")
def test_a_frame_that_ends_in_its_head_is_refused() -> None:
    for length in range(1, 11):
        with pytest.raises(CorruptRecordError, match="lz4: truncated frame"):
            LZ4.decompress((HEAD + bytes(4))[:length])


@pytest.mark.java("Lz4CompressionTest.NotSupported")
def test_another_magic_is_refused(frames: Frames) -> None:
    for frame in frames.values():
        with pytest.raises(CorruptRecordError, match="ERROR_frameType_unknown"):
            LZ4.decompress(b"\x00" + frame[1:])


@pytest.mark.java("Lz4CompressionTest.BadFrameChecksum")
def test_a_head_whose_checksum_is_wrong_is_refused(frames: Frames) -> None:
    for frame in frames.values():
        with pytest.raises(CorruptRecordError, match="ERROR_headerChecksum_invalid"):
            LZ4.decompress(frame[:6] + b"\xff" + frame[7:])


@pytest.mark.java("Lz4CompressionTest.BadBlockSize")
def test_a_block_larger_than_the_head_allows_is_refused(frames: Frames) -> None:
    for frame in frames.values():
        (length,) = struct.unpack_from("<I", frame, 7)
        damaged = frame[:7] + struct.pack("<I", length & STORED | 1 << 24) + frame[11:]
        with pytest.raises(CorruptRecordError, match="ERROR_maxBlockSize_invalid"):
            LZ4.decompress(damaged)


def test_another_version_or_a_reserved_flag_is_refused() -> None:
    for flags in ("20", "a0", "e0", "62"):
        with pytest.raises(CorruptRecordError, match="lz4: ERROR_"):
            LZ4.decompress(HEAD[:4] + bytes.fromhex(flags) + HEAD[5:] + bytes(4))


def test_the_blocks_of_a_frame_are_the_same_with_checksums_and_without() -> None:
    """cramjam puts a checksum behind each block; another version of it may not."""
    blocks = [b"\x03\0\0\x80abc", b"\x02\0\0\x80de"]
    plain, flagged = bytes.fromhex("04224d18 60 40 82"), bytes.fromhex("04224d18 70 40 82")
    other = bytes.fromhex("04224d18 61 40 82")  # a bit of the flags that says something else
    for head in (plain, other):
        assert list(blocks_of(head + b"".join(blocks) + bytes(4))) == blocks, head
    assert list(blocks_of(flagged + b"".join(block + b"sum." for block in blocks) + bytes(4))) == blocks
