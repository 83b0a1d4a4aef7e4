"""Decodes one key or value: from the request's JSON to the bytes of the record.

Three formats. `json`: the JSON text itself, compacted, its digits kept. `text`: a JSON string, as UTF-8.
`base64`: a JSON string of standard, padded base64. In each, JSON's null means no key, or a tombstone. Keys in
a URL or a header are not JSON: see `bytes_of_plain`. Failures are ValueErrors with the reason, without the
place. Of a body each is 422, but JSON that nests too deeply is 400, as where it is too deep for the parser.

Pure; any thread.
"""

from __future__ import annotations

import binascii
from enum import Enum
from typing import Final

import msgspec

from service.wire.strict_json import MAX_DEPTH, BodyError, compact, too_deep


class Format(Enum):
    """How a key or value is written in a request."""

    JSON = "json"
    TEXT = "text"
    BASE64 = "base64"


_NULL: Final = b"null"
_BACKSLASH: Final = b"\\"
#: A multiple of four characters, base64's group.
_SLICE_BYTES: Final = 256 * 1024
_STRING: Final = msgspec.json.Decoder(str)


class TooDeepError(ValueError):
    """JSON that nests deeper than MAX_DEPTH."""


def bytes_of_json(raw: bytes) -> bytes | None:
    """Returns compact JSON unchanged; None for null."""
    if raw == _NULL:
        return None
    if too_deep(raw):
        raise TooDeepError(f"nested deeper than {MAX_DEPTH} levels")
    return raw


def bytes_of_text(raw: bytes) -> bytes | None:
    """Returns the UTF-8 of a JSON string; None for null."""
    if raw == _NULL:
        return None
    if raw[:1] != b'"':
        raise ValueError("must be a string or null in text format; use format json for other JSON")
    if _BACKSLASH not in raw:
        return raw[1:-1]
    return _STRING.decode(raw).encode()


def bytes_of_base64(raw: bytes) -> bytes | None:
    """Returns the bytes of a JSON string of base64; None for null."""
    if raw == _NULL:
        return None
    if raw[:1] != b'"':
        raise ValueError("must be a string of base64 or null")
    return _from_base64(raw[1:-1] if _BACKSLASH not in raw else _STRING.decode(raw).encode())


def status_of(error: ValueError) -> int:
    """Returns the status of a body with a key or value that can't be decoded."""
    return 400 if isinstance(error, TooDeepError) else 422


#: From a member's raw JSON to its bytes.
DECODERS: Final = {
    Format.JSON: bytes_of_json,
    Format.TEXT: bytes_of_text,
    Format.BASE64: bytes_of_base64,
}


def bytes_of_plain(written: str, form: Format) -> bytes | None:
    """Returns a key from a URL or a header: plain text, JSON text (then compacted), or base64."""
    if form is Format.TEXT:
        return _encode(written)
    if form is Format.BASE64:
        return _from_base64(_encode(written))
    try:
        return bytes_of_json(compact(_encode(written)))
    except BodyError as e:
        raise ValueError(e.message) from e


def _encode(written: str) -> bytes:
    try:
        return written.encode()
    except UnicodeEncodeError as e:
        raise ValueError("invalid UTF-8") from e


def _from_base64(text: bytes) -> bytes:
    """Decodes base64: standard alphabet, padded, canonical. Rejects other spellings of the same bytes.

    Works in slices: a call into C holds the interpreter, 5 ms a megabyte.
    """
    if len(text) > _SLICE_BYTES:
        if b"=" in text[:-2]:
            raise ValueError("bad base64: there are characters after the padding")
        return b"".join(
            [_from_base64(text[at : at + _SLICE_BYTES]) for at in range(0, len(text), _SLICE_BYTES)]
        )
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as e:
        raise ValueError(f"bad base64: {e}") from e
    if binascii.b2a_base64(data, newline=False) != text:
        raise ValueError("bad base64: bits beyond the last byte are set")
    return data
