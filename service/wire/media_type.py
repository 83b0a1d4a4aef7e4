"""Checks a body's media type: JSON in UTF-8, uncompressed, unless a route allows more. Reads Accept.

Pure.
"""

from __future__ import annotations

from typing import Final

from service.wire.errors import refused

JSON: Final = b"application/json"
NDJSON: Final = b"application/x-ndjson"
OCTET_STREAM: Final = b"application/octet-stream"


def media_type_of(content_type: bytes | None) -> bytes:
    """Returns the bare media type: `Text/Plain; charset=x` → `text/plain`; empty for None."""
    return (content_type or b"").partition(b";")[0].strip().lower()


def check_media_type(content_type: bytes | None, encoding: bytes | None, allowed: bytes = JSON) -> None:
    """Raises a 415 for another type, another parameter than `charset=utf-8`, or a compressed body."""
    if content_type != allowed:
        # A semicolon without a parameter is allowed (RFC 9110 section 5.6.6).
        parameters = (content_type or b"").partition(b";")[2].strip(b" \t;").lower().replace(b'"', b"")
        if media_type_of(content_type) != allowed or parameters not in (b"", b"charset=utf-8"):
            detail = f"must be {allowed.decode()}, with charset=utf-8 or no parameter"
            raise refused(415, detail, place="Content-Type")
    check_encoding(encoding)


def check_encoding(encoding: bytes | None) -> None:
    """Raises a 415 for a compressed body."""
    if encoding is not None and encoding.lower() != b"identity":
        raise refused(415, "is not supported here; send the body uncompressed", place="Content-Encoding")


def weights_of(accept: bytes) -> dict[str, float]:
    """Returns the media ranges of an Accept header with their weights (RFC 9110 section 12.5.1)."""
    weights: dict[str, float] = {}
    for item in accept.lower().decode("latin-1").split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        weights[name] = next((_q(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
    return weights


def _q(text: str) -> float:
    """Returns a weight; 0 if invalid."""
    try:
        return float(text)
    except ValueError:
        return 0.0
