from __future__ import annotations

import cramjam
import pytest

from client_core.errors import CorruptRecordError
from client_core.record.snappy_compression import SnappyCompression
from tests.record.codec_cases import PAYLOADS

SNAPPY = SnappyCompression()
HEAD = bytes.fromhex("82534e4150505900 00000001 00000001")


@pytest.mark.behaviour("REC-06")
def test_a_stream_is_these_bytes() -> None:
    assert SNAPPY.compress(b"abc") == bytes.fromhex(
        "82534e4150505900"  # \x82 SNAPPY \0
        "00000001"  # version
        "00000001"  # the oldest version that can read it
        "00000005"  # a block of five bytes
        "03"  # three bytes, unpacked
        "08 616263"  # a literal of three bytes
    )


def test_no_records_are_a_head_alone() -> None:
    assert SNAPPY.compress(b"") == HEAD
    assert SNAPPY.decompress(HEAD) == b""


def test_a_block_holds_32_kib() -> None:
    packed = SNAPPY.compress(PAYLOADS[f"ones of {96 * 2**10}"])
    sizes, position = [], len(HEAD)
    while position < len(packed):
        length = int.from_bytes(packed[position : position + 4], "big")
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert sizes == [32 * 1024] * 3


@pytest.mark.parametrize("kind", ["one byte", "text", "random of 1000"])
def test_raw_snappy_without_a_frame_is_read_as_some_clients_write_it(kind: str) -> None:
    assert SNAPPY.decompress(bytes(cramjam.snappy.compress_raw(PAYLOADS[kind]))) == PAYLOADS[kind]


def test_blocks_of_any_size_are_read() -> None:
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (b"", b"a", b"b" * 100_000)]
    framed = b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    assert SNAPPY.decompress(HEAD + framed) == b"a" + b"b" * 100_000


def test_a_later_version_that_ours_can_read_is_read() -> None:
    assert SNAPPY.decompress(HEAD[:8] + bytes.fromhex("00000002 00000001")) == b""


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (HEAD[:15], "the head is cut off"),
        (HEAD[:8] + bytes(8), "version 0 of the framing is unknown"),
        (HEAD + bytes(3), "a block's length is cut off"),
        (HEAD + bytes.fromhex("00000005 0308"), "a block of 5 bytes, but only 2 are left"),
        (HEAD + bytes.fromhex("ffffffff 00"), "a block of -1 bytes, but only 1 are left"),
        (HEAD + bytes.fromhex("7fffffff 00"), "a block of 2147483647 bytes, but only 1 are left"),
        (HEAD + bytes.fromhex("00000000"), "a block is empty"),
        (HEAD + bytes.fromhex("00000002 0308"), "snappy: corrupt input"),
        (bytes.fromhex("0308"), "snappy: corrupt input"),
    ],
)
def test_a_damaged_stream_is_refused(packed: bytes, said: str) -> None:
    with pytest.raises(CorruptRecordError, match=said):
        SNAPPY.decompress(packed)


def test_a_block_that_announces_too_much_gets_no_memory() -> None:
    announces_4_gib = bytes.fromhex("ffffffff0f 00")
    with pytest.raises(CorruptRecordError, match="larger than 67108864 bytes"):
        SNAPPY.decompress(announces_4_gib)


def test_blocks_count_together() -> None:
    packed = SNAPPY.compress(bytes(2**15 + 1))
    with pytest.raises(CorruptRecordError, match=f"larger than {2**15} bytes"):
        SNAPPY.decompress(packed, 2**15)
    parts = (b"a", bytes(50), bytes(50))
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in parts]
    framed = HEAD + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    assert SNAPPY.decompress(framed, 101) == b"".join(parts)
    with pytest.raises(CorruptRecordError, match="larger than 100 bytes"):
        SNAPPY.decompress(framed, 100)
