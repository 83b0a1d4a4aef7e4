"""Counts requests by method, route and status, and measures their duration.

Routes are templates (`/v1/topics/{topic}`), never paths; a request without a route is "other". Updated on the
event loop, read by the admin thread at scrape time. `Observed` is the ASGI callable around FastAPI. The fast
paths hold their counters and update them directly.

If `traceparent` names a recorded trace, the request is an exemplar in its histogram's bucket, in OpenMetrics
only. The exemplar leads from a slow bucket to a slow trace. A request without the header costs a comparison
of header names. If `exemplars` is off, no header is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Final, Self

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from service.base.fast_metrics import (
    SECONDS,
    Counter,
    Histogram,
    Trace,
    counter_family,
    counters,
    gauge,
    histogram_family,
    histograms,
)
from service.wire.asgi import ASGIApp, Receive, Scope, Send, WatchedStatus, header, method_of
from service.wire.trace_context import TRACEPARENT, trace_context

#: The label of requests without a route, so that callers can't create series.
OTHER: Final = "other"

#: When a request came that has waited before it is passed on (`perf_counter()`), in its scope.
STARTED: Final = "pilotfish.started"

#: The outcomes of a produce request: all, some or none of its records were acknowledged.
PRODUCE_OUTCOMES: Final = ("success", "partial", "error")

#: Methods that have their own label; HTTP allows any word.
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})

_RECORDED: Final = 0x01


def recorded_trace(traceparent: bytes) -> Trace | None:
    """Returns the trace in a traceparent if it is valid and recorded. Others have nothing to show."""
    context = trace_context(traceparent)
    if context is None or not context.flags & _RECORDED:
        return None
    return Trace(context.trace_id, context.span_id)


def produce_outcome(failed: int, records: int) -> str:
    """Returns the outcome of a produce request with so many failed records."""
    return "success" if not failed else "partial" if failed < records else "error"


class RouteCounters:
    """The counters of one route, method and status. A fast path holds them: counting is two additions."""

    __slots__ = ("_exemplars", "_requests", "_seconds")

    def __init__(self, requests: Counter, seconds: Histogram, *, exemplars: bool) -> None:
        self._requests = requests
        self._seconds = seconds
        self._exemplars = exemplars

    def add(self, seconds: float, traceparent: bytes | None = None) -> None:
        """Counts a request, and keeps its trace as exemplar if it has one."""
        self._requests.value += 1
        trace = recorded_trace(traceparent) if traceparent is not None and self._exemplars else None
        self._seconds.observe(seconds, trace)


class TimedProduce:
    """Times one produce request within `with`. The outcome is an error unless `outcome` is set."""

    __slots__ = ("_by_outcome", "_started_s", "_trace", "outcome", "traceparent")

    def __init__(self, by_outcome: Mapping[str, Histogram], traceparent: bytes | None = None) -> None:
        self._by_outcome = by_outcome
        self._trace = None if traceparent is None else recorded_trace(traceparent)
        self.traceparent = traceparent
        self.outcome = "error"

    def __enter__(self) -> Self:
        self._started_s = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._by_outcome[self.outcome].observe(perf_counter() - self._started_s, self._trace)


class HttpMetrics(Collector):
    """The metrics of the API. A collector for a Prometheus registry."""

    def __init__(self, *, exemplars: bool = True) -> None:
        """Without `exemplars`, no header is read."""
        self._exemplars = exemplars
        self._requests = counters(
            "pilotfish_http_requests", "HTTP requests answered.", "method", "route", "code"
        )
        self._seconds = histograms(
            "pilotfish_http_request_duration_seconds",
            "From a request's head to the last byte of its answer.",
            SECONDS,
            "method",
            "route",
        )
        self._produce = histograms(
            "pilotfish_produce_duration_seconds",
            "From the head of a produce request to its answer.",
            SECONDS,
            "outcome",
        )
        self._by_outcome = {outcome: self._produce.child(outcome) for outcome in PRODUCE_OUTCOMES}
        self._replays = counters(
            "pilotfish_idempotency_replays",
            "Requests that got the answer of an earlier one with the same Idempotency-Key.",
        )
        self._keys_forgotten = counters(
            "pilotfish_idempotency_keys_forgotten_early",
            "Answers under an Idempotency-Key that were dropped early: a retry would write again.",
        )
        self.replays = self._replays.child()
        self.keys_forgotten_early = self._keys_forgotten.child()
        self.in_progress = 0
        self._by_route: dict[tuple[str, str, int], RouteCounters] = {}

    def route_counters(self, method: str, route: str, status: int) -> RouteCounters:
        found = self._by_route.get((method, route, status))
        if found is None:
            label = method if method in METHODS else OTHER
            found = RouteCounters(
                self._requests.child(label, route, str(status)),
                self._seconds.child(label, route),
                exemplars=self._exemplars,
            )
            if label == method:  # callers can't make it grow by words of their own
                self._by_route[method, route, status] = found
        return found

    def traceparent_of(self, scope: Scope) -> bytes | None:
        """Returns a request's traceparent; None if it has none or `exemplars` is off."""
        return header(scope, TRACEPARENT) if self._exemplars else None

    def produce(self, scope: Scope) -> TimedProduce:
        """Returns a timer for one produce request, for use with `with`."""
        return TimedProduce(self._by_outcome, self.traceparent_of(scope))

    def produced(self, outcome: str) -> Histogram:
        """Returns the histogram of produce requests with this outcome, one of PRODUCE_OUTCOMES."""
        return self._by_outcome[outcome]

    def collect(self) -> Iterator[Metric]:
        """Yields the families for Prometheus. Admin thread."""
        yield counter_family(self._requests)
        yield histogram_family(self._seconds)
        yield histogram_family(self._produce)
        yield counter_family(self._replays)
        yield counter_family(self._keys_forgotten)
        yield gauge(
            "http_requests_in_progress",
            "HTTP requests in progress or waiting, except look-ups that are answered at once.",
            self.in_progress,
        )


class Observed:
    """Counts the wrapped app's answers by their route."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = scope.get(STARTED, perf_counter())
        watched = WatchedStatus(scope, send)
        self._metrics.in_progress += 1
        try:
            await self._app(scope, receive, watched.send)
        finally:
            self._metrics.in_progress -= 1
            route = getattr(scope.get("route"), "path", OTHER)
            counters = self._metrics.route_counters(method_of(scope), route, watched.status or 500)
            counters.add(perf_counter() - started, self._metrics.traceparent_of(scope))
