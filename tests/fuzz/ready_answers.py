"""Look-ups with the table of ready answers and without it, side by side: everything else must be the same.

    requests, findings = await compared(seed, requests=500, folder)

Two apps over twin producers get the same requests on connections of their own, without sockets. One answers
at once what is ready; the other leaves all to FastAPI's routes. After each read these are compared: status,
headers and bodies of all answers, whether the connection ends, counted requests, spans, the lines of the
access log, and what the producers were asked for. In between topics come and go, brokers move, time passes
and tokens rotate. Ready native look-ups have no spans, so spans of native look-ups are not compared.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from client_core.errors import TimeoutError
from client_core.producer.results.results import ListingResult
from service.base.logs import ACCESS_LOG
from service.base.settings import Settings
from service.listener.access_log import AccessLogged
from service.observe.tracing.spans import RequestSpans
from service.process.app import App
from service.wire.asgi import BODY
from tests.support.coroutine_tests import until
from tests.support.fake_producer import FakeProducer
from tests.support.metadata_responses import node
from tests.support.tokens import TokensFile
from tests.support.wired import Wired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from service.wire.asgi import ASGIApp, Receive, Scope, Send

#: The trace that callers name, and headers whose values vary. None: the header is missing.
_TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
_TRACE_IN_BODY: Final = re.compile(rb'"trace_id":"([0-9a-f]{32})"')
_PARENT: Final = f"00-{_TRACE}-b7ad6b7169203331-01"
_TOPICS: Final = ("orders", "Orders", "orders.eu", "audit-1", "__offsets", "long", "gone", "new")
_NAMES: Final = (
    *_TOPICS,
    "%6frders",
    "orders%2Feu",
    "orders;a",
    "%C3%BC",
    "",
    ".",
    "..",
    "a" * 250,
    "or%20ders",
)
_NUMBERS: Final = ("0", "1", "2", "3", "00", "-1", "+1", "x", "%30", "2147483647", "2147483648", "9" * 11, "")
_CLUSTERS: Final = ("cluster", "Cluster", "%63luster", "other", "")
_QUERIES: Final = (
    "?",
    "?partition=1",
    "?partition=01",
    "?key=a",
    "?key=a%20b",
    "?key=",
    "?key=a&key_format=json",
)
_MORE_QUERIES: Final = (
    "?partition=1&partition=2",
    "?max_block_ms=5",
    "?max_age_ms=0",
    "?x=1",
    "?min_version=a-1",
)
_TEMPLATES: Final = (
    *(
        "/v1/cluster",
        "/v1/topics/{t}",
        "/v1/topics/{t}/partitions/{n}",
        "/v1/topics/{t}/leader?partition={n}",
    ),
    *("/v1/topics/{t}/leader?key={t}", "/v1/topics/{t}/leader", "/v1/brokers/{n}", "/v1/topics"),
    *("/topics", "/topics/{t}", "/topics/{t}/partitions", "/topics/{t}/partitions/{n}", "/brokers"),
    *("/v3/clusters", "/v3/clusters/{c}", "/v3/clusters/{c}/brokers", "/v3/clusters/{c}/brokers/{n}"),
    *("/v3/clusters/{c}/topics", "/v3/clusters/{c}/topics/{t}", "/v3/clusters/{c}/topics/{t}/partitions"),
    "/v3/clusters/{c}/topics/{t}/partitions/{n}",
    "/v3/clusters/{c}/topics/{t}/partitions/{n}/replicas",
    "/v3/clusters/{c}/topics/{t}/partitions/{n}/replicas/{n}",
    *("/v1/status", "/nothing", "//topics/{t}", "/v1//topics/{t}", "/v1/topics/{t}/"),
)
_HOSTS: Final = (
    "localhost",
    "localhost:8085",
    "LOCALHOST",
    "127.0.0.1:1",
    "[::1]",
    "evil.example",
    "a/b",
    "",
)
_ACCEPTS: Final = (
    "*/*",
    "application/json",
    "application/vnd.kafka.v2+json",
    "text/html",
    "",
    "*/*;q=0",
    "a,b",
)
_METHODS: Final = ("HEAD", "POST", "OPTIONS", "DELETE", "get")
#: Headers that change how a request is answered, with some of their values.
_OTHERS: Final = {
    "Origin": ("http://localhost", "https://ops.example", "https://evil.example", "null"),
    "Sec-Fetch-Site": ("same-origin", "none", "cross-site"),
    "Connection": ("close", "keep-alive", "Close, x", "upgrade"),
    "Upgrade": ("h2c", "websocket"),
    "Expect": ("100-continue", "x"),
    "Content-Length": ("0", "00", "3"),
    "Transfer-Encoding": ("chunked", "gzip"),
    "Pilotfish-Key": ("a", ""),
    "Traceparent": (_PARENT, "no", _PARENT[:-1] + "0"),
    "Tracestate": ("a=b",),
    "Accept-Encoding": ("gzip", "identity", "gzip, br"),
    "Accept-Language": ("de",),
    "Range": ("bytes=0-3",),
    "If-Match": ('"x"',),
    "If-Modified-Since": ("Sat, 31 Jan 2026 09:26:53 GMT",),
    "User-Agent": ("fuzz",),
    "Cookie": ("a=b",),
    "dapr-api-token": ("reader-0123456789abcdef",),
    "X-HTTP-Method-Override": ("POST",),
}


class _Spans:
    """Traces whose spans are kept in memory."""

    class Counted:
        waiting = exported = 0
        dropped: Final[dict[str, int]] = {}

    def __init__(self) -> None:
        self.kept = InMemorySpanExporter()
        self.spans = self.Counted()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self._tracer = provider.get_tracer("fuzz")

    def around(self, app: ASGIApp, client_id: str, route_of: Callable[[Scope], str | None]) -> ASGIApp:
        return RequestSpans(app, self._tracer, client_id, route_of, marks=False)

    def close(self, timeout_ms: int) -> None:
        """Nothing waits."""


class _Lines(logging.Handler):
    """The lines of the access log, without their durations."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = dict(record.__dict__["pilotfish_fields"])
        del fields["duration_ms"]
        if fields.get("trace_id") not in (None, _TRACE):
            del fields["trace_id"]  # drawn at random, by a span
        self.lines.append(f"{record.getMessage()} {fields}")

    def taken(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


def _without_bodies(app: ASGIApp) -> ASGIApp:
    """The same app, which gets each body by `receive`, and so answers nothing before FastAPI."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope.pop(BODY, None)
        await app(scope, receive, send)

    return serve


class _Side:
    """One app, and a connection to it."""

    def __init__(self, *, at_once: bool, lines: _Lines, traced: bool, **settings: Any) -> None:
        self.producer = FakeProducer()
        self.spans = _Spans() if traced else None
        values = {"kafka": {"bootstrap.servers": "localhost:9092"}, "console": False, **settings}
        self.app = App(Settings.model_validate(values), self.producer, traces=self.spans)
        self._lines = lines
        self.ready = 0
        logged = AccessLogged(self.app if at_once else _without_bodies(self.app))
        answer_at_once = logged.at_once(self.app.answer_at_once)

        def noted(*asked: Any) -> bool:
            is_answered = answer_at_once(*asked)
            self.ready += is_answered
            return is_answered

        if not at_once:
            self.app._fast_lookups._skipped = (b"",)  # all
        self.wired = Wired(logged, noted if at_once else None, self.app.cors)

    async def ask(self, sent: bytes) -> dict[str, Any]:
        """What follows from these bytes: all that a caller or an operator can see of it."""
        self.wired.send(sent)
        for _ in range(1_000):
            if not self.wired.tasks:
                break
            await asyncio.sleep(0)
            for ticket in list(self.producer.waiting):
                self._end(ticket)
        else:
            await until(lambda: not self.wired.tasks)
        boot = self.app.sidecar.boot.encode()
        return {
            "answers": list(_answers(_TRACE_IN_BODY.sub(_masked, self.wired.taken().replace(boot, b"BOOT")))),
            "closed": self.wired.is_closed,
            "metrics": self._counted(),
            "spans": self._taken_spans(),
            "lines": self._lines.taken(),
            "asked": [(kind, asked.get("names")) for kind, asked in self._taken_calls()],
        }

    def _end(self, ticket: Any) -> None:
        if ticket.kind == "topics":
            self.producer.say_unknown(ticket)
        elif ticket.kind == "listing":
            self.producer.finish(ticket, ListingResult(None, error=TimeoutError("no list"), waited_ms=0))
        else:
            self.producer.time_out(ticket)

    def _taken_calls(self) -> list[Any]:
        calls, self.producer.calls = self.producer.calls, []
        return calls

    def _taken_spans(self) -> list[str]:
        if self.spans is None:
            return []
        spans = self.spans.kept.get_finished_spans()
        self.spans.kept.clear()
        return [
            f"{span.name} {span.status.status_code} {sorted((span.attributes or {}).items())} {span.parent}"
            for span in spans
        ]

    def _counted(self) -> dict[str, float]:
        return {
            f"{sample.name} {sorted(sample.labels.items())}": sample.value
            for sample in next(self.app.sidecar.http.collect()).samples
        } | {"in progress": self.app.sidecar.http.in_progress}


def _masked(found: re.Match[bytes]) -> bytes:
    """The id of a trace, unless it was drawn at random."""
    return found[0] if found[1] == _TRACE.encode() else b'"trace_id":"' + b"x" * len(found[1]) + b'"'


def _answers(said: bytes) -> Iterator[tuple[bytes, list[bytes], bytes]]:
    """Each answer's status line, its headers sorted, and its body; what is no answer comes as it is."""
    while said:
        head, found, rest = said.partition(b"\r\n\r\n")
        status, *headers = head.split(b"\r\n")
        length = next((int(h.split(b":")[1]) for h in headers if h.lower().startswith(b"content-length:")), 0)
        if not found or status.split(b" ")[1:2] in ([b"100"], [b"304"], [b"204"]):
            length = 0
        if b"transfer-encoding: chunked" in headers or not rest[:length].startswith((b"{", b"[")):
            length = (
                len(rest) if b"transfer-encoding: chunked" in headers else length * (rest[:5] != b"HTTP/")
            )
        yield status, sorted(headers), rest[:length]
        said = rest[length:]


class Twins:
    """Both sides, and what happens to them."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = Random(seed)
        self._lines = _Lines()
        self._tokens: TokensFile | None = None
        self._looked_ms = 0
        settings: dict[str, Any] = {}
        if self._random.random() < 0.4:
            self._tokens = TokensFile(folder, **self._callers())
            settings["tokens_file"] = self._tokens.setting
        if self._random.random() < 0.3:
            settings["allowed_origins"] = ["https://ops.example"]
        traced = self._random.random() < 0.25
        self._traced = traced
        self.sides = [
            _Side(at_once=at_once, lines=self._lines, traced=traced, **settings) for at_once in (True, False)
        ]
        self._etags: list[bytes] = []
        self._topics: dict[str, int] = {
            "orders": 3,
            "orders.eu": 1,
            "audit-1": 2,
            "__offsets": 1,
            "long": 501,
        }
        for side in self.sides:
            side.producer.on_brokers = {"listed": 1, "orders": 3}
            side.producer.set_topics(self._topics)
        self._connect()

    def __enter__(self) -> Self:
        self._level = ACCESS_LOG.level
        ACCESS_LOG.setLevel(logging.INFO)
        ACCESS_LOG.addHandler(self._lines)
        return self

    def __exit__(self, *_: object) -> None:
        ACCESS_LOG.removeHandler(self._lines)
        ACCESS_LOG.setLevel(self._level)
        for side in self.sides:
            side.wired.hang_up()

    async def step(self) -> tuple[int, str | None]:
        """Sends one read of a connection to both; returns how many requests, and a difference, if any."""
        if self._random.random() < 0.25:
            self._happen()
        if self.sides[0].wired.is_closed or self._random.random() < 0.02:
            self._connect()
        count = 1 if self._random.random() < 0.9 else self._random.randint(2, 5)
        sent = b"".join(self._request() for _ in range(count))
        on, off = [await side.ask(sent) for side in self.sides]
        if self._traced:
            on["spans"] = [span for span in on["spans"] if "/v1/" not in span]
            off["spans"] = [span for span in off["spans"] if "/v1/" not in span]
        self._etags += [
            line.split(b": ", 1)[1]
            for _, headers, _ in on["answers"]
            for line in headers
            if line.startswith(b"etag")
        ][-1:]
        differences = [f"{what}: {on[what]!r} != {off[what]!r}" for what in on if on[what] != off[what]]
        if differences or len(on["answers"]) < count:  # the rest is not read as requests
            self._connect()
        return count, f"{sent!r}: {'; '.join(differences)}" if differences else None

    # -- what happens ----------------------------------------------------------------------------------------

    def _connect(self) -> None:
        kind = self._random.random()
        for side in self.sides:
            side.wired.connect(is_unix=kind < 0.1, is_tls=0.1 <= kind < 0.2)

    def _happen(self) -> None:
        kind = self._random.randrange(6)
        if kind == 0:
            forward_ms = self._random.choice((1, 300, 999, 1_000, 2_500, 30_000, 700_000))
            for side in self.sides:
                side.producer.clock.advance(forward_ms)
        elif kind in (1, 2):
            topic = self._random.choice(_TOPICS)
            if topic in self._topics and self._random.random() < 0.5:
                del self._topics[topic]
            else:
                self._topics[topic] = self._random.choice(
                    (1, 2, 3, 500, 501) if topic == "long" else (1, 2, 3, 4)
                )
            for side in self.sides:
                side.producer.set_topics(self._topics)
        elif kind == 3:
            brokers = [node(n, host=self._random.choice(("a", "b"))) for n in (1, 2, 3)]
            for side in self.sides:
                side.producer.nodes = brokers
                side.producer.set_topics(self._topics)
        elif kind == 4 and "orders" in self._topics:
            leader, epoch = self._random.randint(1, 3), self._random.randint(10, 99)
            for side in self.sides:
                side.producer.name_leader("orders", 0, leader, epoch)
        elif self._tokens is not None:
            self._tokens.write(**self._callers())
            for _ in range(2):  # what changes between two looks is not read yet
                self._looked_ms += 10_000
                for side in self.sides:
                    assert side.app.access is not None
                    side.app.access._files.look(self._looked_ms)

    def _callers(self) -> dict[str, Any]:
        """Some of three callers, each with some rights."""
        rights: tuple[list[str], ...] = (["*"], ["*"], ["orders"], ["orders*", "audit-1"], [])
        names = [name for name in ("reader", "other", "third") if self._random.random() < 0.8] or ["reader"]
        return {name: {"read": self._random.choice(rights)} for name in names}

    # -- requests --------------------------------------------------------------------------------------------

    def _request(self) -> bytes:
        random = self._random
        if random.random() < 0.08:
            return self._leaders()
        method = "GET" if random.random() < 0.93 else random.choice(_METHODS)
        version = "HTTP/1.1" if random.random() < 0.97 else "HTTP/1.0"
        target = self._target()
        if random.random() < 0.03:
            target = f"http://localhost{target}"
        lines: list[str] = []
        if random.random() < 0.97:
            lines.append(f"Host: {'localhost' if random.random() < 0.9 else random.choice(_HOSTS)}")
        if random.random() < 0.02:
            lines.append("host: localhost")
        if self._tokens is not None and random.random() < 0.93:
            name = random.choice(("reader", "reader", "reader", "other", "third", "nobody"))
            scheme = random.choice(("Bearer", "Bearer", "Bearer", "bearer", "Basic"))
            lines += [f"Authorization: {scheme} {self._tokens.token(name)}"] * (1 + (random.random() < 0.03))
        if random.random() < 0.3:
            lines += [f"Accept: {random.choice(_ACCEPTS)}" for _ in range(random.choice((1, 1, 1, 2)))]
        if self._etags and random.random() < 0.4:
            lines += [f"If-None-Match: {self._tag()}" for _ in range(random.choice((1, 1, 1, 2)))]
        body = ""
        while random.random() < 0.12:
            name = random.choice(list(_OTHERS))
            value = random.choice(_OTHERS[name])
            lines.append(f"{random.choice((name, name.lower(), name.upper()))}: {value}")
            body = {"Content-Length3": "abc", "Transfer-Encodingchunked": "3\r\nabc\r\n0\r\n\r\n"}.get(
                name + value, body
            )
        random.shuffle(lines)
        return "\r\n".join([f"{method} {target} {version}", *lines, "", body]).encode("latin-1")

    def _leaders(self) -> bytes:
        """A POST of many look-ups."""
        random = self._random
        items = []
        for _ in range(random.choice((0, 1, 1, 2, 3, 50))):
            name = random.choice(_TOPICS[:3] if random.random() < 0.95 else _TOPICS)
            number = random.choice(
                (0, 0, 0, 0, 1, 2, 9, -1, 2**31, "x", 1.5) if random.random() < 0.2 else (0,)
            )
            item = {"topic": name, "partition": number}
            if random.random() < 0.02:
                item |= random.choice(({"key": "a"}, {"x": 1}, {"key_format": "text"}))
            items.append(dict(reversed(item.items())) if random.random() < 0.02 else item)
        text = json.dumps({"lookups": items}, separators=random.choice(((",", ":"), (", ", ": "))))
        if random.random() < 0.1:
            text = random.choice(
                (
                    text[:-1],
                    text.replace('"topic"', r'"topi\u0063"'),
                    text.replace('{"t', '{"topic":"a","t', 1),
                )
            )
        lines = ["Host: localhost", "Content-Type: application/json", f"Content-Length: {len(text)}"]
        if self._tokens is not None:
            lines.append(f"Authorization: Bearer {self._tokens.token('reader')}")
        if self._etags and random.random() < 0.5:
            lines.append(f"If-None-Match: {self._tag()}")
        target = "/v1/leaders" if random.random() < 0.9 else "/v1/leaders?max_age_ms=0"
        return "\r\n".join([f"POST {target} HTTP/1.1", *lines, "", text]).encode()

    def _target(self) -> str:
        random = self._random
        target = random.choice(_TEMPLATES)
        is_plain = random.random() < 0.85
        for mark, plain, odd in (
            ("{t}", _TOPICS[:5], _NAMES),
            ("{n}", _NUMBERS[:3], _NUMBERS),
            ("{c}", _CLUSTERS[:1], _CLUSTERS),
        ):
            while mark in target:
                target = target.replace(mark, random.choice(plain if is_plain else odd), 1)
        if random.random() < 0.06:
            target += random.choice(_QUERIES)
        return target

    def _tag(self) -> str:
        tag = self._random.choice(self._etags[-20:]).decode()
        return self._random.choice((tag, tag, tag, f"W/{tag}", f'"x", {tag}', "*", '"x"', tag.strip('"')))


async def compared(seed: int, requests: int, folder: Path, most: int = 5) -> tuple[Counter[str], list[str]]:
    """Compares so many requests at least, up to `most` differences. Returns those, and counts of requests."""
    counts: Counter[str] = Counter()
    findings: list[str] = []
    with Twins(seed, folder) as twins:
        while counts["requests"] < requests and len(findings) < most:
            count, finding = await twins.step()
            counts["requests"] += count
            if finding is not None:
                findings.append(f"seed {seed}, request {counts['requests']}: {finding}")
        counts["ready"] = twins.sides[0].ready
    return counts, findings
