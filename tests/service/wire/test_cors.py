"""Cross-origin requests: what a page of an allowed origin may send and read, and what others may not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import service
from client_core import UnknownTopicOrPartitionError
from service.base.settings_sources import SettingsError
from service.observe.http_metrics import OTHER as OTHER_ROUTE
from service.process.admin import make_registry
from service.wire.cors import EXPOSED_HEADERS, Cors, is_form
from tests.service.admission.test_every_path_is_guarded import ROUTES, Route, Site
from tests.support.http_app import HttpApp
from tests.support.running_server import RunningServer
from tests.support.served import Served
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from service.wire.asgi import Receive, Scope, Send

ORIGIN: Final = "https://ops.example"
OTHER: Final = "https://evil.example"
RECORDS: Final = b'{"records":[{"value":1}]}'
PRODUCE: Final = "/v1/topics/orders/records"


def preflight(
    origin: str, method: str = "POST", headers: str = "content-type,authorization"
) -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": headers,
        "sec-fetch-mode": "cors",
        "sec-fetch-site": "cross-site",
        "sec-fetch-dest": "empty",
    }


def cors_headers(answer: Any) -> list[str]:
    return [name for name in answer.headers if name.startswith("access-control")]


def assert_readable(answer: Any, origin: str = ORIGIN) -> None:
    """A page of that origin, and of no other, may read it."""
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["vary"] == "Origin"


def names_in(answer: httpx.Response, header: str) -> set[str]:
    return {name.strip().lower() for name in answer.headers[header].split(",")}


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp(allowed_origins=f"{ORIGIN},http://localhost:3000")
    app.producer.set_topics({"orders": 3})
    app.producer.calls.clear()
    return app


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> TokensFile:
    return TokensFile(
        tmp_path_factory.mktemp("tokens"), all={"read": ["*"], "produce": ["*"]}, shop={"read": ["orders"]}
    )


@pytest.fixture(scope="module")
def site(tokens: TokensFile) -> Iterator[Site]:
    """Apps with and without tokens, and allowed origins."""
    made = Site(tokens, allowed_origins=ORIGIN)
    yield made
    made.close()


# -- every path ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: " ".join(route))
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_every_answer_may_be_read_by_an_allowed_origin_and_by_no_other(
    site: Site, route: Route, fast: bool
) -> None:
    path = route.path("orders", fast=fast)
    for name in (None, "all", "shop"):  # 401, whatever it is, and 403 where a topic is written to
        for origin in (ORIGIN, OTHER, None):
            headers = {} if origin is None else {"origin": origin}
            answer = site.ask(route, path, name=name, headers=headers)
            assert "Origin" in re.split(", *", answer.headers["vary"])
            allowed = answer.headers.get("access-control-allow-origin")
            assert allowed == (ORIGIN if origin == ORIGIN else None)
            assert ("access-control-expose-headers" in answer.headers) is (origin == ORIGIN)
            assert origin != OTHER or answer.status == 403


def test_a_preflight_is_answered_on_every_path_without_a_token(site: Site) -> None:
    for route in ROUTES:
        path = route.path("orders", fast=True)
        asked = Route("OPTIONS", route.template)
        answer = site.ask(asked, path, headers=preflight(ORIGIN, route.method))
        assert (answer.status, answer.text) == (204, ""), route
        assert answer.headers["access-control-allow-origin"] == ORIGIN, route
        assert route.method in answer.headers["access-control-allow-methods"].split(", "), route
        refused = site.ask(asked, path, headers=preflight(OTHER, route.method))
        assert (refused.status, cors_headers(refused)) == (403, []), route


def test_no_form_of_another_origin_is_taken_an_allowed_one_included(site: Site) -> None:
    by_navigation = {"sec-fetch-mode": "navigate", "sec-fetch-site": "cross-site"}
    forms: list[dict[str, str]] = [
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "text/plain", **by_navigation},
    ]
    for route in (route for route in ROUTES if route.method not in ("GET", "HEAD")):
        path = route.path("orders", fast=True)
        for web, name in ((site.unguarded, None), (site.guarded, "all")):
            web.producer.submitted.clear()
            for origin in (ORIGIN, OTHER, "null"):
                for form in forms:
                    answer = site.ask(route, path, web=web, name=name, headers={"origin": origin, **form})
                    assert answer.status == 403, (route, origin, form)
            assert web.producer.submitted == [], route


def test_a_form_is_known_by_its_type_or_by_what_its_answer_is_for() -> None:
    for method, name, value, is_one in (
        ("POST", b"content-type", b"Multipart/Form-Data ;boundary=x", True),
        ("POST", b"content-type", b"text/plain", False),
        ("POST", b"sec-fetch-mode", b"navigate", True),
        ("POST", b"sec-fetch-mode", b"cors", False),
        ("GET", b"sec-fetch-mode", b"navigate", False),
        ("HEAD", b"sec-fetch-mode", b"navigate", False),
    ):
        assert is_form({"method": method, "headers": [(name, value)]}) is is_one, (method, name, value)
    assert is_form({"method": "PUT", "headers": []}) is False


# -- preflight -----------------------------------------------------------------------------------------------


def test_a_preflight_is_counted(web: HttpApp) -> None:
    assert web.ask("OPTIONS", PRODUCE, headers=preflight(ORIGIN)).status_code == 204
    labels = {"method": "OPTIONS", "route": OTHER_ROUTE, "code": "204"}
    assert make_registry(web.app).get_sample_value("pilotfish_http_requests_total", labels) == 1


def test_a_preflight_names_authorization_and_what_was_asked_for(web: HttpApp) -> None:
    ours = {
        *("authorization", "content-type", "content-encoding", "accept", "if-none-match", "idempotency-key"),
        *("last-event-id", "pilotfish-key", "pilotfish-headers", "dapr-api-token"),
        *("traceparent", "tracestate"),
    }
    asked = "authorization, content-type,ce-specversion,X-Own"
    answer = web.ask("OPTIONS", PRODUCE, headers=preflight(ORIGIN, headers=asked))
    assert answer.status_code == 204
    assert names_in(answer, "access-control-allow-headers") == ours | {"ce-specversion", "x-own"}
    assert "*" not in answer.headers["access-control-allow-headers"]
    assert answer.headers["access-control-max-age"] == "600"
    assert "access-control-allow-credentials" not in answer.headers
    assert "access-control-allow-private-network" not in answer.headers


def test_a_preflight_repeats_nothing_that_is_no_name_of_a_header(web: HttpApp) -> None:
    odd, none = (
        names_in(
            web.ask("OPTIONS", PRODUCE, headers=preflight(ORIGIN, headers=headers)),
            "access-control-allow-headers",
        )
        for headers in ('a b,x:y,"q",,', "")
    )
    assert odd == none


def test_an_allowed_page_of_a_public_address_is_let_into_this_network(web: HttpApp) -> None:
    asked = {**preflight(ORIGIN), "access-control-request-private-network": "true"}
    answer = web.ask("OPTIONS", PRODUCE, headers=asked)
    assert answer.headers["access-control-allow-private-network"] == "true"
    asked["origin"] = OTHER
    assert cors_headers(web.ask("OPTIONS", PRODUCE, headers=asked)) == []


def test_options_without_a_preflights_question_is_a_method_like_others(web: HttpApp) -> None:
    answer = web.ask("OPTIONS", "/v1/topics/orders", headers={"origin": ORIGIN})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.headers["access-control-allow-origin"] == ORIGIN


def test_a_preflight_does_not_get_round_the_host(web: HttpApp) -> None:
    asked = {**preflight(ORIGIN), "host": "rebound.example"}
    assert web.ask("OPTIONS", PRODUCE, headers=asked).status_code == 421


# -- answers -------------------------------------------------------------------------------------------------


def test_an_allowed_page_looks_up_produces_and_asks_again(web: HttpApp) -> None:
    for origin in (ORIGIN, "http://localhost:3000", "HTTPS://OPS.example"):
        sent = {"origin": origin, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
        found = web.get("/v1/topics/orders", headers=sent)
        held = web.get("/v1/topics/orders", headers={**sent, "if-none-match": found.headers["etag"]})
        written = web.post(PRODUCE, content=RECORDS, headers={**sent, "content-type": "application/json"})
        assert (found.status_code, held.status_code, written.status_code) == (200, 304, 200)
        for answer in (found, held, written):
            assert answer.headers["access-control-allow-origin"] == origin
            assert names_in(answer, "access-control-expose-headers") == {
                *("etag", "age", "allow", "date", "location", "retry-after", "vary", "www-authenticate"),
                *("pilotfish-failed-records", "pilotfish-metadata-refreshed-at"),
                *("pilotfish-metadata-version", "pilotfish-replayed"),
            }


def test_refusals_may_be_read_too(web: HttpApp) -> None:
    unknown = UnknownTopicOrPartitionError("topic absent is not there")
    web.app.sidecar.unknown.remember("absent", unknown, web.producer.clock.now_ms())
    for method, path, content_type, status in (
        ("GET", "/nothing", "", 404),
        ("GET", "/v1/topics/a%2Fb", "", 400),
        ("GET", "/v1/topics/orders/leader", "", 422),
        ("POST", PRODUCE, "text/html", 415),
        ("POST", PRODUCE, "application/json", 400),
        ("POST", "/v1/topics/orders", "", 405),
        ("GET", "/topics/absent", "", 404),
        ("GET", "/v3/clusters/another", "", 404),
        ("PUT", "/v1.0/publish/pubsub", "", 404),
    ):
        sent = {"content-type": content_type} if content_type else {}
        answer = web.ask(method, path, headers={"origin": ORIGIN, **sent})
        assert answer.status_code == status, path
        assert_readable(answer)


def test_an_answer_that_says_too_many_may_be_read_with_its_retry_after() -> None:
    app = HttpApp(allowed_origins=ORIGIN, max_waiting_requests=1)
    headers = {"origin": ORIGIN, "content-type": "application/json"}
    with app.app.sidecar.admission.acquire(0):
        answer = app.post(PRODUCE, content=RECORDS, headers=headers)
    assert answer.status_code == 429
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "retry-after" in answer.headers


def test_our_own_page_is_served_as_ever(web: HttpApp) -> None:
    own = {"host": "localhost:8085", "origin": "http://localhost:8085", "sec-fetch-site": "same-origin"}
    answer = web.post(PRODUCE, content=RECORDS, headers={**own, "content-type": "application/json"})
    assert (answer.status_code, cors_headers(answer), answer.headers["vary"]) == (200, [], "Origin")


def test_without_the_setting_nothing_of_cors_is_said() -> None:
    app = HttpApp()
    app.producer.set_topics({"orders": 3})
    for sent in ({}, {"origin": "http://localhost"}, {"origin": ORIGIN}):
        answer = app.get("/v1/topics/orders", headers=sent)
        assert "vary" not in answer.headers
        assert cors_headers(answer) == []


def test_every_header_of_ours_may_be_read() -> None:
    folder = Path(service.__file__).parent
    written = {
        name
        for path in folder.rglob("*.py")
        for name in re.findall(r'b"(pilotfish-[a-z-]+)"', path.read_text())
    }
    only_sent_to_us = {"pilotfish-key", "pilotfish-headers"}
    assert written - only_sent_to_us == {n.lower() for n in EXPOSED_HEADERS if n.startswith("Pilotfish-")}


# -- over a connection ---------------------------------------------------------------------------------------


async def test_prepared_answers_bear_the_headers_on_the_servers_short_way_too() -> None:
    running = RunningServer(allowed_origins=(ORIGIN,))
    async with running.clients() as (api, _):
        found = await api.get("/v1/topics/orders", headers={"origin": ORIGIN})
        plain = await api.get("/v1/topics/orders")
        again = {"origin": ORIGIN, "if-none-match": found.headers["etag"]}
        held = await api.get("/v1/topics/orders", headers=again)
    assert (found.status_code, held.status_code) == (200, 304)
    for answer in (found, held):
        assert_readable(answer)
    assert (plain.headers["vary"], cors_headers(plain)) == ("Origin", [])


async def test_a_watch_may_be_read_from_its_first_event_on() -> None:
    running = RunningServer(allowed_origins=(ORIGIN,))
    async with (
        running.clients() as (api, _),
        api.stream("GET", "/v1/watch", headers={"origin": ORIGIN}) as answer,
    ):
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert {v.strip() for v in answer.headers["vary"].split(",")} == {"accept", "Origin"}
        async for line in answer.aiter_lines():
            if line.startswith("event: snapshot"):
                break


async def test_an_invalid_request_is_refused_so_that_an_allowed_page_can_read_it() -> None:
    """The origin of a request that is no HTTP is unknown: the answer says that answers vary."""
    head = b" HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\n"
    async with Served(_never, cors=Cors([ORIGIN])) as served:
        for sent, status in {
            b"GET /" + head + b"X: 1\r\nBroken\r\n\r\n": 400,
            b"GET /#x" + head + b"\r\n": 400,
            b"POST /" + head + b"Transfer-Encoding: gzip\r\n\r\n": 501,
            b"GET /" + b"x" * 40_000 + head + b"\r\n": 414,
            b"\x16\x03\x01": 400,
        }.items():
            for origin in (ORIGIN, OTHER):
                caller = await served.call()
                caller.send(sent.replace(b"%s", origin.encode()))
                reported, headers, _ = await caller.answer()
                assert (reported, headers["vary"]) == (status, "Origin"), sent[:40]
                allowed = ORIGIN if origin == ORIGIN and b"Origin" in sent else None
                assert headers.get("access-control-allow-origin") == allowed, sent[:40]
        caller = await served.call()
        two = f"Origin: {ORIGIN}\r\nOrigin: {OTHER}\r\nX: 1\r\nBroken\r\n\r\n"
        caller.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + two.encode())
        reported, headers, _ = await caller.answer()
        assert (reported, "access-control-allow-origin" in headers) == (400, False)


async def _never(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("none of these is a request")


# -- the setting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry", ["*", "null", "ops.example", "https://ops.example/", "https://ops.example/x", "https://", "a b"]
)
def test_an_entry_that_is_no_origin_is_refused_with_its_remedy(entry: str) -> None:
    with pytest.raises(
        SettingsError, match=r"allowed_origins: .* is not an origin; write scheme, host and port"
    ):
        HttpApp(allowed_origins=entry)


def test_an_origin_is_taken_as_browsers_send_it() -> None:
    origins = ("https://ops.example", "http://localhost:3000", "http://[::1]:3000", "chrome-extension://abc")
    assert [entry for entry in origins if not Cors([entry]).allows(entry.encode())] == []


def test_the_port_of_the_scheme_is_left_out_as_browsers_do() -> None:
    cors = Cors(["HTTPS://ops.example:443", "http://ops.example:80", "http://ops.example:8080"])
    sent = {"https://ops.example": True, "http://ops.example": True, "http://ops.example:8080": True}
    sent |= {"https://ops.example:80": False, "http://ops.example:443": False}
    assert {origin: cors.allows(origin.encode()) for origin in sent} == sent
