"""Good and bad calls to a sidecar, one after the other, drawn by a seed.

    caller = Caller(address, unix_path, names, Random(3), token_header)
    caller.act()                      # one of ACTS, by its weight

Answers are read and not judged: other tests do that. Each act is over when it returns. A caller has one
connection that it keeps, and others that it breaks off. One thread each.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from random import Random

_PATIENCE_S: Final = 20.0
_JSON: Final = "application/json"


class Names:
    """The existing topics. Any thread reads; the thread that creates and deletes topics swaps `churning`."""

    def __init__(self, steady: Sequence[str], cluster_id: str) -> None:
        self.steady = tuple(steady)
        self.churning: tuple[str, ...] = ()
        self.cluster_id = cluster_id


class Caller:
    """One caller, on one thread."""

    def __init__(
        self,
        address: tuple[str, int],
        unix_path: Path,
        names: Names,
        random: Random,
        headers: Mapping[str, str],
    ) -> None:
        """The API's address, and its Unix socket."""
        self._address = address
        self._unix_path = str(unix_path)
        self._names = names
        self._random = random
        self._headers = dict(headers)
        self._connection = http.client.HTTPConnection(*address, timeout=_PATIENCE_S)
        self._made = 0
        #: How often each act was done, and each status answered.
        self.counts: Counter[str] = Counter()

    def close(self) -> None:
        self._connection.close()

    def act(self) -> None:
        """Does one thing."""
        (act,) = self._random.choices(_ACTS, _WEIGHTS)
        self.counts[act.__name__.strip("_")] += 1
        act(self)

    # -- asking ----------------------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, body: bytes | None = None, content_type: str = _JSON, **more: str
    ) -> None:
        headers = {**self._headers, **{name.replace("_", "-"): value for name, value in more.items()}}
        if body is not None:
            headers["content-type"] = content_type
        if self._random.random() < 0.3:
            headers["traceparent"] = f"00-{self._bits(128):032x}-{self._bits(64):016x}-01"
            headers["user-agent"] = self._new("agent")
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            answer.read()
            self.counts[str(answer.status)] += 1
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request makes it anew
            self.counts["broken off"] += 1

    def _bits(self, count: int) -> int:
        return self._random.getrandbits(count) | 1

    def _new(self, kind: str) -> str:
        """A name that never was."""
        self._made += 1
        return f"{kind}-{self._made}-{self._bits(40):010x}"

    def _steady(self) -> str:
        return self._random.choice(self._names.steady)

    def _any(self) -> str:
        return self._random.choice(self._names.steady + self._names.churning)

    def _value(self) -> object:
        return {"id": self._new("value"), "text": "x" * self._random.randrange(200)}

    # -- produce ---------------------------------------------------------------------------------------------

    def _v1(self, **headers: str) -> None:
        records = [
            {"key": self._new("key"), "value": self._value()} for _ in range(self._random.randint(1, 5))
        ]
        body = json.dumps({"key_format": "text", "records": records}).encode()
        self._ask("POST", f"/v1/topics/{self._any()}/records", body, **headers)

    def _v1_with_key(self) -> None:
        self._v1(idempotency_key=self._new("key"))

    def _v1_twice(self) -> None:
        key = self._new("key")
        body = json.dumps({"records": [{"value": 1}]}).encode()
        path = f"/v1/topics/{self._steady()}/records"
        self._ask("POST", path, body, idempotency_key=key)
        self._ask("POST", path, body, idempotency_key=key)

    def _bytes(self) -> None:
        self._ask("POST", f"/v1/topics/{self._any()}/records", b"x" * 300, "application/octet-stream")

    def _ndjson(self) -> None:
        lines = b"".join(json.dumps({"value": self._value()}).encode() + b"\n" for _ in range(5))
        self._ask("POST", f"/v1/topics/{self._any()}/records", lines, "application/x-ndjson")

    def _v2(self) -> None:
        body = json.dumps({"records": [{"value": self._value()}]}).encode()
        self._ask("POST", f"/topics/{self._any()}", body, "application/vnd.kafka.json.v2+json")

    def _v3(self) -> None:
        body = json.dumps({"value": {"type": "JSON", "data": self._value()}}).encode()
        self._ask("POST", f"{self._v3_topic(self._any())}/records", body)

    def _v3_batch(self) -> None:
        entries = [{"id": str(n), "value": {"type": "JSON", "data": self._value()}} for n in range(3)]
        body = json.dumps({"entries": entries}).encode()
        self._ask("POST", f"{self._v3_topic(self._any())}/records:batch", body)

    def _cloud_event(self) -> None:
        attributes = {"ce_specversion": "1.0", "ce_type": self._new("type"), "ce_source": "/soak"}
        self._ask("POST", f"/cloudevents/{self._any()}", b'{"a":1}', ce_id=self._new("event"), **attributes)

    def _dapr(self) -> None:
        self._ask("POST", f"/v1.0/publish/pubsub/{self._any()}", json.dumps(self._value()).encode())

    def _to_nobodys_topic(self) -> None:
        path = f"/v1/topics/{self._new('nobodys')}/records?max_block_ms=60"
        self._ask("POST", path, b'{"records":[{"value":1}]}')

    def _v3_topic(self, topic: str) -> str:
        return f"/v3/clusters/{self._names.cluster_id}/topics/{topic}"

    # -- look-ups --------------------------------------------------------------------------------------------

    def _look_up(self) -> None:
        self._ask("GET", f"/v1/topics/{self._steady()}", if_none_match='"0"')

    def _leader(self) -> None:
        self._ask("GET", f"/v1/topics/{self._steady()}/leader?key={self._new('key')}")

    def _leaders(self) -> None:
        body = json.dumps({"partitions": [{"topic": self._steady(), "partition": 0}]}).encode()
        self._ask("POST", "/v1/leaders", body)

    def _nobodys_topic(self) -> None:
        self._ask("GET", f"/v1/topics/{self._new('nobodys')}?max_block_ms=100")

    def _listing(self) -> None:
        self._ask("GET", f"/v1/topics?prefix={self._new('prefix')}")

    def _configs(self) -> None:
        self._ask("GET", f"/topics/{self._steady()}")
        self._ask("GET", self._v3_topic(self._any()))

    def _newer(self) -> None:
        self._ask("GET", f"/v1/topics/{self._steady()}?max_age_ms=0&max_block_ms=300")

    def _status(self) -> None:
        self._ask("GET", "/v1/status")

    def _over_unix(self) -> None:
        """A look-up on a connection of its own, by the Unix socket."""
        lines = [f"GET /v1/topics/{self._steady()} HTTP/1.1", "host: localhost", "connection: close"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(_PATIENCE_S)
            peer.connect(self._unix_path)
            peer.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            with peer.makefile("rb") as answer:
                self.counts[answer.read().split(b" ", 2)[1].decode()] += 1

    # -- watching --------------------------------------------------------------------------------------------

    def _watch_and_leave(self) -> None:
        """A stream of changes, whose reader goes away when it has read a little, or nothing."""
        topics = ",".join((self._steady(), self._new("nobodys")))
        with self._raw("GET", f"/v1/watch?topics={topics}") as stream:
            if self._random.random() < 0.7:
                stream.recv(200)

    def _long_poll(self) -> None:
        self._ask("GET", f"/v1/watch?topics={self._steady()}&max_block_ms=50", accept=_JSON)

    # -- bad requests ----------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        """Sends a whole request and does not wait for the answer."""
        body = b'{"records":[{"value":"gone"}]}'
        with self._raw("POST", f"/v1/topics/{self._any()}/records", body):
            return

    def _half_request(self) -> None:
        with self._raw("POST", f"/v1/topics/{self._any()}/records", b'{"records":[', promised=500):
            return

    def _broken_stream(self) -> None:
        """A stream of records that ends in the middle of one."""
        kind = ("content-type: application/x-ndjson", "transfer-encoding: chunked")
        body = b'15\r\n{"value":1}\n{"value":\r\n'
        with self._raw("POST", f"/v1/topics/{self._any()}/records", body, promised=None, more=kind):
            return

    def _no_json(self) -> None:
        self._ask("POST", f"/v1/topics/{self._steady()}/records", b'{"records":[{"value":' + b"[" * 50)

    def _no_path(self) -> None:
        method = self._random.choice(("GET", "POST", "PUT", "DELETE", "PATCH", self._new("X").upper()))
        self._ask(method, f"/{self._new('path')}/{self._new('path')}?{self._new('query')}=1")

    def _no_token(self) -> None:
        self._ask("GET", "/v1/cluster", authorization=f"Bearer {self._new('token')}")

    def _wrong_host(self) -> None:
        self._ask("GET", "/v1/cluster", host=self._new("host"))
        self._ask("GET", "/v1/cluster", origin=f"http://{self._new('origin')}")

    def _no_http(self) -> None:
        with contextlib.suppress(OSError), socket.create_connection(self._address, _PATIENCE_S) as peer:
            peer.sendall(
                self._random.choice((b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"x" * 100)) + b"\r\n\r\n"
            )
            peer.recv(200)

    @contextlib.contextmanager
    def _raw(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        promised: int | None = -1,
        more: Sequence[str] = (),
    ) -> Iterator[socket.socket]:
        """A connection on which a request was sent; it ends with the block, by a reset half of the time."""
        lines = [f"{method} {path} HTTP/1.1", "host: localhost", *more]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        if promised is not None and (body or promised > 0):
            lines += [f"content-length: {len(body) if promised < 0 else promised}"]
            lines += ["content-type: application/json"]
        with socket.create_connection(self._address, _PATIENCE_S) as peer:
            if self._random.random() < 0.5:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):  # it may be done with us before
                peer.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            with contextlib.suppress(OSError):
                yield peer


#: l_onoff, l_linger: close() resets the connection.
_RESET: Final = b"\x01\x00\x00\x00\x00\x00\x00\x00"

_WEIGHED: Final[Mapping[Callable[[Caller], None], int]] = {
    Caller._v1: 6,
    Caller._v1_with_key: 2,
    Caller._v1_twice: 1,
    Caller._bytes: 3,
    Caller._ndjson: 2,
    Caller._v2: 3,
    Caller._v3: 3,
    Caller._v3_batch: 2,
    Caller._cloud_event: 3,
    Caller._dapr: 3,
    Caller._to_nobodys_topic: 1,
    Caller._look_up: 6,
    Caller._leader: 3,
    Caller._leaders: 1,
    Caller._nobodys_topic: 3,
    Caller._listing: 1,
    Caller._configs: 1,
    Caller._newer: 1,
    Caller._status: 1,
    Caller._over_unix: 2,
    Caller._watch_and_leave: 2,
    Caller._long_poll: 1,
    Caller._hang_up: 3,
    Caller._half_request: 2,
    Caller._broken_stream: 2,
    Caller._no_json: 2,
    Caller._no_path: 3,
    Caller._no_token: 2,
    Caller._wrong_host: 1,
    Caller._no_http: 1,
}
_ACTS: Final = tuple(_WEIGHED)
_WEIGHTS: Final = tuple(_WEIGHED.values())
