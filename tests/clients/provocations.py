"""Brings a sidecar to each answer that its OpenAPI document lists, for clients that can't send a bad request.

    with Provoked(folder) as provoked:
        f"{provoked.url}/usual/415"        # a base URL: what is sent there arrives with a Content-Encoding

A generated client sends only what the document allows. Between it and the sidecars is a proxy, whose path
names a sidecar and a change to make. The answers are the sidecars' own. `calls` lists what to ask.

    usual            brokers, topics, a spool
    alone            no brokers
    full             no brokers, and one waiting request and one byte of body are the most that it holds; the
                     disk of its spool hangs when dead letters are read
    unacknowledged   acks=0
    hasty            as usual, but gives records up soon
    ending           shuts down, as long as a record of its own is not acknowledged
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from client_core import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.testing.free_ports import free_ports
from service.process.embedded import EmbeddedCluster
from service.spool.entry import SALT_BYTES
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: The topic of the document's examples.
TOPIC: Final = "orders"
#: Topics whose records fail: for good, after the brokers stored them, one of two, by the brokers, and again
#: and again. The leaders of the first refuse to give offsets, too.
FAILS, LATE, HALF, INVALID, STUCK = "failing", "late", "half", "invalid", "stuck"
_FOR_EVER: Final = 1_000_000_000
_KAFKA: Final = {
    "request.timeout.ms": "2500",
    "delivery.timeout.ms": "3000",
    "max.block.ms": "1000",
    "retry.backoff.ms": "50",
    "linger.ms": "0",
}
#: Where it is certain that records can't be written.
_HASTY: Final = {"request.timeout.ms": "700", "delivery.timeout.ms": "800", "max.block.ms": "500"}
_FLAGS: Final = ("--unknown-topic-wait-ms", "50", "--log-level", "warning", "--dapr-pubsub-names", "pubsub")
_MOST_RECORDS: Final = 10
_LIMITS: Final = {"unknown_topics_per_second": 100_000, "max_records_per_request": _MOST_RECORDS}
_AN_HOUR_MS: Final = 3_600_000
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
    """One request of a generated client, and the status of its answer. `body`: None if it has none."""

    operation: str
    status: int
    base: str
    arguments: dict[str, Any]
    body: Any

    def written_out(self, document: Mapping[str, Any], url: str) -> dict[str, Any]:
        """The call as JSON for a driver in any language. `url`: of Provoked.

        {"operation", "method", "path", "base", "places": {"path": {…}, "query": {…}, "header": {…}},
         "body", "media_type",   if it has a body
         "answer": "json", "text" or null, "model": the schema of the answer, if it has a name}
        """
        path, method, operation = next(
            (path, method, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if operation["operationId"] == self.operation
        )
        places: dict[str, dict[str, Any]] = {}
        for parameter in operation.get("parameters", ()):
            if parameter["name"] in self.arguments:
                place = places.setdefault(parameter["in"], {})
                place[parameter["name"]] = self.arguments[parameter["name"]]
        content = operation["responses"][str(self.status)].get("content", {})
        media_type = next(iter(content), None)
        body = (
            {}
            if self.body is None
            else {"body": self.body, "media_type": next(iter(operation["requestBody"]["content"]))}
        )
        return {
            "operation": self.operation,
            "method": method.upper(),
            "path": path,
            "base": f"{url}/{self.base}",
            "places": places,
            **body,
            "answer": None if media_type is None else "json" if media_type.endswith("json") else "text",
            "model": content[media_type]["schema"].get("$ref", "").rpartition("/")[2] if content else "",
        }


class Provoked:
    """The sidecars, their brokers and the proxy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(EmbeddedCluster(topics=(TOPIC,)))
            for topic in (FAILS, LATE, HALF, INVALID, STUCK):
                cluster.kafka.create_topic(topic, partitions=2)
            kafka = cluster.kafka
            kafka.fail_next_produces(Errors.UNKNOWN_SERVER_ERROR, topic=FAILS, times=_FOR_EVER)
            kafka.fail_next_produces(
                Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND, topic=LATE, times=_FOR_EVER, appended=True
            )
            kafka.fail_next_produces(Errors.UNKNOWN_SERVER_ERROR, topic=HALF, partition=0, times=_FOR_EVER)
            kafka.fail_next_produces(Errors.INVALID_RECORD, topic=INVALID, times=_FOR_EVER)
            kafka.fail_next_produces(Errors.NOT_ENOUGH_REPLICAS, topic=STUCK, times=_FOR_EVER)
            kafka.change_next(ApiKey.LIST_OFFSETS, _refused, times=_FOR_EVER)
            (nobody,) = free_ports(1)
            self._sidecars = {
                "usual": self._sidecar("usual", cluster.bootstrap_servers, spool=True),
                "hasty": self._sidecar("hasty", cluster.bootstrap_servers, kafka=_HASTY),
                "alone": self._sidecar("alone", f"127.0.0.1:{nobody}", kafka=_HASTY),
                "full": self._sidecar(
                    "full",
                    f"127.0.0.1:{nobody}",
                    kafka=_HASTY,
                    flags=("--max-waiting-requests", "1", "--max-waiting-bytes", "1", "--max-watchers", "0"),
                    spool=True,
                ),
                "unacknowledged": self._sidecar(
                    "unacknowledged",
                    cluster.bootstrap_servers,
                    kafka={"acks": "0", "enable.idempotence": "false"},
                ),
                "ending": self._sidecar(
                    "ending",
                    cluster.bootstrap_servers,
                    kafka={"delivery.timeout.ms": str(_AN_HOUR_MS)},
                    flags=("--drain-timeout-ms", str(_AN_HOUR_MS)),
                ),
            }
            for sidecar in self._sidecars.values():
                stack.enter_context(sidecar)
            # A partition that is missing is refused by the spool only once the topic is known.
            for topic in (TOPIC, FAILS, HALF, INVALID):
                self._sidecars["usual"].wait_until_it_knows(topic)
            self._sidecars["hasty"].wait_until_it_knows(LATE)
            self._hang_the_spool()
            self._end()
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

    def _hang_the_spool(self) -> None:
        """Requeues of the full sidecar wait from now on: a file of dead letters can't be read to its end."""
        salt = "0" * 2 * SALT_BYTES
        os.mkfifo(self._folder / "full" / "spool" / "aside" / f"{1:020d}-{salt}.records")
        requeue = partial(self._sidecars["full"].api.post, "/v1/spool/requeue", params={"max_block_ms": 0})
        wait_until(lambda: requeue().status_code == 429, what="a requeue that is one too many")

    def _end(self) -> None:
        """The ending sidecar does not end: it has accepted a record that is never acknowledged."""
        ending = self._sidecars["ending"]
        wait_until(
            lambda: ending.produce(STUCK, [{"value": "a"}], timeout_ms=2_000).status_code == 504,
            what="a record that is not acknowledged",
        )
        ending.process.send_signal(signal.SIGTERM)
        wait_until(lambda: ending.api.get("/v1/status").json()["draining"], what="a sidecar that shuts down")

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


def _refused(response: Any) -> Any:
    """ListOffsets of the leaders of FAILS are errors."""
    error = Errors.UNKNOWN_SERVER_ERROR.code
    return response._replace(
        topics=tuple(
            topic._replace(partitions=tuple(one._replace(error_code=error) for one in topic.partitions))
            if topic.name == FAILS
            else topic
            for topic in response.topics
        )
    )


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
            body = self._body() * (_MOST_RECORDS + 1 if change == "many" else 1)
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
#: Operations whose 503 is that of a sidecar that shuts down; others' is that of missing brokers.
_ENDING: Final = (
    "lookUpLeaders",
    "pollChanges",
    "produceStream",
    "putDaprLabel",
    "publishDapr",
    "requeueRecords",
    "spoolRecords",
    "watchChanges",
)
#: The body in place of the example.
_BODIES: Final[Mapping[tuple[str, int], Any]] = {
    ("produceRecords", 207): {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 1}]},
    ("spoolRecords", 404): {"records": [{"value": 1, "partition": 999}]},
    **{
        ("produceToTopics", status): {"records": [{"topic": topic, "value": 1, "partition": 0}]}
        for status, topic in _TOPIC_OF_STATUS.items()
    },
    ("produceToTopics", 207): {
        "records": [{"topic": HALF, "value": number, "partition": number} for number in (0, 1)]
    },
}


def calls(document: Mapping[str, Any], cluster_id: str) -> list[Call]:
    """A call for each status of each operation."""
    return [
        _call(document, operation, status, cluster_id)
        for operations in document["paths"].values()
        for operation in operations.values()
        for status in map(int, operation["responses"])
    ]


def _call(document: Mapping[str, Any], operation: Mapping[str, Any], status: int, cluster_id: str) -> Call:
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
    elif status in _TOPIC_OF_STATUS and "topic" in arguments and name != "spoolRecords":
        arguments["topic"] = _TOPIC_OF_STATUS[status]
    elif status == 422 and "pubsub" in arguments:
        arguments["topic"], change = INVALID, "as-it-is"
    if status == 412:
        arguments["min_version"] = "00000000-1"
    if status == 202 and name in ("produceRecords", "produceBytes", "produceStream", "produceToTopics"):
        sidecar = "unacknowledged"
    if status == 204 and name.startswith("produceTo"):
        arguments["async"] = True
    if status == 504 and (arguments.get("topic") == LATE or name == "produceToTopics"):
        sidecar = "hasty"
    if status == 413 and name == "produceRecordsV3":  # a longer body is a stream, which has any length
        change = "many"
    if status == 503 and name.startswith(_ENDING):
        sidecar = "ending"
    if name == "watchChanges":
        change = "cut" if status == 200 else "as-json" if status in (412, 503) else change
    if name == "watchChanges" and status == 503:
        arguments["last_event_id"] = "00000000-1"
    if name == "requeueRecords" and status == 504:
        arguments["max_block_ms"] = 0
    if name == "spoolRecords" and status == 504:
        arguments["timeout_ms"] = 0
    if name == "checkDaprHealth" and status == 500:
        arguments["appid"] = "another"
    if name == "checkDaprOutboundHealth" and status == 500:
        sidecar = "alone"
    return Call(name, status, f"{sidecar}/{change}", arguments, _body(document, operation, status))


def _body(document: Mapping[str, Any], operation: Mapping[str, Any], status: int) -> Any:
    """The example of the operation's body, or what leads to this status."""
    if "requestBody" not in operation:
        return None
    schema = next(iter(operation["requestBody"]["content"].values()))["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    example = _BODIES.get((operation["operationId"], status), schema["example"])
    if status == 207 and operation["operationId"] == "publishCloudEvents":  # enough for both partitions
        example = [{**example[0], "id": key, "partitionkey": key} for key in "abcdefgh"]
    return example


def _argument(parameter: Mapping[str, Any], cluster_id: str) -> Any:
    known = {"topic": TOPIC, "cluster_id": cluster_id, "pubsub": "pubsub", "key": "colour"}
    if parameter["name"] in known:
        return known[parameter["name"]]
    if "example" in parameter:
        return parameter["example"]
    return 1 if parameter["name"] == "broker_id" else parameter["schema"].get("example", 0)
