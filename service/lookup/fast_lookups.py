"""Answers metadata look-ups in front of FastAPI: prepared ones at once, others after a wait.

    FastLookups     a GET with a prepared answer costs a dictionary access. The listener asks for it when a
                    request's head is complete (`answer`), before a scope, a cycle and a task exist. Requests
                    that it does not ask for, such as HEAD, get the same answer by ASGI
    ParkedLookups   a look-up of a topic that is unknown, or must be refreshed first, waits here, then gets
                    its problem or goes to FastAPI's routes, which answer at once. Inside FastAPI a waiting
                    request would keep about twenty coroutines and three exit stacks, 20 kB and more; here
                    it keeps a handful

Everything else goes to FastAPI's routes unchanged: other methods, encoded names, freshness demands, wrong
parameters. Tests check that all ways give equal answers. A topic that the caller may not read is not searched
in the table, so its answer takes as long as a missing topic's. Event loop only.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final, NamedTuple

from service.admission.admission_control import RetryAfter
from service.admission.caller import ANYONE, Caller, caller_of
from service.admission.failed_requests import FailedRequests
from service.lookup.lookup_table import Entry, LookupTable
from service.lookup.lookups import Demands, Lookups
from service.observe.http_metrics import STARTED, HttpMetrics
from service.wire.asgi import (
    ASKED_METHOD,
    Answer,
    ASGIApp,
    HeaderPairs,
    Peer,
    Receive,
    Scope,
    Send,
    WatchedStatus,
    header_values,
    method_of,
    respond,
    respond_with,
)
from service.wire.content_coding import LONG_BYTES
from service.wire.errors import Problem, ProblemError, native
from service.wire.freshness import matches
from service.wire.trace_context import TRACEPARENT
from service.wire.waiting import CALLER_GONE, MAX_WAIT_MS, CallerGoneError

#: Matches what a single plain parameter does not contain.
_ENCODED: Final = re.compile(rb"[&%+;#]|[^\x21-\x7e]")

_PATH: Final = re.compile(rb"/v1/topics/(?P<topic>[\w.-]+)(?P<rest>|/partitions/\d{1,9}|/leader)")
_BLOCK: Final = rb"max_block_ms=(?P<ms>\d{1,7})"
_QUERY: Final = re.compile(_BLOCK)
_LEADER_QUERY: Final = re.compile(rb"(?:partition=\d{1,9}|key=[\w.~-]+)(?:&" + _BLOCK + rb")?")

_ROUTES: Final = {
    b"": "/v1/topics/{topic}",
    b"/l": "/v1/topics/{topic}/leader",
    b"/p": "/v1/topics/{topic}/partitions/{partition}",
}


class _Asked(NamedTuple):
    route: str
    topic: str
    demands: Demands


class ParkedLookups:
    """ASGI middleware: look-ups that must wait do so here. `knows` returns whether a topic needs no wait."""

    def __init__(
        self,
        app: ASGIApp,
        lookups: Lookups,
        knows: Callable[[str], bool],
        metrics: HttpMetrics,
        failed: FailedRequests,
        retry_after: RetryAfter,
    ) -> None:
        self._app = app
        self._lookups = lookups
        self._knows = knows
        self._metrics = metrics
        self._failed = failed
        self._retry_after = retry_after

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        asked = _asked(scope) if scope.get("method") == "GET" else None
        # A topic that the caller may not read is refused here, known or not, so that both take equally long.
        if asked is None or (self._knows(asked.topic) and caller_of(scope).read.allow(asked.topic)):
            return self._app(scope, receive, send)
        return self._wait(asked, scope, receive, send)

    async def _wait(self, asked: _Asked, scope: Scope, receive: Receive, send: Send) -> None:
        """Waits until the topic is known, or sends its problem. One coroutine: thousands may wait."""
        started = perf_counter()
        self._metrics.in_progress += 1
        problem: Problem | None
        try:
            problems = await self._lookups.know([asked.topic], asked.demands, receive, caller_of(scope))
            problem = problems.get(asked.topic)
        except ProblemError as e:
            problem = e.problem
        except CallerGoneError:
            self._count(scope, asked, CALLER_GONE, started)
            return
        finally:
            self._metrics.in_progress -= 1
        if problem is None:
            scope[STARTED] = started
            await self._app(scope, receive, send)
            return
        problem = self._retry_after.on(problem)
        self._failed.add(scope, asked.route, asked.topic, problem)
        reported, watched = native(problem), WatchedStatus(scope, send)
        headers = problem.all_headers()
        await respond_with(watched.send, reported.status, reported.media_type, reported.body, headers)
        self._count(scope, asked, watched.status or reported.status, started)

    def _count(self, scope: Scope, asked: _Asked, status: int, started: float) -> None:
        traceparent = self._metrics.traceparent_of(scope)
        counters = self._metrics.route_counters(method_of(scope), asked.route, status)
        counters.add(perf_counter() - started, traceparent)


def parked_route(scope: Scope) -> str | None:
    """Returns the route of a look-up that can wait here; None for other requests."""
    asked = _asked(scope)
    return None if asked is None else asked.route


def _asked(scope: Scope) -> _Asked | None:
    """Returns what a request asks for; None unless it is so plain that nothing in it can be wrong."""
    path = _PATH.fullmatch(scope.get("raw_path") or b"")
    if path is None:
        return None
    rest: bytes = path["rest"]
    is_leader = rest.startswith(b"/l")
    query = (_LEADER_QUERY if is_leader else _QUERY).fullmatch(scope["query_string"])
    if query is None and (is_leader or scope["query_string"]):
        return None
    if is_leader and header_values(scope, b"pilotfish-key"):
        return None
    max_block_ms = int(query["ms"]) if query is not None and query["ms"] else None
    if max_block_ms is not None and max_block_ms > MAX_WAIT_MS:
        return None
    return _Asked(_ROUTES[rest[:2]], path["topic"].decode(), Demands(max_block_ms))


#: The status, the entry, and the traceparent of a request with a prepared answer.
_Found = tuple[int, Entry, bytes | None]


class FastLookups:
    """Sends prepared answers: to the listener, before a request has a scope, and as ASGI middleware.

    `skipped` are prefixes of paths that always go to the app.
    """

    def __init__(
        self, app: ASGIApp, table: LookupTable, metrics: HttpMetrics, skipped: tuple[bytes, ...] = ()
    ) -> None:
        self._app = app
        self._table = table
        self._metrics = metrics
        self._skipped = skipped

    def answer(self, target: bytes, headers: HeaderPairs, peer: Peer, caller: Caller, write: Answer) -> bool:
        """Passes a GET's prepared answer to `write`. Returns False, having done nothing, without one."""
        started = perf_counter()
        found = self._find(target, headers, peer.scheme, caller)
        if found is None:
            return False
        status, entry, traceparent = found
        if entry.length > LONG_BYTES and any(name == b"accept-encoding" for name, _ in headers):
            return False  # the guards see to it that it is packed
        if not (write(200, entry.head, entry.body) if status == 200 else write(304, entry.head_304, b"")):
            return False
        counters = self._metrics.route_counters("GET", entry.route, status)
        counters.add(perf_counter() - started, traceparent)
        return True

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Sends the answer, or calls the app. Not a coroutine, which would stay alive while the app waits."""
        if scope.get("method") != "GET":
            return self._app(scope, receive, send)
        started = perf_counter()
        query: bytes = scope["query_string"]
        path: bytes = scope.get("raw_path") or b""
        target = b"%s?%s" % (path, query) if query else path
        found = self._find(target, scope["headers"], scope.get("scheme", "http"), caller_of(scope))
        if found is None:
            return self._app(scope, receive, send)
        return self._respond(scope.get(ASKED_METHOD, "GET"), send, found, started)

    async def _respond(self, method: str, send: Send, found: _Found, started: float) -> None:
        status, entry, traceparent = found
        if status == 200:
            await respond(send, 200, entry.headers, entry.body)
        else:
            await respond(send, 304, entry.headers_304, b"")
        self._metrics.route_counters(method, entry.route, status).add(perf_counter() - started, traceparent)

    def _find(self, target: bytes, headers: HeaderPairs, scheme: str, caller: Caller) -> _Found | None:
        """Returns the prepared answer for a GET with these headers; None if a route must answer."""
        if target.startswith(self._skipped) or (caller is not ANYONE and not _may_look(caller, target)):
            return None
        table = self._table
        path, _, query = target.partition(b"?")
        if query.startswith(b"key="):
            key = query[len(b"key=") :]
            entry = None if _ENCODED.search(key) else table.find_by_key(path, key)
        elif target.startswith(table.linked):
            entry = table.find(target, b"%s://%s" % (scheme.encode(), _host_of(headers)))
        else:
            entry = table.find(target)
        if entry is None or entry.needs_route:
            return None
        status = 200
        accept: bytes | None = None
        traceparent: bytes | None = None
        for name, value in headers:
            if name == b"if-none-match":
                if matches(value, entry.etag):
                    status = 304
            elif name == b"accept":
                if accept is not None:
                    return None
                accept = value
            elif name == b"pilotfish-key":
                # May be a second way to name a partition, which the route refuses.
                return None
            elif name == TRACEPARENT:
                traceparent = value if traceparent is None else b""  # several count as none
        if accept is not None and entry.form.accepts is not None and not entry.form.accepts(accept):
            return None
        return status, entry, traceparent


def _host_of(headers: HeaderPairs) -> bytes:
    """Returns Host, as in `asgi.base_of`."""
    return next((value for name, value in headers if name == b"host"), b"") or b"localhost"


def _may_look(caller: Caller, target: bytes) -> bool:
    """Returns whether a target is about no topic, or about one that the caller may read."""
    _, found, rest = target.partition(b"/topics/")
    return not found or caller.read.allow(rest.partition(b"?")[0].partition(b"/")[0].decode("latin-1"))
