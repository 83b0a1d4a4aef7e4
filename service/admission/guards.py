"""Checks every request before it is served: Host, Origin, token, path, body length and shutdown.

    Host     must be allowed. This stops web pages whose name was made to resolve to 127.0.0.1. A Unix domain
             socket accepts any Host: no web page reaches it, and its clients make the value up. A long one is
             rejected: an answer of REST Proxy v3 repeats it in thousands of links
    Origin   must be our own or an allowed one, so that a web page can't post without its user's knowledge.
             On a Unix domain socket a proxy may forward an Origin, and none is our own
    CORS     pages of allowed origins may read the answers (`wire/cors.py`), but not submit forms
    fetch    Sec-Fetch-Site shows requests without an Origin that another site's page causes, for an image or
             a frame; they are rejected
    once     duplicate Host or Origin is rejected: one could be checked, and the other one used
    quit     has its own token, and is answered during the shutdown (`drain.py`)
    token    identifies the caller if tokens are in use (`access.py`); a few paths without data are open
    path     an encoded slash is rejected: it is part of a name here, but not in routers. So is an encoded
             line break at the end: routers ignore it, and `demo%0A` would be the topic demo
    gzip     bodies are unpacked, and long answers packed (`wire/content_coding.py`)
    length   a body above the limit is rejected by its head, or while it is read and unpacked. A stream of
             records may have any length, because its reader limits each record and the open records
    drain    during the shutdown, only look-ups are accepted

A request that passes costs one pass over its headers. Event loop only.

Browsers describe the page that causes a request in Sec-Fetch-Site, -Mode and -Dest:

    same-origin, none           our own page, or an address that the user typed
    same-site, cross-site       another page: another port of localhost is the same site, but another page too

A page can cause requests without an Origin: for an image, a script, a frame. It can't read the answer, but it
could use up watchers, or cause look-ups of invented topics. Only a followed link that replaces the page is
accepted. Programs other than browsers send none of these headers, and no page can set them. Source: W3C Fetch
Metadata Request Headers, sections 2 and 4.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Final

from starlette.exceptions import HTTPException

from service.admission.access import VARY, Access, Admission, Refuse, authorizations_of
from service.admission.admission_control import RetryAfter
from service.admission.caller import ANYONE, Caller, set_caller
from service.admission.drain import PATH as QUIT_PATH
from service.admission.drain import Drain, Quit
from service.observe.http_metrics import OTHER, HttpMetrics
from service.wire.asgi import (
    ANSWER,
    BODY,
    UNIX,
    ASGIApp,
    HeaderPairs,
    Message,
    Receive,
    Scope,
    Send,
    as_get,
    head_of,
    header,
    header_lines,
    respond,
    respond_with,
)
from service.wire.content_coding import GZIP, accepts_gzip, packing, unpacking, without_coding
from service.wire.cors import Cors, is_form, is_preflight, preflight_headers
from service.wire.errors import WHOLE_BODY, ErrorFormats, Problem
from service.wire.reasons import SHUTTING_DOWN

CLOSE: Final = (b"connection", b"close")

#: More digits are rejected: leading zeros could hide a large length, or be too many for `int`.
_MAX_LENGTH_DIGITS: Final = 19

#: More than a name (253 bytes, RFC 1035) and a port, or a socket's path (107 bytes) with each byte as %2F.
MAX_HOST_BYTES: Final = 512
_MAX_PORT_DIGITS: Final = 5

#: Accepted values of Host, with port, that are cached: callers use one or two.
_MAX_KNOWN_HOSTS: Final = 64


SITE: Final = b"sec-fetch-site"

_OURS: Final = (b"same-origin", b"none")

#: The headers of a GET that the guards check, or that have a body follow.
_CHECKED: Final = frozenset(
    {b"host", b"authorization", b"origin", SITE, b"content-length", b"transfer-encoding", b"expect"}
)


def is_of_another_page(scope: Scope, site: bytes) -> bool:
    """Returns whether Sec-Fetch-Site shows a request of another page that is not a followed link."""
    if site in _OURS:
        return False
    follows_link = (
        scope["method"] in ("GET", "HEAD")
        and header(scope, b"sec-fetch-mode") == b"navigate"
        and header(scope, b"sec-fetch-dest") == b"document"
    )
    return not follows_link


class BodyTooLargeError(HTTPException):
    """The body exceeds the limit. A Starlette class, so that FastAPI passes it on when it reads a body."""

    def __init__(self, max_body_bytes: int) -> None:
        super().__init__(413, body_too_large_detail(max_body_bytes))


def body_too_large_detail(max_body_bytes: int) -> str:
    return f"the body is larger than {max_body_bytes} bytes (max_body_bytes)"


_ENCODED_SLASH: Final = Problem(
    400, "path: a name can't contain an encoded slash (%2F)", place="path", written="no"
)
_ENCODED_LINE_BREAK: Final = Problem(
    400, "path: can't end with an encoded line break (%0A)", place="path", written="no"
)
#: The refusal of a request during the drain; `written` is added.
DRAINING: Final = Problem(
    503,
    "the sidecar is shutting down",
    retriable=True,
    headers=(CLOSE,),
    reason=SHUTTING_DOWN,
)


class Guards:
    """The outermost ASGI callable."""

    def __init__(
        self,
        app: ASGIApp,
        look_ups: ASGIApp,
        *,
        allowed_hosts: Sequence[str],
        cors: Cors,
        max_body_bytes: int,
        drain: Drain,
        error_formats: ErrorFormats,
        metrics: HttpMetrics,
        retry_after: RetryAfter,
        is_stream: Callable[[Scope], bool],
        may_be_written: Callable[[Scope], bool],
        access: Access | None = None,
        open_paths: Container[str] = (),
        quit_path: Quit | None = None,
    ) -> None:
        """`look_ups` serves GET, `app` the other methods.

        `is_stream` returns whether a request's body is limited record by record; `may_be_written`, whether an
        earlier one with the same Idempotency-Key may have written records. `access` is None if no
        tokens are in use; `open_paths` can be read without a token. `quit_path` is None if it has no token.
        """
        self._app = app
        self._look_ups = look_ups
        self._any_host = "*" in allowed_hosts
        self._hosts = frozenset(host.lower().encode() for host in allowed_hosts)
        self._known_hosts: set[bytes] = set()
        self._cors = cors
        self._max_body_bytes = max_body_bytes
        self._drain = drain
        self._error_formats = error_formats
        self._metrics = metrics
        self._retry_after = retry_after
        self._access = access
        self._open_paths = open_paths
        self._is_stream = is_stream
        self._may_be_written = may_be_written
        self._quit = quit_path
        #: Header lines of each answer to a request that `caller_at_once` admits.
        self.added_lines: Final = header_lines(
            [*(() if access is None else (VARY,)), *cors.headers_for(None)]
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Checks a request and passes it on. Not a coroutine, because each request would pay for it."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        host = origin = length = site = accepted = coding = None
        twice = False
        for name, value in scope["headers"]:
            if name == b"host":
                twice = twice or host is not None
                host = value
            elif name == b"origin":
                twice = twice or origin is not None
                origin = value
            elif name == b"content-length":
                length = value
            elif name == SITE:
                site = value
            elif name == b"accept-encoding":
                accepted = value
            elif name == b"content-encoding":
                coding = value if coding is None else b""  # several are refused later
        if self._cors.is_on:
            send = self._cors.wrapped(scope, None if twice else origin, send)
        # HTTP/1.0 has no chunks, in which an answer of unknown length is sent.
        if accepted is not None and accepts_gzip(accepted) and scope.get("http_version") != "1.0":
            send = packing(scope, send)
        if (
            host not in self._known_hosts
            or origin is not None
            or site is not None
            or twice
            or (length is not None and not self._is_short(length))
        ):
            problem = self._refusal(scope, host, origin, length, site, twice=twice)
            if problem is not None:
                return self._refuse(scope, send, problem)
            if self._cors.allows(origin) and is_preflight(scope):
                return self._allow(scope, send)
        if self._quit is not None and scope["path"] == QUIT_PATH:
            return self._quit(scope, send, self._refuse)
        if self._access is not None and not self._is_open(scope):
            admitted = _admitted(self._access, scope, receive, send, self._send_problem)
            if isinstance(admitted, Problem):
                return self._refuse(scope, send, admitted)
            receive, send = admitted.receive, admitted.send
            scope.pop(ANSWER, None)
            scope.pop(BODY, None)
        if b"%" in scope["raw_path"]:
            encoded = scope["raw_path"].lower()
            if b"%2f" in encoded:
                return self._refuse(scope, send, _ENCODED_SLASH)
            if encoded.endswith(b"%0a"):
                return self._refuse(scope, send, _ENCODED_LINE_BREAK)
        if scope["method"] != "GET":
            if scope["method"] == "HEAD":
                return self._look_ups(as_get(scope), receive, head_of(send))
            if self._drain.begun:
                written = "unknown" if self._may_be_written(scope) else "no"
                problem = replace(DRAINING, written=written)
                return self._refuse(scope, send, self._retry_after.on(problem))
            is_packed = coding is not None and coding.lower() in GZIP
            if (length is None or is_packed) and not self._is_stream(scope):
                if is_packed:
                    without_coding(scope)
                    receive = unpacking(receive)
                receive = self._counted(receive)
                scope.pop(BODY, None)
            return self._app(scope, receive, send)
        return self._look_ups(scope, receive, send)

    def caller_at_once(self, headers: HeaderPairs, *, over_unix: bool) -> Caller | None:
        """Returns the caller of a GET whose headers pass all checks; None if `__call__` must check it.

        The answer needs `added_lines` too.
        """
        host = authorization = None
        for name, value in headers:
            if name not in _CHECKED:
                continue
            if name == b"host" and host is None:
                host = value
            elif name == b"authorization" and authorization is None:
                authorization = value
            else:
                return None
        if host not in self._known_hosts and (not over_unix or (host and len(host) > MAX_HOST_BYTES)):
            return None
        if self._access is None:
            return ANYONE
        if authorization is None:
            return None
        judged = self._access.judge([authorization])
        return None if isinstance(judged, Problem) else judged[1]

    # -- checking --------------------------------------------------------------------------------------------

    def _refusal(
        self,
        scope: Scope,
        host: bytes | None,
        origin: bytes | None,
        length: bytes | None,
        site: bytes | None,
        *,
        twice: bool,
    ) -> Problem | None:
        if twice:
            return Problem(
                400,
                "duplicate Host or Origin header; send each once",
                written="no",
                place="Host or Origin",
                headers=(CLOSE,),
            )
        if host is not None and len(host) > MAX_HOST_BYTES:
            detail = f"the Host header is longer than {MAX_HOST_BYTES} bytes"
            return Problem(400, detail, written="no", place="Host", headers=(CLOSE,))
        if host is None and UNIX not in scope and scope.get("http_version") == "1.1":
            # Any Host or none may be allowed, but HTTP/1.1 needs one: RFC 9112 section 3.2.
            return Problem(400, "a request of HTTP/1.1 needs a Host header", written="no", place="Host")
        if UNIX not in scope and not self._knows_host(host):
            detail = "this Host is not allowed; allowed_hosts lists those that are"
            return Problem(421, detail, written="no")
        if origin is not None and not self._knows_origin(scope, origin, host):
            return Problem(
                403, "this Origin is not allowed; allowed_origins lists those that are", written="no"
            )
        if self._cors.allows(origin) and not self._is_own(scope, origin, host) and is_form(scope):
            return Problem(403, "a page of another origin may use fetch, but not a form", written="no")
        if origin is None and site is not None and is_of_another_page(scope, site):
            return Problem(403, "a page of another site may not call the sidecar", written="no")
        if length is not None and not self._fits(scope, length):
            detail = body_too_large_detail(self._max_body_bytes)
            return Problem(413, detail, written="no", place=WHOLE_BODY, headers=(CLOSE,))
        return None

    def _fits(self, scope: Scope, length: bytes) -> bool:
        """Returns whether the length is valid and not too large. Later code uses it unchecked."""
        if not length.isdigit() or len(length) > _MAX_LENGTH_DIGITS:
            return False
        return self._is_short(length) or self._is_stream(scope)

    def _is_short(self, length: bytes) -> bool:
        return length.isdigit() and len(length) <= _MAX_LENGTH_DIGITS and int(length) <= self._max_body_bytes

    def _knows_host(self, host: bytes | None) -> bool:
        known = self._any_host or (host is not None and without_port(host.lower()) in self._hosts)
        if known and host is not None and len(self._known_hosts) < _MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)
        return known

    def _knows_origin(self, scope: Scope, origin: bytes, host: bytes | None) -> bool:
        return self._cors.allows(origin) or self._is_own(scope, origin, host)

    def _is_own(self, scope: Scope, origin: bytes | None, host: bytes | None) -> bool:
        if origin is None or host is None or UNIX in scope:
            return False
        return origin.lower() == f"{scope['scheme']}://".encode() + host.lower()

    def _is_open(self, scope: Scope) -> bool:
        return scope["path"] in self._open_paths and scope["method"] in ("GET", "HEAD")

    # -- answering -------------------------------------------------------------------------------------------

    async def _refuse(self, scope: Scope, send: Send, problem: Problem) -> None:
        self._metrics.route_counters(scope["method"], OTHER, problem.status).add(0.0)
        await self._send_problem(scope, send, problem)

    async def _send_problem(self, scope: Scope, send: Send, problem: Problem) -> None:
        answer = self._error_formats.of(scope["path"])(problem)
        headers = [*problem.all_headers(), *answer.headers]
        await respond_with(send, answer.status, answer.media_type, answer.body, headers)

    async def _allow(self, scope: Scope, send: Send) -> None:
        """Answers a preflight: what an allowed origin's page may send."""
        self._metrics.route_counters("OPTIONS", OTHER, 204).add(0.0)
        await respond(send, 204, preflight_headers(scope), b"")

    def _counted(self, receive: Receive) -> Receive:
        """Wraps `receive` for a body of unknown length: raises BodyTooLargeError when it gets too large."""
        limit = self._max_body_bytes
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise BodyTooLargeError(limit)
            return message

        return counted


def _admitted(
    access: Access, scope: Scope, receive: Receive, send: Send, refuse: Refuse
) -> Admission | Problem:
    """Returns the authenticated request, with its caller in the scope, or the refusal."""
    judged = access.judge(authorizations_of(scope))
    if isinstance(judged, Problem):
        return judged
    digest, caller = judged
    set_caller(scope, caller)
    return Admission(access, digest, caller, scope, receive, send, refuse)


def without_port(host: bytes) -> bytes:
    """Returns the host without its port: `localhost:8085` → `localhost`, `[::1]:8085` → `[::1]`."""
    bare, colon, port = host.rpartition(b":")
    # `localhost:x@evil.example` is not localhost, and the last colon of `[::1]` separates no port.
    is_port = not port or (port.isdigit() and len(port) <= _MAX_PORT_DIGITS)
    return bare if colon and is_port else host


def hosts_of(allowed: Iterable[str], api_host: str) -> tuple[str, ...]:
    """Returns the allowed hosts, and the API's listen address if it is a specific one."""
    if api_host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return tuple(allowed)
    return (*allowed, f"[{api_host}]" if ":" in api_host else api_host)
