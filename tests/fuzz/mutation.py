"""Spoils the bytes of a valid value: flipped, cut, spliced, repeated, with false lengths.

    mutated(valid, others, tokens, Random(7))

`others` makes further valid values of the same kind, from which pieces are inserted; `tokens` are bytes with
a meaning for the decoder. Pure: the same Random makes the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

#: The size limit of an input: enough for lengths of three bytes, and to notice quadratic work.
MOST_BYTES: Final = 200_000

_INTEGERS: Final = (0, 1, -1, -2, 0x7F, 0x80, 0xFF, 0x7FFF, -0x8000, 0x7FFFFFFF, -0x80000000, 0x10000000)
#: Lengths as wire formats write them, at what they can say at most: fixed ones, varints, zig-zag varints.
EXTREMES: Final = (
    *(n.to_bytes(4, signed=True) for n in _INTEGERS),
    *(n.to_bytes(2, signed=True) for n in _INTEGERS if -0x8000 <= n <= 0x7FFF),
    *((n & 0xFF).to_bytes(1) for n in _INTEGERS if -0x80 <= n <= 0xFF),
    *(n.to_bytes(8, signed=True) for n in (-1, (1 << 63) - 1, -1 << 63)),
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x00",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 11,
)
_TIMES: Final = (2, 2, 3, 40, 1_000)


def mutated(valid: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    """The value, or one to four times changed; now and then bytes that never were one."""
    kind = random.randrange(20)
    if kind == 0:
        return valid
    if kind == 1:
        return random.randbytes(random.choice((0, 1, 2, 8, 60, 400, 5_000)))
    changed = valid
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        changed = random.choice(_WAYS)(changed, others, tokens, random)
    return changed[:MOST_BYTES]


def _at(data: bytes, random: Random) -> int:
    return random.randrange(len(data) + 1)


def _piece(data: bytes, random: Random) -> bytes:
    at = _at(data, random)
    return data[at : at + random.choice((1, 2, 4, 9, 40, 300))]


def _put(data: bytes, at: int, piece: bytes, *, instead: bool) -> bytes:
    return data[:at] + piece + data[at + len(piece) if instead else at :]


def _flip(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(random.choice((1, 1, 2, 8))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    return data[: _at(data, random)] if random.random() < 0.7 else data[_at(data, random) :]


def _remove(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    at = _at(data, random)
    return data[:at] + data[at + random.choice((1, 1, 2, 4, 16)) :]


def _extreme(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    return _put(data, _at(data, random), random.choice(EXTREMES), instead=random.random() < 0.8)


def _token(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    if not tokens:
        return _extreme(data, others, tokens, random)
    token = random.choice(tokens) * random.choice((1, 1, 1, *_TIMES))
    return _put(data, _at(data, random), token, instead=random.random() < 0.4)


def _repeat(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    return _put(data, _at(data, random), _piece(data, random) * random.choice(_TIMES), instead=False)


def _splice(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    other = others()
    return data[: _at(data, random)] + other[_at(other, random) :]


def _insert(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    return _put(data, _at(data, random), _piece(others(), random), instead=random.random() < 0.5)


def _append(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    return data + random.choice((b"\0", others(), random.randbytes(9)))


def _random(data: bytes, others: Callable[[], bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    return _put(data, _at(data, random), random.randbytes(random.choice((1, 2, 4, 16))), instead=True)


_WAYS: Final = (
    *(_flip, _flip, _cut, _remove, _extreme, _extreme, _token, _token, _repeat, _splice, _insert),
    *(_append, _random),
)
