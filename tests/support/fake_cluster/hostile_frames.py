"""A hostile broker's changes to the bytes of an answer: one way to spoil a frame, chosen at random.

    int32 size, int32 correlation id, the rest of the answer

Bytes are flipped, removed, repeated or truncated. Lengths are larger than the data. The answer is that of
another request, comes twice, or was not requested. Its size is zero, negative or two gigabytes. It comes a
byte at a time, by half, or not at all. Pure: the same Random does the same to the same frame. Called by
hostile.py.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from client_core.testing.reactions import Sending

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_SIZE: Final = struct.Struct(">i")
_HEAD: Final = 8
#: Lengths as written in a message: int32, int16, and the largest compact length.
_LENGTHS: Final = (
    *(n.to_bytes(4, signed=True) for n in (-1, -2, 0, 0x7FFFFFFF, -0x80000000, 0x10000000)),
    *(n.to_bytes(2, signed=True) for n in (-1, -2, 0x7FFF, -0x8000)),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\xff" * 11,
    b"\x80\x80\x80\x80\x00",
)
#: Sizes of frames: empty, too short for a correlation id, negative, more than may ever come, and 90 MB of
#: which only a few bytes do.
_SIZES: Final = (0, 1, 3, -1, -0x80000000, 0x7FFFFFFF, 104_857_601, 90_000_000)


def spoilt(frame: bytes, random: Random) -> Sending:
    """What is sent instead of the frame, and how the connection goes on."""
    return random.choice(_WAYS)(frame, random)


def _sized(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


def _with(frame: bytes, at: int, instead: bytes) -> bytes:
    return frame[:at] + instead + frame[at + len(instead) :][: max(len(frame) - at - len(instead), 0)]


def _anywhere(frame: bytes, random: Random) -> int:
    """A place behind size and correlation id."""
    return random.randrange(_HEAD, max(len(frame), _HEAD + 1))


# -- whole frames whose content is wrong ---------------------------------------------------------------------


def _flip_bits(frame: bytes, random: Random) -> Sending:
    spoilt = bytearray(frame)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(_SIZE.size, len(frame))
        spoilt[at] ^= 1 << random.randrange(8)
    return Sending((bytes(spoilt),))


def _truncate(frame: bytes, random: Random) -> Sending:
    return Sending((_sized(frame[_SIZE.size : random.randrange(_SIZE.size, len(frame))]),))


def _remove(frame: bytes, random: Random) -> Sending:
    at = _anywhere(frame, random)
    return Sending((_sized(frame[_SIZE.size : at] + frame[at + random.randrange(1, 9) :]),))


def _repeat(frame: bytes, random: Random) -> Sending:
    at = _anywhere(frame, random)
    piece = frame[at : at + random.randrange(1, 65)] * random.choice((1, 2, 500))
    return Sending((_sized(frame[_SIZE.size : at] + piece + frame[at:]),))


def _hostile_length(frame: bytes, random: Random) -> Sending:
    spoilt = frame
    for _ in range(random.choice((1, 1, 3))):
        spoilt = _with(spoilt, _anywhere(frame, random), random.choice(_LENGTHS))
    return Sending((_sized(spoilt[_SIZE.size :]),))


def _unknown_tags(frame: bytes, random: Random) -> Sending:
    """Tags that no schema has where an answer ends with none; before version 9 they are bytes too many."""
    tags = b"\x02\x63\x03abc\xe8\x07\x00"
    body = frame[_SIZE.size : -1] if frame.endswith(b"\0") else frame[_SIZE.size :]
    return Sending((_sized(body + random.choice((tags, b"\xff\xff\xff\xff\x0f", b"\x01\x00\xff\xff\x7f"))),))


def _trailing_bytes(frame: bytes, random: Random) -> Sending:
    return Sending((_sized(frame[_SIZE.size :] + random.randbytes(random.choice((1, 7, 5_000)))),))


def _garbage(frame: bytes, random: Random) -> Sending:
    return Sending((_sized(frame[_SIZE.size : _HEAD] + random.randbytes(random.choice((0, 1, 40, 4_000)))),))


# -- the wrong answer, or one too many -----------------------------------------------------------------------


def _another_question(frame: bytes, random: Random) -> Sending:
    (correlation_id,) = _SIZE.unpack_from(frame, _SIZE.size)
    off_by = random.choice((1, -1, 1_000, 0x7FFFFFFF))
    return Sending((_with(frame, _SIZE.size, ((correlation_id + off_by) % (1 << 32)).to_bytes(4)),))


def _twice(frame: bytes, random: Random) -> Sending:
    return Sending((frame * random.choice((2, 2, 40)),))


def _unasked(frame: bytes, random: Random) -> Sending:
    unasked = _with(frame, _SIZE.size, random.randbytes(4))
    return Sending((frame, unasked) if random.random() < 0.5 else (unasked, frame))


def _not_kafka(frame: bytes, random: Random) -> Sending:
    texts = (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x0a", b"SSH-2.0-OpenSSH\r\n")
    return Sending((random.choice(texts),), then_close=random.random() < 0.5)


# -- frames that lie about their size ------------------------------------------------------------------------


def _wrong_size(frame: bytes, random: Random) -> Sending:
    size = random.choice((*_SIZES, len(frame) - _SIZE.size - 1, len(frame) - _SIZE.size + 1))
    return Sending((_SIZE.pack(size) + frame[_SIZE.size :],), then_close=random.random() < 0.3)


def _empty_frames(frame: bytes, random: Random) -> Sending:
    return Sending((_SIZE.pack(0) * random.choice((1, 2, 1_000)),))


# -- the time it takes ---------------------------------------------------------------------------------------


def _dribble(frame: bytes, random: Random) -> Sending:
    size = random.choice((1, 3)) if len(frame) < 2_000 else 200
    return Sending([frame[at : at + size] for at in range(0, len(frame), size)])


def _half_and_close(frame: bytes, random: Random) -> Sending:
    return Sending((frame[: random.randrange(len(frame))],), then_close=True)


def _half_and_silence(frame: bytes, random: Random) -> Sending:
    return Sending((frame[: random.randrange(len(frame))],), then_silent=True)


def _silence(frame: bytes, random: Random) -> Sending:
    return Sending(then_silent=True)


def _close(frame: bytes, random: Random) -> Sending:
    return Sending((frame,) if random.random() < 0.5 else (), then_close=True)


_WAYS: Final[tuple[Callable[[bytes, Random], Sending], ...]] = (
    *(_flip_bits, _flip_bits, _truncate, _remove, _repeat, _hostile_length, _hostile_length, _unknown_tags),
    *(_trailing_bytes, _garbage, _another_question, _twice, _unasked, _not_kafka, _wrong_size, _empty_frames),
    *(_dribble, _half_and_close, _half_and_silence, _silence, _close),
)
