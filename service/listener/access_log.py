"""Logs a line for each answered request, with its fields: for `access_log`.

    {…,"msg":"127.0.0.1:4711 - \\"GET /v1/topics/orders/leader?key=… HTTP/1.1\\" 200","method":"GET",
     "path":"/v1/topics/orders/leader","status":200,"duration_ms":0.412,"trace_id":"0af7…"}

`duration_ms` is from the request's head to the last byte of its answer. `trace_id` is that of the caller's
`traceparent`, or of our own span if `tracing` is on. Values of query parameters are not shown: see
`logs.without_values`. Requests that are no HTTP have no line. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final
from urllib.parse import quote

from service.base.logs import ACCESS_LOG, FIELDS
from service.wire.asgi import (
    Answer,
    AnswerAtOnce,
    ASGIApp,
    HeaderPairs,
    Peer,
    Receive,
    Scope,
    Send,
    WatchedStatus,
)
from service.wire.trace_context import TRACE_CONTEXT, TraceContext, trace_context_of
from service.wire.waiting import CALLER_GONE

_FAILED: Final = 500


class AccessLogged:
    """An ASGI application whose requests are logged."""

    def __init__(self, app: ASGIApp, now_s: Callable[[], float] = perf_counter) -> None:
        self._app = app
        self._now_s = now_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = self._now_s()
        watched, unanswered = WatchedStatus(scope, send), CALLER_GONE
        try:
            await self._app(scope, receive, watched.send)
        except Exception:
            unanswered = _FAILED  # the server answers it
            raise
        finally:
            status = unanswered if watched.status is None else watched.status
            _log(scope, status, self._now_s() - began_s)

    def at_once(self, answer_at_once: AnswerAtOnce) -> AnswerAtOnce:
        """Returns the same with a line for each request that it answers."""

        def logged(target: bytes, headers: HeaderPairs, peer: Peer, write: Answer) -> bool:
            began_s = self._now_s()
            status = 0

            def watched(code: int, head: bytes, body: bytes) -> bool:
                nonlocal status
                status = code
                return write(code, head, body)

            if not answer_at_once(target, headers, peer, watched):
                return False
            path, _, query = target.partition(b"?")
            scope = {
                "client": peer.client,
                "method": "GET",
                "path": path.decode("latin-1"),
                "query_string": query,
                "headers": headers,
                "http_version": "1.1",
            }
            _log(scope, status, self._now_s() - began_s)
            return True

        return logged


def _log(scope: Scope, status: int, took_s: float) -> None:
    client: tuple[str, int] | None = scope.get("client")
    caller = "" if client is None else f"{client[0]}:{client[1]}"
    query = scope["query_string"].decode("latin-1")
    path = scope["path"]
    fields: dict[str, Any] = {
        "method": scope["method"],
        "path": path,
        "status": status,
        "duration_ms": round(took_s * 1000, 3),
    }
    context: TraceContext | None = scope.get(TRACE_CONTEXT) or trace_context_of(scope)
    if context is not None:
        fields["trace_id"] = context.trace_id
    target = f"{quote(path)}?{query}" if query else quote(path)
    line = (caller, scope["method"], target, scope["http_version"], status)
    ACCESS_LOG.info('%s - "%s %s HTTP/%s" %d', *line, extra={FIELDS: fields})
