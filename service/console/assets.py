"""Files for browsers: read once, kept as bytes, answered with an ETag and the headers that hold a page back.

A file is read when it is first asked for: most sidecars are never looked at, and the reference's viewer alone
is 1.5 MB. Until then a file costs its path. Event loop only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from fastapi import Request, Response

from service.wire.asgi import HeaderPairs, header_values
from service.wire.freshness import etag_of, matches
from service.wire.responses import as_is

HTML: Final = b"text/html; charset=utf-8"
_MEDIA_TYPES: Final = {
    ".html": HTML,
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}

#: A browser asks each time whether its copy is still good, so that one version's page never meets another's
#: script.
_CACHE: Final = (b"cache-control", b"no-cache")

#: Nobody learns where a page's reader came from, and no other origin may embed or hold what is here.
PAGE_HEADERS: Final[HeaderPairs] = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Asset:
    """One file, and the Content-Security-Policy that goes with it."""

    def __init__(self, path: Path, policy: bytes) -> None:
        self._path = path
        self._policy = policy
        self._kept: tuple[bytes, bytes] | None = None

    def answer(self, request: Request) -> Response:
        """The file, or 304 where the browser holds it. Reads it from disk the first time."""
        if self._kept is None:
            content = self._path.read_bytes()
            self._kept = content, etag_of(content)
        body, etag = self._kept
        headers = [(b"etag", etag), (b"content-security-policy", self._policy), _CACHE, *PAGE_HEADERS]
        if any(matches(held, etag) for held in header_values(request.scope, b"if-none-match")):
            return as_is(304, headers, b"")
        media_type = _MEDIA_TYPES[self._path.suffix]
        head = [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
        return as_is(200, head + headers, b"" if request.method == "HEAD" else body)


def served(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    """A route that answers with the asset. A coroutine, or each request would take a pool thread."""

    async def serve(request: Request) -> Response:
        return asset.answer(request)

    return serve
