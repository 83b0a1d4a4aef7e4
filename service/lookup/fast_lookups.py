"""Prepared look-ups, in front of FastAPI: a GET whose answer lies ready costs a dictionary access.

It goes out as the bytes that it is, by the server's own short way (`asgi.ANSWER`) where there is one: uvicorn
would judge and spell each of its headers anew, and write it in two pieces. A test holds the two equal.

A miss falls through. So does every other method, and whatever has a query that the table has no key for:
FastAPI's routes judge it, wait where that is asked for, and name what is wrong. A topic that the caller may
not read falls through before anybody looks for it, so that its answer takes as long as that of one that is
not there. Event loop only.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Generator
from time import perf_counter
from typing import Final

from service.admission.caller import ANYONE, Caller, caller_of
from service.lookup.lookup_table import TOPICS, Entry, LookupTable
from service.observe.http_metrics import TRACEPARENT, HttpMetrics, RouteTally
from service.wire.asgi import ANSWER, Answer, ASGIApp, HeaderPairs, Receive, Scope, Send, respond
from service.wire.freshness import matches

#: What makes a query more than one plain parameter.
_ENCODED: Final = re.compile(rb"[&%+;#]|[^\x21-\x7e]")


class _Done:
    """What is over already, for who awaits it."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_DONE: Final = _Done()


class FastLookups:
    """The ASGI callable."""

    def __init__(self, app: ASGIApp, table: LookupTable, metrics: HttpMetrics) -> None:
        self._app = app
        self._table = table
        self._metrics = metrics
        self._tallies: dict[tuple[str, int], RouteTally] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """No coroutine of its own: what falls through may wait for minutes, and what does not is over."""
        if scope.get("method") != "GET":
            return self._app(scope, receive, send)
        started = perf_counter()
        query: bytes = scope["query_string"]
        path: bytes = scope.get("raw_path") or b""
        caller = caller_of(scope)
        if caller is not ANYONE and not _may_look(caller, path):
            return self._app(scope, receive, send)
        entry = self._entry(path, query) if query else self._table.find(path)
        if entry is None or entry.is_long:
            return self._app(scope, receive, send)
        status, headers, head, body = 200, entry.headers, entry.head, entry.body
        traceparent: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"if-none-match":
                if matches(value, entry.etag):
                    status, headers, head, body = 304, entry.headers_304, entry.head_304, b""
            elif name == b"pilotfish-key":
                # A second way to name a partition: the route refuses two.
                return self._app(scope, receive, send)
            elif name == TRACEPARENT:
                traceparent = value if traceparent is None else b""  # two name none
        answer: Answer | None = scope.get(ANSWER)
        if answer is None or not answer(status, head, body):
            return self._respond(send, entry.route, status, headers, body, started, traceparent)
        self._count(entry.route, status, started, traceparent)
        return _DONE

    async def _respond(
        self,
        send: Send,
        route: str,
        status: int,
        headers: HeaderPairs,
        body: bytes,
        started: float,
        traceparent: bytes | None,
    ) -> None:
        await respond(send, status, headers, body)
        self._count(route, status, started, traceparent)

    def _count(self, route: str, status: int, started: float, traceparent: bytes | None) -> None:
        tally = self._tallies.get((route, status))
        if tally is None:
            tally = self._tallies[route, status] = self._metrics.tally("GET", route, status)
        tally.add(perf_counter() - started, traceparent)

    def _entry(self, path: bytes, query: bytes) -> Entry | None:
        """The answer to a path with a query: the leader of a partition, or of a plain text key."""
        if query.startswith(b"key=") and not _ENCODED.search(query):
            return self._table.find_by_key(path, query[len(b"key=") :])
        return self._table.find(b"%s?%s" % (path, query))


def _may_look(caller: Caller, path: bytes) -> bool:
    """Whether the path is about no topic, or about one that the caller may read."""
    if not path.startswith(TOPICS):
        return True
    return caller.read.allow(path[len(TOPICS) :].partition(b"/")[0].decode("latin-1"))
