"""Reads a certificate's expiry time from its DER bytes.

    Certificate     SEQUENCE { TBSCertificate, signatureAlgorithm, signature }
    TBSCertificate  SEQUENCE { [0] version (absent in v1), INTEGER serial, SEQUENCE algorithm,
                               SEQUENCE issuer, SEQUENCE { Time notBefore, Time notAfter }, ... }
    Time            UTCTime YYMMDDhhmmssZ, GeneralizedTime YYYYMMDDhhmmssZ

Python's ssl parses a peer's certificate, but not our own. Nothing is verified here: OpenSSL does that. Pure.
Called by SslContexts. Source: RFC 5280, section 4.1.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18

#: RFC 5280: two-digit years from 50 on are in the 20th century.
_CENTURY_TURNS_AT: Final = 50


def certificate_expires_at_s(der: bytes) -> int:
    """Returns the Unix time of a certificate's notAfter. Raises ValueError for other bytes."""
    with memoryview(der) as whole:
        certificate, _ = _enter(whole, _SEQUENCE)
        fields, _ = _enter(certificate, _SEQUENCE)
        if fields[:1] == bytes([_VERSION]):
            fields = _skip(fields)
        for _ in ("serial", "algorithm", "issuer"):
            fields = _skip(fields)
        validity, _ = _enter(fields, _SEQUENCE)
        not_after = _skip(validity)
        tag = not_after[0] if not_after else None
        text = bytes(_element(not_after)[1]).decode("ascii")
    if tag == _UTC_TIME:
        century = "19" if int(text[:2]) >= _CENTURY_TURNS_AT else "20"
        text = century + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("notAfter is not a time")
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp())


def _element(data: memoryview) -> tuple[int, memoryview, memoryview]:
    """Returns the first element's tag and content, and the bytes after it. Raises ValueError if truncated."""
    if len(data) < 2:
        raise ValueError("the certificate is truncated")
    size, begin = data[1], 2
    if size & 0x80:  # the low bits count the bytes of the length
        begin += size & 0x7F
        size = int.from_bytes(data[2:begin], "big")
    if begin + size > len(data):
        raise ValueError("the certificate is truncated")
    return data[0], data[begin : begin + size], data[begin + size :]


def _enter(data: memoryview, tag: int) -> tuple[memoryview, memoryview]:
    found, content, behind = _element(data)
    if found != tag:
        raise ValueError(f"there is tag {found:#x} where {tag:#x} should be")
    return content, behind


def _skip(data: memoryview) -> memoryview:
    return _element(data)[2]
