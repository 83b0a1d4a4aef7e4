"""Every path of the app, in every dialect, with and without each guard. New routes need no change here.

Each route is called in the spelling of the fast paths and in one that only FastAPI understands. If its path
names a topic that the caller may not use, the answer is the same whether the topic exists or not, and no
broker is asked. A path with a parameter that has no sample here fails, and so does a produce path that fits
none of the bodies: add one.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from client_core.producer.results.results import MetadataResult
from service.console import DOCS, OPEN_PATHS
from service.dialects.dapr.sidecar_info import HEALTH_PATHS
from service.wire.reasons import PROBLEMS_PATH
from tests.support.http_app import HttpApp
from tests.support.tokens import TokensFile
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: A topic that is there and that `shop` may not use, and one that is not there; names of one length.
HIDDEN: Final = "veiled"
ABSENT: Final = "absent"
TOPICS: Final = {"orders": 3, HIDDEN: 3}

#: Values for the parameters of a path; `topic` is each test's own.
SAMPLES: Final = {
    "partition": "0",
    "partition_id": "0",
    "broker_id": "1",
    "cluster_id": "cluster",
    "pubsub": "pubsub",
    "rest": "x",
    "key": "x",
    "reason": "unknown-topic",
}

#: Paths that need no token: the pages' files, and the health check of Dapr's SDKs.
OPEN: Final = {*OPEN_PATHS, *HEALTH_PATHS, PROBLEMS_PATH, f"{PROBLEMS_PATH}/{{reason}}"}

#: Bodies of all dialects: a path that takes records takes one of them.
BODIES: Final = (
    ("application/json", b'{"records":[{"value":1}]}'),
    ("application/vnd.kafka.json.v2+json", b'{"records":[{"value":1}]}'),
    ("application/json", b'{"value":{"type":"JSON","data":1}}'),
    ("application/json", b'{"entries":[{"id":"1","value":{"type":"JSON","data":1}}]}'),
    ("application/json", b'[{"entryId":"1","event":1,"contentType":"application/json"}]'),
    ("application/json", b'{"lookups":[{"topic":"%s","partition":0}]}'),
    (
        "application/cloudevents+json",
        b'{"specversion":"1.0","id":"1","source":"/x","type":"t","datacontenttype":"application/json","data":1}',
    ),
    ("application/cloudevents-batch+json", b'[{"specversion":"1.0","id":"1","source":"/x","type":"t"}]'),
    ("application/octet-stream", b'{"value":1}'),
    ("application/json", b"1"),
    ("application/json", b'{"records":[{"topic":"orders","value":1}]}'),
)

#: A CloudEvent in binary mode.
EVENT: Final = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x", "ce-type": "t"}

_PARAMETER: Final = re.compile(r"{(\w+)(?::\w+)?}")
_FAILED: Final = re.compile(r'"error(_code)?": ?([45]|{)')
_FORBIDDEN: Final = re.compile(r'TOPIC_AUTHORIZATION_FAILED|"error_code": ?403|ERR_PUBSUB_FORBIDDEN')

#: Longer than any answer takes.
PATIENCE_S: Final = patient(10.0)


class Route(NamedTuple):
    """One method of one path."""

    method: str
    template: str

    def path(self, topic: str, *, fast: bool) -> bytes:
        """The path as a caller would write it, or with one letter in a way that only FastAPI reads."""

        def sample(match: re.Match[str]) -> str:
            return topic if match[1] == "topic" else SAMPLES[match[1]]

        path = _PARAMETER.sub(sample, self.template).encode()
        if fast or path == b"/":
            return path
        return path[:-1] + b"%%%02X" % path[-1]

    @property
    def names_topic(self) -> bool:
        return "{topic" in self.template

    @property
    def is_open(self) -> bool:
        return self.template in OPEN and self.method in ("GET", "HEAD")


class Answer(NamedTuple):
    """The answer, or its beginning if it would go on for ever."""

    status: int
    headers: dict[str, str]
    text: str
    #: Whether FastAPI was asked, which takes much longer than the plain-ASGI paths.
    by_fastapi: bool


def routes_of(routes: Iterable[Any]) -> Iterator[Route]:
    """Every method of every route."""
    for route in routes:
        yield from (Route(method, route.path) for method in sorted(route.methods))


ROUTES: Final = sorted(set(routes_of(HttpApp().app.api.routes)))
#: Each in the spelling that the fast paths take, and in the slow one.
ASKED: Final = [(route, fast) for route in ROUTES for fast in (True, False)]


class Site:
    """An app with tokens and one without, and what they are asked."""

    def __init__(self, tokens: TokensFile, **settings: Any) -> None:
        self.tokens = tokens
        self.guarded = HttpApp(tokens_file=tokens.setting, **settings)
        self.unguarded = HttpApp(**settings)
        self._runner = asyncio.Runner()
        self._bodies: dict[Route, tuple[str, bytes]] = {}
        for web in (self.guarded, self.unguarded):
            web.producer.set_topics(TOPICS)
            web.producer.on_brokers = dict(TOPICS)
            web.producer.calls.clear()

    def ask(
        self,
        route: Route,
        path: bytes,
        *,
        web: HttpApp | None = None,
        name: str | None = None,
        body: tuple[str, bytes] = BODIES[0],
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; if it waits for the brokers, they answer that they know nothing more."""
        sent = {"host": "localhost", "content-type": body[0], **(headers or {})}
        if route.template.endswith("/binary"):
            sent |= EVENT
        if name is not None:
            sent |= self.tokens.of(name)
        if route.method in ("GET", "HEAD"):
            del sent["content-type"]
            body = ("", b"")
        return self._runner.run(_exchange(web or self.guarded, route.method, path, sent, body[1]))

    def close(self) -> None:
        self._runner.close()

    def body_for(self, route: Route) -> tuple[str, bytes]:
        """A body that the route accepts from a caller with all rights."""
        if route not in self._bodies:
            self._bodies[route] = self._found_body(route)
        return self._bodies[route]

    def _found_body(self, route: Route) -> tuple[str, bytes]:
        if route.method == "GET" or route.template.endswith("/spool"):  # there is none here
            return BODIES[0]
        path = route.path("orders", fast=True)
        answers = [(body, self.ask(route, path, name="all", body=body)) for body in BODIES]
        for body, answer in answers:
            if answer.status < 300 and not _FAILED.search(answer.text):
                return body
        reported = "\n".join(f"{body[0]}: {answer.status} {answer.text}" for body, answer in answers)
        raise AssertionError(f"no body of this test fits {' '.join(route)}:\n{reported}")


async def _exchange(web: HttpApp, method: str, path: bytes, headers: dict[str, str], body: bytes) -> Answer:
    """Runs the app on one request. The caller leaves when it has heard the first part of an answer."""
    heard = asyncio.Event()
    sent: list[Any] = []
    parts = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        for part in parts:
            return part
        await heard.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            heard.set()

    bare, _, query = path.partition(b"?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": bytes(_decoded(bare)).decode(),
        "raw_path": bare,
        "query_string": query,
        "root_path": "",
        "headers": [(n.encode(), v.encode()) for n, v in headers.items()],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    answering = asyncio.ensure_future(web.app(scope, receive, send))
    async with asyncio.timeout(PATIENCE_S):
        while not answering.done():
            await asyncio.sleep(0)
            for ticket in list(web.producer.waiting):
                web.producer.finish(ticket, MetadataResult(web.producer.cache))
    await answering
    start, *rest = sent
    text = b"".join(message.get("body", b"") for message in rest).decode()
    reported = {n.decode(): v.decode() for n, v in start.get("headers", ())}
    return Answer(start["status"], reported, text, "route" in scope)


def _decoded(path: bytes) -> Iterator[int]:
    letters = iter(path)
    for letter in letters:
        yield int(bytes(itertools.islice(letters, 2)), 16) if letter == ord("%") else letter


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    everything = {"read": ["*"], "produce": ["*"]}
    shop = {"read": ["orders"], "produce": ["orders"]}
    made = Site(TokensFile(tmp_path_factory.mktemp("tokens"), all=everything, shop=shop))
    yield made
    made.close()


def test_the_routes_are_all_that_the_document_knows(site: Site) -> None:
    document = site.unguarded.app.api.openapi()["paths"]
    known = {(method.upper(), path) for path, methods in document.items() for method in methods}
    found = {(route.method, re.sub(r":\w+}", "}", route.template)) for route in ROUTES}
    assert known <= found
    assert len(known) > 10


def test_a_foreign_host_or_origin_is_let_in_nowhere(site: Site) -> None:
    for route, fast in ASKED:
        path = route.path("orders", fast=fast)
        for web, name in ((site.unguarded, None), (site.guarded, "all")):

            def asked(header: str, value: str, *, of: HttpApp = web, by: str | None = name) -> Answer:
                return site.ask(route, path, web=of, name=by, headers={header: value})  # noqa: B023

            assert asked("host", "evil.example").status == 421, path
            assert asked("origin", "https://evil.example").status == 403, path
            own = asked("origin", "http://localhost")
            assert own.status not in (401, 403, 421), path
            assert not [header for header in own.headers if header.startswith("access-control")], path


def test_without_a_token_that_is_known_only_open_paths_are_read(site: Site) -> None:
    for route, fast in ASKED:
        site.guarded.producer.calls.clear()
        path = route.path("orders", fast=fast)
        for headers in (None, {"authorization": "Bearer wrong"}):
            answer = site.ask(route, path, headers=headers)
            if route.is_open:
                assert answer.status in (200, 204), path
            else:
                assert answer.status == 401, path
                assert route.template == DOCS or "html" not in answer.headers["content-type"], path
                assert answer.headers["www-authenticate"].startswith('Bearer realm="pilotfish"'), path
                assert answer.headers["vary"] == "Authorization", path
        assert site.guarded.producer.calls == [], path
        assert site.ask(route, path, web=site.unguarded).status not in (401, 403, 421), path
        assert site.ask(route, path, name="all").status not in (401, 403, 421), path


def holds_data(*, names_topic: bool) -> list[tuple[Route, bool]]:
    """Those that have a topic in their path, or those that have none; there are some of each."""
    chosen = [one for one in ASKED if one[0].names_topic is names_topic and one[0].template not in OPEN]
    assert chosen
    return chosen


def test_a_topic_that_is_not_allowed_is_refused_and_its_existence_is_not_revealed(site: Site) -> None:
    producer = site.guarded.producer
    for route, fast in holds_data(names_topic=True):
        body = site.body_for(route)
        producer.calls.clear()
        producer.submitted.clear()
        query = b"?partition=0" if route.template.endswith("/leader") else b""

        def asked(topic: str) -> Answer:
            path = route.path(topic, fast=fast) + query  # noqa: B023 - called at once
            return site.ask(route, path, name="shop", body=body)  # noqa: B023

        there, missing = asked(HIDDEN), asked(ABSENT)
        assert there.status == missing.status, route
        assert there.status == 403 or _FORBIDDEN.search(there.text), (route, there)
        assert there.text.replace(HIDDEN, ABSENT) == missing.text, route
        assert there.headers == missing.headers, route
        assert there.by_fastapi == missing.by_fastapi, route
        assert there.headers["vary"] == "Authorization", route
        assert (producer.calls, producer.submitted) == ([], []), route
        allowed = asked("orders").status
        assert allowed < 300 or (allowed == 400 and route.template.endswith("/spool")), route


def test_lists_leave_out_topics_that_are_not_allowed(site: Site) -> None:
    # The status lists what the caller itself asked for, in the other tests.
    site.guarded.app.sidecar.failed._entries.clear()
    for route, fast in holds_data(names_topic=False):
        seen = {name: site.ask(route, route.path("", fast=fast), name=name) for name in ("all", "shop")}
        assert seen["shop"].status == seen["all"].status, route
        assert HIDDEN not in seen["shop"].text, route
        assert seen["shop"].headers["vary"] == "Authorization", route


def test_a_watch_reveals_nothing_of_a_topic_that_is_not_allowed(site: Site) -> None:
    for accept in ("application/json", "text/event-stream"):
        site.guarded.producer.calls.clear()
        route, headers = Route("GET", "/v1/watch"), {"accept": accept}
        there, missing = (
            site.ask(route, b"/v1/watch?topics=%b" % topic.encode(), name="shop", headers=headers)
            for topic in (HIDDEN, ABSENT)
        )
        # A watch that begins anew is a change to its counter.
        reported = [re.sub(r'"\w+-\d+"|id: \w+-\d+', "id", answer.text) for answer in (there, missing)]
        assert reported[0].replace(HIDDEN, ABSENT) == reported[1], accept
        assert there.status == missing.status == 200, accept
        assert site.guarded.producer.calls == [], accept


METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")


def test_a_method_that_a_path_does_not_take_is_answered_with_all_that_it_takes(site: Site) -> None:
    for template, fast in sorted({(route.template, fast) for route, fast in ASKED}):
        path = Route("", template).path("orders", fast=fast)
        answers = {method: site.ask(Route(method, template), path, web=site.unguarded) for method in METHODS}
        allowed = {
            method: answer.headers["allow"] for method, answer in answers.items() if answer.status == 405
        }
        taken = sorted(answers.keys() - allowed.keys())
        assert not [method for method in taken if "allow" in answers[method].headers], path
        assert set(allowed.values()) == {", ".join(taken)}, path
        assert {"OPTIONS", "DELETE"} <= allowed.keys(), path


def test_many_look_ups_at_once_are_split(site: Site) -> None:
    route = Route("POST", "/v1/leaders")
    reported = [
        site.ask(route, b"/v1/leaders", name="shop", body=(BODIES[5][0], BODIES[5][1] % topic.encode()))
        for topic in (HIDDEN, ABSENT)
    ]
    assert all(_FORBIDDEN.search(answer.text) for answer in reported)
    assert reported[0].text.replace(HIDDEN, ABSENT) == reported[1].text
