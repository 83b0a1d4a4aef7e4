"""A minimal collector: OTLP over HTTP on a free port of loopback, and the spans that it received.

    with OtlpReceiver() as collector:
        … OTEL_EXPORTER_OTLP_ENDPOINT=collector.url …
        collector.wait_for_spans(2)

It answers 200 unless `status` says otherwise. A thread of its own serves; any thread asks.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpReceiver:
    """The server, as long as it is entered."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[ExportTraceServiceRequest] = []
        #: The headers of the last request.
        self.headers: dict[str, str] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(dict(self.headers.items()), body)
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, headers: dict[str, str], body: bytes) -> None:
        """What the handler was sent."""
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.requests.append(ExportTraceServiceRequest.FromString(body))

    @property
    def spans(self) -> list[Span]:
        """All spans that came, in order."""
        return [
            span
            for request in self.requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    @property
    def resource(self) -> dict[str, object]:
        """Who sent the last of them."""
        return attributes_of(self.requests[-1].resource_spans[0].resource.attributes)

    def wait_for_spans(self, count: int) -> list[Span]:
        """The spans, once there are so many."""
        wait_until(lambda: len(self.spans) >= count, what=f"{count} spans")
        return self.spans


def attributes_of(pairs: Any) -> dict[str, object]:
    """Attributes by name, as Python's values."""
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> object:
    return getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
