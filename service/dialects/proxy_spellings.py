"""Spellings that REST proxies take and the native API does not, because no meaning is lost by them.

    base64 without its padding   "Zm8" is "Zm8=": Confluent's proxy and Strimzi's bridge read both
    a partition in quotes        "1" is 1: Confluent's proxy and Karapace read both

Both turn one raw JSON value into the strict spelling of it, and leave whatever is neither as it is, for the
strict readers to refuse. Pure; any thread.
"""

from __future__ import annotations

from typing import Final

from service.wire.payload import bytes_of_base64

_QUOTE: Final = b'"'
#: Four letters of base64 stand for three bytes; two or three letters, at the end, for one or two.
_GROUP: Final = 4
_PADDABLE: Final = (1, 2)


def bytes_of_unpadded_base64(raw: bytes) -> bytes | None:
    """As `bytes_of_base64`, but that the padding may be left out; a part of it may not."""
    return bytes_of_base64(_padded(raw))


def unquoted_number(raw: bytes) -> bytes:
    """The digits of a string that is nothing else; any other JSON as it is."""
    digits = raw[1:-1]
    return digits if raw[:1] == _QUOTE and digits.isdigit() else raw


def _padded(raw: bytes) -> bytes:
    """A string of base64 with the padding that it lacks. One with escapes in it is not looked into."""
    missing = (len(_QUOTE) * 2 - len(raw)) % _GROUP
    if missing in _PADDABLE and raw[:1] == _QUOTE and not raw.endswith(b'="') and b"\\" not in raw:
        return raw[:-1] + b"=" * missing + _QUOTE
    return raw
