"""Headers for the age of an answer: Age, time of the last refresh, metadata version.

    Age: 17                                              whole seconds since the last response with this topic
    Pilotfish-Metadata-Refreshed-At: 2026-01-31T09:26:53.589Z
    Pilotfish-Metadata-Version: 5f2c9a10-42              <boot>-<n>: n counts the updates of this process

A version of another boot means nothing here, so `parse_version` separates the two parts. ETags depend only on
an answer's bytes, so they survive refreshes and restarts that change nothing. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from client_core import RefreshTime
from service.wire.asgi import HeaderPairs
from service.wire.errors import refused

AGE: Final = b"age"
REFRESHED_AT: Final = b"pilotfish-metadata-refreshed-at"
VERSION: Final = b"pilotfish-metadata-version"

#: Callers may keep an answer, but must revalidate it each time.
CACHE_CONTROL: Final = (b"cache-control", b"no-cache")

_MIN_VERSION: Final = "query.min_version"

#: 64 bits: a collision between two answers of one path is not expected in a cluster's lifetime.
_ETAG_BYTES: Final = 8


def etag_of(body: bytes) -> bytes:
    """Returns the strong entity tag of these bytes."""
    return b'"%s"' % blake2b(body, digest_size=_ETAG_BYTES).hexdigest().encode()


def etag_digest() -> blake2b:
    """Returns a digest to feed with a body's pieces, in order; see `etag_of_digest`."""
    return blake2b(digest_size=_ETAG_BYTES)


def etag_of_digest(digest: blake2b) -> bytes:
    """Returns the ETag of the digested body; equal to `etag_of` of the whole."""
    return b'"%s"' % digest.hexdigest().encode()


def matches(if_none_match: bytes, etag: bytes) -> bool:
    """Returns whether the caller already holds this answer (weak comparison, RFC 9110 section 13.1.2)."""
    if if_none_match == etag:
        return True
    candidates = (part.strip() for part in if_none_match.split(b","))
    return any(part == b"*" or part.removeprefix(b"W/") == etag for part in candidates)


def freshness_headers(version: bytes, time: RefreshTime | None, now_ms: int) -> HeaderPairs:
    """Returns the freshness headers of an answer; without Age and time if it was never refreshed."""
    headers = [(VERSION, version)]
    if time is not None:
        headers.append((AGE, b"%d" % max((now_ms - time.now_ms) // 1000, 0)))
        if time.wall_ms is not None:
            headers.append((REFRESHED_AT, rfc3339(time.wall_ms).encode()))
    return headers


@lru_cache(maxsize=1024)  # the topics of one response share its time
def rfc3339(wall_ms: int) -> str:
    """Milliseconds since 1970 as `2026-01-31T09:26:53.589Z`."""
    at = datetime.fromtimestamp(wall_ms // 1000, tz=UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{wall_ms % 1000:03d}Z"


def version_text(boot: str, update_version: int) -> str:
    return f"{boot}-{update_version}"


def parse_version(text: str) -> tuple[str, int]:
    """Returns the parts of `<boot>-<n>`; raises ValueError for anything else."""
    boot, dash, number = text.rpartition("-")
    if not dash or not boot or not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise ValueError("must be <boot>-<n>, as in Pilotfish-Metadata-Version")
    return boot, int(number)


def awaited_number(min_version: str, boot: str) -> int:
    """Returns the number of a version of this process.

    Raises ProblemError: 422 for a malformed version, 412 for that of another boot.
    """
    try:
        own, number = parse_version(min_version)
    except ValueError as e:
        raise refused(422, str(e), place=_MIN_VERSION) from e
    if own != boot:
        raise refused(
            412, f"{min_version} belongs to another process; this one is {boot}", place=_MIN_VERSION
        )
    return number
