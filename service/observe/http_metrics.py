"""Requests by method, route and status, and how long they took.

Routes are templates (`/v1/topics/{topic}`), never paths: what nobody serves is "other". Fed on the event
loop, read by the admin thread at scrape time. `Observed` is the ASGI callable around FastAPI; the fast
paths feed their own tallies, which they hold ready.

A request that says by `traceparent` to which trace it belongs, and that the trace is recorded, is shown as
the exemplar of its histogram's range, in OpenMetrics only: a way from a slow bucket to a trace that was slow.
Who sends none pays for a comparison of header names, and where `exemplars` is off no header is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Final, Self

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.base.fast_metrics import (
    SECONDS,
    Counter,
    Histogram,
    Trace,
    counter_family,
    counters,
    histogram_family,
    histograms,
)
from service.wire.asgi import ASGIApp, Message, Receive, Scope, Send, header
from service.wire.trace_context import trace_context

#: The label of what matched no route, so that strangers can't make series up.
OTHER: Final = "other"

#: How a produce request may end, by how many of its records were acknowledged: all, some, none.
PRODUCE_OUTCOMES: Final = ("success", "partial", "error")

#: Methods with a label of their own; HTTP allows any word there.
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


#: The header that names a trace. Source: W3C Trace Context, section 3.2.
TRACEPARENT: Final = b"traceparent"
_RECORDED: Final = 0x01

#: What a traceparent says; None for what is none, and for a trace that nobody records.
ReadTrace = Callable[[bytes], Trace | None]


def recorded_trace(traceparent: bytes) -> Trace | None:
    """The trace that a header names, if it is one and is recorded: another could not be looked at."""
    context = trace_context(traceparent)
    if context is None or not context.flags & _RECORDED:
        return None
    return Trace(context.trace_id, context.span_id)


def _no_trace(_: bytes) -> Trace | None:
    return None


def produce_outcome(failed: int, records: int) -> str:
    """How a produce request ended of whose records so many failed."""
    return "success" if not failed else "partial" if failed < records else "error"


class RouteCounters:
    """One route, method and status: what a fast path holds so that counting is two additions."""

    __slots__ = ("_read_trace", "_requests", "_seconds")

    def __init__(self, requests: Counter, seconds: Histogram, read_trace: ReadTrace = recorded_trace) -> None:
        self._requests = requests
        self._seconds = seconds
        self._read_trace = read_trace

    def add(self, seconds: float, traceparent: bytes | None = None) -> None:
        """Counts a request, and shows its trace if it brought one."""
        self._requests.value += 1
        trace = None if traceparent is None else self._read_trace(traceparent)
        if trace is None:
            self._seconds.observe(seconds)
        else:
            self._seconds.observe_traced(seconds, trace)


class TimedProduce:
    """One produce request, from `with` on. What leaves without having said how it ended is an error."""

    __slots__ = ("_by_outcome", "_started_s", "_trace", "outcome")

    def __init__(self, by_outcome: Mapping[str, Histogram], trace: Trace | None = None) -> None:
        self._by_outcome = by_outcome
        self._trace = trace
        self.outcome = "error"

    def __enter__(self) -> Self:
        self._started_s = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        histogram, seconds = self._by_outcome[self.outcome], perf_counter() - self._started_s
        if self._trace is None:
            histogram.observe(seconds)
        else:
            histogram.observe_traced(seconds, self._trace)


class HttpMetrics(Collector):
    """The tallies of the API. A collector for a Prometheus registry."""

    def __init__(self, *, exemplars: bool = True) -> None:
        """Without `exemplars` no header is looked at."""
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
            "Requests that were answered as an earlier one under their key was.",
        )
        self._keys_forgotten = counters(
            "pilotfish_idempotency_keys_forgotten_early",
            "Answers under an Idempotency-Key that gave way to others: a retry of theirs would write again.",
        )
        self.replays = self._replays.child()
        self.keys_forgotten_early = self._keys_forgotten.child()
        self.in_progress = 0

    def route_counters(self, method: str, route: str, status: int) -> RouteCounters:
        """The counters of a route; callers on a hot path keep them."""
        method = method if method in METHODS else OTHER
        return RouteCounters(
            self._requests.child(method, route, str(status)),
            self._seconds.child(method, route),
            recorded_trace if self._exemplars else _no_trace,
        )

    def traceparent_of(self, scope: Scope) -> bytes | None:
        """What a request says of its trace, for who counts it; None where nobody asks."""
        return header(scope, TRACEPARENT) if self._exemplars else None

    def produce(self, scope: Scope) -> TimedProduce:
        """Times and counts a produce request that is served within `with`."""
        traceparent = self.traceparent_of(scope)
        return TimedProduce(self._by_outcome, None if traceparent is None else recorded_trace(traceparent))

    def produced(self, outcome: str) -> Histogram:
        """The histogram of produce requests that ended as one of PRODUCE_OUTCOMES."""
        return self._by_outcome[outcome]

    def collect(self) -> Iterator[Metric]:
        """The families, for Prometheus. Admin thread."""
        yield counter_family(self._requests)
        yield histogram_family(self._seconds)
        yield histogram_family(self._produce)
        yield counter_family(self._replays)
        yield counter_family(self._keys_forgotten)
        yield GaugeMetricFamily(
            "pilotfish_http_requests_in_progress",
            "HTTP requests that are being worked on or waiting; prepared look-ups are not among them.",
            value=self.in_progress,
        )


class Observed:
    """Counts what the wrapped app answers, by the route that it found."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = perf_counter()
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.in_progress += 1
        try:
            await self._app(scope, receive, watched)
        finally:
            self._metrics.in_progress -= 1
            route = getattr(scope.get("route"), "path", OTHER)
            traceparent = self._metrics.traceparent_of(scope)
            self._metrics.route_counters(scope["method"], route, status).add(
                perf_counter() - started, traceparent
            )
