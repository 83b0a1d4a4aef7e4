"""A sidecar's produce call as a server on a thread, whose faults a test chooses; no Kafka behind it.

    with FakeSidecarApi(faults=[HANG_UP_WHEN_STORED]) as fake:
        …                      asks fake.url
        fake.log               what is "in Kafka": (topic, record) in order
        fake.requests          what was asked: key and authorization

It remembers idempotency keys as the real one does (tests/pipeline/test_datasource_api.py holds the two equal)
and takes the next fault off the list with each produce request, until there are none. Each request is
handled on a thread of its own; read the lists when the asker is done.
"""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fault(NamedTuple):
    """The fault of a request that replaces the answer 200. Status 0: the connection just ends."""

    status: int = 0
    stores: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    #: Members of the problem document, or of the error of each record that `fails` names.
    problem: tuple[tuple[str, Any], ...] = ()
    fails: tuple[int, ...] = ()


HANG_UP: Final = Fault()
HANG_UP_WHEN_STORED: Final = Fault(stores=True)
FINE: Final = Fault(200)


class Asked(NamedTuple):
    """A produce request, by what of its head matters."""

    topic: str
    key: str
    authorization: str | None
    records: int


class FakeSidecarApi:
    """As long as it is entered."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = list(faults)
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=patient(30))

    def values(self) -> list[bytes | None]:
        """The values in the log, in order."""
        return [record["value"] for _, record in self.log]

    def produce(self, asked: Asked, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        """Status, headers and body of the answer; None: hang up."""
        with self._lock:
            self.requests.append(asked)
            earlier = self._answers.get((asked.topic, asked.key))
            if earlier is not None:
                if earlier[0] != body:
                    return 422, {}, _problem(422, detail="key was used for another request", written="no")
                return 200, {"Pilotfish-Replayed": "true"}, earlier[1]
            fault = self._faults.pop(0) if self._faults else FINE
            if fault.status >= 400:
                return fault.status, dict(fault.headers), _problem(fault.status, **dict(fault.problem))
            answer = self._stored(asked, body, fault) if fault.stores or fault.status else b""
            return (fault.status, dict(fault.headers), answer) if fault.status else None

    def _stored(self, asked: Asked, body: bytes, fault: Fault) -> bytes:
        read = json.loads(body)
        results: list[dict[str, Any]] = []
        for place, record in enumerate(read["records"]):
            if place in fault.fails:
                results.append({"error": {"kafka_error": None, "code": None, **dict(fault.problem)}})
                continue
            value, key = (
                _bytes(record.get(name), read.get(f"{name}_format", "text")) for name in ("value", "key")
            )
            self.log.append((asked.topic, {**record, "value": value, "key": key}))
            results.append({"partition": 0, "offset": len(self.log) - 1, "timestamp": 1234})
        answer = json.dumps({"topic": asked.topic, "results": results}).encode()
        self._answers[asked.topic, asked.key] = (body, answer)
        return answer


def _bytes(text: str | None, form: str) -> bytes | None:
    if text is None:
        return None
    return text.encode() if form == "text" else base64.b64decode(text)


def _problem(status: int, **members: Any) -> bytes:
    return json.dumps({"status": status, "title": "a fault", "retriable": False, **members}).encode()


def _handler_of(fake: FakeSidecarApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            topic = self.path.split("/")[3]
            key = (self.headers["Idempotency-Key"] or "").strip('"')
            records = body.count(b'"value":')
            answer = fake.produce(Asked(topic, key, self.headers["Authorization"], records), body)
            if answer is None:
                self.close_connection = True
                return
            status, headers, reported = answer
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(reported))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reported)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing: a test looks at `requests`."""

    return Handler
