"""CORS for the origins of `allowed_origins`: what their pages may send and read.

    preflight       answered before the token check, since browsers send no token with it: 204 with the
                    methods, and each requested header by name (`*` would not cover Authorization). A public
                    page may also reach this machine's private network
                    (Access-Control-Request-Private-Network), because the operator listed the page's origin
    every answer    `Vary: Origin`; for an allowed origin also `Access-Control-Allow-Origin` with that origin
                    alone, and the headers its page may read. Refusals and broken requests have them too
    forms           a form from another origin is refused, even if that origin is allowed. `fetch` can do
                    everything that a form can; a form sends no token, and navigates away from the page

No credentials: the page sets the token as a header, and there are no cookies. Without `allowed_origins` none
of this applies, and `guards.py` refuses requests from other origins. Pure; event loop only. Source: WHATWG
Fetch, section 3.3; WICG Private Network Access, section 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from typing import Final

from service.base.settings_sources import SettingsError
from service.wire.asgi import ANSWER, Answer, HeaderPairs, Message, Scope, Send, header, header_lines
from service.wire.media_type import media_type_of

#: An origin as browsers send it (RFC 6454 section 6.2): no path, no trailing slash, no wildcard.
_ORIGIN: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE
)

#: All methods of the API; a route's 405 lists its own.
_METHODS: Final = b"GET, HEAD, POST, PUT"

#: Headers that clients send here. A preflight may name others, such as CloudEvents' `ce-*`: also allowed.
_ALLOWED_HEADERS: Final = (
    "Authorization",
    "Content-Type",
    "Content-Encoding",
    "Accept",
    "If-None-Match",
    "Idempotency-Key",
    "Last-Event-ID",
    "Pilotfish-Key",
    "Pilotfish-Headers",
    "dapr-api-token",
    "traceparent",
    "tracestate",
)

#: Response headers that a page may read, besides those it always may (Content-Type, Content-Length, ...).
EXPOSED_HEADERS: Final = (
    "ETag",
    "Age",
    "Allow",
    "Date",
    "Location",
    "Retry-After",
    "Vary",
    "WWW-Authenticate",
    "Pilotfish-Failed-Records",
    "Pilotfish-Metadata-Refreshed-At",
    "Pilotfish-Metadata-Version",
    "Pilotfish-Replayed",
)

#: How long a browser may cache a preflight response. Chromium caps it at two hours.
_MAX_AGE_S: Final = 600

#: A header's name (RFC 9110 section 5.6.2).
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

#: Content types that only forms send. Forms may send text/plain too, but so may `fetch`.
_FORM_TYPES: Final = (b"application/x-www-form-urlencoded", b"multipart/form-data")

_VARY: Final = (b"vary", b"Origin")


def _as_sent(origin: str) -> str:
    """Returns the origin as browsers send it: without the port that is the scheme's own."""
    scheme, _, _ = origin.partition(":")
    return origin.removesuffix({"http": ":80", "https": ":443"}.get(scheme, ""))


class Cors:
    """The allowed origins, and the response headers for them."""

    def __init__(self, origins: Iterable[str]) -> None:
        """Raises SettingsError that names an invalid origin."""
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise SettingsError(
                    f"allowed_origins: {origin!r} is not an origin; write scheme, host and port as a browser "
                    "sends them, such as https://ops.example or http://localhost:3000, without a path"
                )
        self._origins: Final = frozenset(_as_sent(origin.lower()).encode() for origin in origins)
        #: Whether any origin is allowed; otherwise no answer has CORS headers. Read on each request.
        self.is_on: Final = bool(self._origins)
        #: For requests without an Origin header, or with our own origin.
        self._plain: Final[HeaderPairs] = [_VARY] if self._origins else []
        self._exposed: Final = (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode())

    def allows(self, origin: bytes | None) -> bool:
        """Returns whether this origin is allowed; ignores case."""
        return origin is not None and origin.lower() in self._origins

    def headers_for(self, origin: bytes | None) -> HeaderPairs:
        """Returns the CORS headers of every answer to a request with this Origin; empty when CORS is off."""
        if origin is None or not self.allows(origin):
            return self._plain
        return [_VARY, (b"access-control-allow-origin", origin), self._exposed]

    def headers_within(self, headers: HeaderPairs) -> HeaderPairs:
        """Returns the CORS headers as `headers_for` does, for a request's headers.

        The request may be only partly received.
        """
        origins = [value for name, value in headers if name == b"origin"]
        return self.headers_for(origins[0] if len(origins) == 1 else None)

    def wrapped(self, scope: Scope, origin: bytes | None, send: Send) -> Send:
        """Returns a `send` that adds the CORS headers; also wraps the server's fast path in the scope."""
        added = self.headers_for(origin)
        answer: Answer | None = scope.get(ANSWER)
        if answer is not None:
            lines = header_lines(added)
            short_way = answer

            def answered(status: int, head: bytes, body: bytes) -> bool:
                return short_way(status, lines + head, body)

            scope[ANSWER] = answered

        def sent(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                # A new list: prepared answers share theirs.
                message["headers"] = [*message.get("headers", ()), *added]
            return send(message)

        return sent


#: No origin is allowed.
NO_CORS: Final = Cors(())


def is_preflight(scope: Scope) -> bool:
    """Returns whether the request is a CORS preflight."""
    return scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None


def preflight_headers(scope: Scope) -> HeaderPairs:
    """Returns the extra headers of a preflight response, for an allowed origin."""
    headers = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _allowed_headers(scope)),
        (b"access-control-max-age", b"%d" % _MAX_AGE_S),
    ]
    if header(scope, b"access-control-request-private-network") == b"true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers


def is_form(scope: Scope) -> bool:
    """Returns whether the request is a form that a page submits.

    Signs are the content type, or that the browser will replace the page with the answer.
    """
    return media_type_of(header(scope, b"content-type")) in _FORM_TYPES or (
        scope["method"] not in ("GET", "HEAD") and header(scope, b"sec-fetch-mode") == b"navigate"
    )


def _allowed_headers(scope: Scope) -> bytes:
    """Returns our headers plus the requested ones: an allowed page may send what a program may."""
    asked = (header(scope, b"access-control-request-headers") or b"").decode("latin-1").split(",")
    names = {name.lower(): name for name in _ALLOWED_HEADERS}
    for name in map(str.strip, asked):
        if _TOKEN.fullmatch(name):
            names.setdefault(name.lower(), name)
    return ", ".join(names.values()).encode("ascii")
