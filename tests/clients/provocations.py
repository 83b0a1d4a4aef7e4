"""Brings a sidecar to each answer that its OpenAPI document lists, for clients that can't send a bad request.

    with Provoked(folder) as provoked:
        provoked.url("usual", "415")        # a base URL: what is sent there arrives with a Content-Encoding

A generated client sends only what the document allows. Between it and the sidecars is a proxy, whose path
names a sidecar and a change to make. The answers are the sidecars' own. `calls` lists what to ask.

    usual            brokers, topics, a spool
    alone            no brokers
    full             no brokers, and one waiting request and one byte of body are the most that it holds
    unacknowledged   acks=0
"""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from client_core import Errors
from client_core.testing.free_ports import free_ports
from service.process.embedded import EmbeddedCluster
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: The topic of the document's examples.
TOPIC: Final = "orders"
#: Topics whose records fail: for good, after the brokers stored them, one of two, and by Kafka's ACL.
FAILS, LATE, HALF, INVALID = "failing", "late", "half", "invalid"
_FOR_EVER: Final = 1_000_000_000
_KAFKA: Final = {
    "request.timeout.ms": "700",
    "delivery.timeout.ms": "800",
    "max.block.ms": "500",
    "retry.backoff.ms": "50",
    "linger.ms": "0",
}
_FLAGS: Final = ("--unknown-topic-wait-ms", "50", "--log-level", "warning", "--dapr-pubsub-names", "pubsub")
_LIMITS: Final = {"unknown_topics_per_second": 100_000}
_ELSEWHERE: Final = "https://elsewhere.example"

_ORIGIN: Final = ("origin", _ELSEWHERE)
#: Headers that each change adds, in place of those of the same names.
_ADDED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "304": (("if-none-match", "*"),),
    "400": (_ORIGIN, _ORIGIN),
    "403": (_ORIGIN,),
    "406": (("accept", "image/png"),),
    "415": (("content-encoding", "br"),),
    "421": (("host", "elsewhere.example"),),
    "as-json": (("accept", "application/json"),),
}
_DROPPED: Final = {
    *(
        "connection",
        "content-length",
        "transfer-encoding",
        "expect",
        "http2-settings",
        "keep-alive",
        "upgrade",
    )
}
_TOO_LONG: Final = 10**15
#: Ends an event stream after its first event.
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Call(NamedTuple):
    """One request of a generated client, and the status of its answer."""

    operation: str
    status: int
    base: str
    arguments: dict[str, Any]


class Provoked:
    """The sidecars, their brokers and the proxy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(EmbeddedCluster(topics=(TOPIC,)))
            for topic in (FAILS, LATE, HALF, INVALID):
                cluster.kafka.create_topic(topic, partitions=2)
            kafka = cluster.kafka
            kafka.fail_next_produces(Errors.UNKNOWN_SERVER_ERROR, topic=FAILS, times=_FOR_EVER)
            kafka.fail_next_produces(
                Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, topic=LATE, times=_FOR_EVER, appended=True
            )
            kafka.fail_next_produces(Errors.UNKNOWN_SERVER_ERROR, topic=HALF, partition=0, times=_FOR_EVER)
            kafka.fail_next_produces(Errors.INVALID_RECORD, topic=INVALID, times=_FOR_EVER)
            (nobody,) = free_ports(1)
            self._sidecars = {
                "usual": self._sidecar("usual", cluster.bootstrap_servers, spool=True),
                "alone": self._sidecar("alone", f"127.0.0.1:{nobody}"),
                "full": self._sidecar(
                    "full",
                    f"127.0.0.1:{nobody}",
                    flags=("--max-waiting-requests", "1", "--max-waiting-bytes", "1", "--max-watchers", "0"),
                ),
                "unacknowledged": self._sidecar(
                    "unacknowledged",
                    cluster.bootstrap_servers,
                    kafka={"acks": "0", "enable.idempotence": "false"},
                ),
            }
            for sidecar in self._sidecars.values():
                stack.enter_context(sidecar)
            stack.enter_context(self._occupied())
            ports = {name: sidecar.api_port for name, sidecar in self._sidecars.items()}
            self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(ports))
            self._proxy.daemon_threads = True
            stack.callback(self._proxy.server_close)
            threading.Thread(target=self._proxy.serve_forever, name="proxy", daemon=True).start()
            stack.callback(self._proxy.shutdown)
            self._left = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.close()

    @property
    def url(self) -> str:
        """The proxy; `{sidecar}/{change}` follows."""
        return f"http://127.0.0.1:{self._proxy.server_port}"

    @property
    def token(self) -> str:
        """The token that all sidecars know."""
        return self._tokens.token("all")

    def document(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._sidecars["usual"].api.get("/openapi.json").json()
        return answer

    def cluster_id(self) -> str:
        return str(self._sidecars["usual"].api.get("/v1/cluster").json()["cluster_id"])

    # -- inside ----------------------------------------------------------------------------------------------

    def _sidecar(
        self,
        name: str,
        bootstrap_servers: str,
        *,
        kafka: Mapping[str, str] | None = None,
        flags: tuple[str, ...] = (),
        spool: bool = False,
    ) -> Sidecar:
        folder = self._folder / name
        folder.mkdir()
        self._tokens = TokensFile(folder, all={"read": ["*"], "produce": ["*"]})
        more = ("--spool-folder", str(folder / "spool")) if spool else ()
        return Sidecar(
            folder,
            bootstrap_servers=bootstrap_servers,
            kafka={**_KAFKA, **(kafka or {})},
            flags=(*_FLAGS, "--tokens-file", self._tokens.setting, *more, *flags),
            limits={**_LIMITS, **({"lookup_wait_ms": 50} if name in ("alone", "full") else {})},
            headers=self._tokens.of("all"),
        )

    @contextlib.contextmanager
    def _occupied(self) -> Iterator[None]:
        """One look-up waits at the full sidecar as long as this lasts."""
        full = self._sidecars["full"]
        with socket.create_connection(("127.0.0.1", full.api_port), patient(10)) as waiting:
            lines = (
                "GET /v1/cluster?max_block_ms=3600000 HTTP/1.1",
                "host: localhost",
                f"authorization: Bearer {self.token}",
                *("", ""),
            )
            waiting.sendall("\r\n".join(lines).encode())
            wait_until(
                lambda: full.api.get("/v1/status").json()["waiting_requests"] == 1,
                what="a request that waits",
                timeout_s=patient(20),
            )
            yield


def _handler_of(ports: Mapping[str, int]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Passes one request on, changed, and its answer back, unchanged; then closes."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        do_POST = do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _pass_on(self) -> None:
            _, name, change, path = self.path.split("/", 3)
            body = self._body()
            added = _ADDED.get(change, ())
            replaced = {*_DROPPED, *(header for header, _ in added)}
            replaced |= {"host"} if change != "421" else set()
            replaced |= {"authorization"} if change == "401" else set()
            headers = [(n, v) for n, v in self.headers.items() if n.lower() not in replaced]
            headers += [*added, ("connection", "close")]
            if change != "421":
                headers.append(("host", "localhost"))
            if body or self.command != "GET":
                length = {"408": len(body) + 1, "413": _TOO_LONG}.get(change, len(body))
                headers.append(("content-length", str(length)))
            if change == "422":
                path += "&unknown=1" if "?" in path else "?unknown=1"
            head = [f"{self.command} /{path} HTTP/1.1", *(f"{n}: {v}" for n, v in headers), "", ""]
            with socket.create_connection(("127.0.0.1", ports[name]), patient(30)) as upstream:
                upstream.sendall("\r\n".join(head).encode("latin-1") + body)
                events = b""
                while piece := upstream.recv(65536):
                    self.wfile.write(piece)
                    events += piece if change == "cut" else b""
                    if b"\nid: " in events and events.endswith(b"\n\n\r\n"):
                        self.wfile.write(_LAST_CHUNK)
                        break
            self.close_connection = True

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

    return Handler


# -- which call leads to which status ------------------------------------------------------------------------

#: Statuses that come from the topic that is named, where a topic is named.
_TOPIC_OF_STATUS: Final = {404: "missing", 500: FAILS, 504: LATE, 207: HALF}
#: Parts of paths that are not there.
_OTHERS: Final = {"broker_id": 999, "cluster_id": "another", "pubsub": "another"}
#: Those that a change of the proxy provokes.
_CHANGED: Final = frozenset({304, 400, 401, 403, 406, 408, 413, 415, 421, 422})
_SHUTDOWN: Final = "a sidecar that shuts down"
_PUBLISH: Final = ("Event", "EventByPut", "Events", "EventsByPut", "EventsAlpha", "EventsAlphaByPut")
#: Answers that nothing here provokes: what would have to happen for them.
UNPROVOKED: Final[Mapping[tuple[str, int], str]] = {
    ("lookUpLeaders", 503): "a body for which there is not enough memory",
    ("getOffsets", 500): "a leader that refuses",
    ("getOffsetsV2", 500): "a leader that refuses",
    **{("produceToTopics", status): "another topic in the body" for status in (207, 404, 500, 504)},
    ("produceRecordsV3", 413): "more records than one body may have",
    ("produceStream", 503): _SHUTDOWN,
    ("putDaprLabel", 503): _SHUTDOWN,
    **{(f"publishDapr{each}", 503): _SHUTDOWN for each in _PUBLISH},
    **{
        (f"publishDapr{each}", 422): "every failed entry is a 500 with failedEntries" for each in _PUBLISH[2:]
    },
    ("requeueRecords", 429): "several requeues at once, which take microseconds",
    ("requeueRecords", 503): "a disk that fails in a requeue",
    ("spoolRecords", 404): "a partition that the topic lacks: the topic itself need not exist",
    ("spoolRecords", 500): "a disk that fails",
    ("spoolRecords", 503): "a spool that is full",
    ("spoolRecords", 504): "a disk that is slow",
}


def calls(document: Mapping[str, Any], cluster_id: str) -> list[Call]:
    """A call for each status of each operation, without those that are UNPROVOKED."""
    return [
        _call(operation, status, cluster_id)
        for operations in document["paths"].values()
        for operation in operations.values()
        for status in map(int, operation["responses"])
        if (operation["operationId"], status) not in UNPROVOKED
    ]


def _call(operation: Mapping[str, Any], status: int, cluster_id: str) -> Call:
    name = operation["operationId"]
    arguments: dict[str, Any] = {
        parameter["name"]: _argument(parameter, cluster_id)
        for parameter in operation.get("parameters", ())
        if parameter.get("required")
    }
    if name == "lookUpLeader":
        arguments["partition"] = 0
    sidecar = {429: "full", 503: "alone"}.get(status, "usual")
    change = str(status) if status in _CHANGED else "as-it-is"
    others = {key: value for key, value in _OTHERS.items() if key in arguments}
    if status == 404 and others:
        arguments |= others
    elif status in _TOPIC_OF_STATUS and "topic" in arguments:
        arguments["topic"] = _TOPIC_OF_STATUS[status]
    elif status == 422 and "pubsub" in arguments:
        arguments["topic"], change = INVALID, "as-it-is"
    if status == 412:
        arguments["min_version"] = "00000000-1"
    if status == 202 and name in ("produceRecords", "produceBytes", "produceStream", "produceToTopics"):
        sidecar = "unacknowledged"
    if status == 204 and name.startswith("produceTo"):
        arguments["async"] = True
    if name == "watchChanges":
        change = "cut" if status == 200 else "as-json" if status == 412 else change
    if name == "requeueRecords" and status == 504:
        arguments["max_block_ms"] = 0
    if name == "checkDaprHealth" and status == 500:
        arguments["appid"] = "another"
    if name == "checkDaprOutboundHealth" and status == 500:
        sidecar = "alone"
    return Call(name, status, f"{sidecar}/{change}", arguments)


def _argument(parameter: Mapping[str, Any], cluster_id: str) -> Any:
    known = {"topic": TOPIC, "cluster_id": cluster_id, "pubsub": "pubsub", "key": "colour"}
    if parameter["name"] in known:
        return known[parameter["name"]]
    if "example" in parameter:
        return parameter["example"]
    return 1 if parameter["name"] == "broker_id" else parameter["schema"].get("example", 0)
