"""Attempts of a web page in a browser on the same machine, by the requests that browsers make for it."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from service.base.settings import Settings
from service.process.admin import AdminApp, admin_hosts, make_registry
from service.process.health import Health
from tests.support.coroutine_tests import run
from tests.support.http_app import HttpApp
from tests.support.running_server import RunningServer

if TYPE_CHECKING:
    import httpx

RECORDS: Final = b'{"records":[{"value":1}]}'
PRODUCE: Final = "/v1/topics/orders/records"
PRODUCES: Final = (
    *(PRODUCE, "/topics/orders"),
    *("/v3/clusters/c/topics/orders/records", "/v1.0/publish/p/orders"),
)


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 3})
    app.producer.calls.clear()
    return app


# -- names that were made to point at loopback (DNS rebinding) -----------------------------------------------

FOREIGN_HOSTS: Final = (
    "evil.example",
    "evil.example:8085",
    "localhost.evil.example",
    "127.0.0.1.nip.io",
    "localhost.",
    "localhost.:8085",
    "user@localhost",
    "localhost@evil.example",
    "localhost:8085@evil.example",
    "localhost:x@evil.example",
    "localhost:8085:evil.example",
    "localhost,evil.example",
    "localhost evil.example",
    "[::1]evil.example",
    "[::1].evil.example:8085",
    "[::ffff:127.0.0.1]",
    "::1",
    "0x7f.1",
    "2130706433",
    "127.1",
    "127.0.0.1\u00b7",
    "\u217cocalhost",
    "",
)


def test_no_spelling_of_another_host_is_let_in(web: HttpApp) -> None:
    for host in FOREIGN_HOSTS:
        for path in ("/v1/cluster", "/v1/topics/orders", "/", "/openapi.json", "/nothing"):
            assert web.get(path, headers={b"host": host.encode()}).status_code == 421, (host, path)


async def test_hosts_are_judged_as_they_come_over_the_wire() -> None:
    running = RunningServer()
    async with running.clients():
        for head, status in (
            (b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n", 200),
            (b"GET /v1/cluster HTTP/1.1\r\nHost: evil.example\r\n", 421),
            (b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 400),
            (b"GET /v1/cluster HTTP/1.1\r\nhost: localhost\r\nHOST: localhost\r\n", 400),
            (b"GET /v1/cluster HTTP/1.1\r\n", 400),
            (b"GET /v1/cluster HTTP/1.1\r\nHost : localhost\r\n", 400),
            (b"GET http://evil.example/v1/cluster HTTP/1.1\r\nHost: localhost\r\n", 421),
            (b"GET http://localhost/v1/cluster HTTP/1.1\r\nHost: evil.example\r\n", 200),
            (b"GET http://localhost@evil.example/v1/cluster HTTP/1.1\r\nHost: localhost\r\n", 400),
            (b"GET http://evil.example@localhost/v1/cluster HTTP/1.1\r\nHost: localhost\r\n", 400),
            (b"GET //evil.example/v1/cluster HTTP/1.1\r\nHost: evil.example\r\n", 421),
            (b"GET /v1/cluster HTTP/1.0\r\nHost: evil.example\r\n", 421),
            (b"OPTIONS /v1/cluster HTTP/1.1\r\nHost: evil.example\r\n", 421),
        ):
            said = await running.raw(head + b"Connection: close\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 %d " % status), head


# -- the admin listener --------------------------------------------------------------------------------------


@cache
def behind_admin() -> HttpApp:
    """One for all: to make one takes longer than to ask it."""
    return HttpApp()


def asked_of_admin(admin_host: str, headers: dict[str, str], allowed: tuple[str, ...] = ()) -> httpx.Response:
    web = behind_admin()
    settings = Settings(
        kafka={"bootstrap.servers": "localhost:9092"},
        admin_host=admin_host,
        **({"allowed_hosts": allowed} if allowed else {}),  # type: ignore[arg-type]
    )

    async def scenario() -> httpx.Response:
        health = Health(web.app.sidecar, asyncio.get_running_loop(), lambda: True)
        admin = AdminApp(make_registry(web.app), health, admin_hosts(settings))
        async with web.client(admin) as client:
            return await client.get("/metrics", headers=headers)

    return run(scenario())


def test_metrics_on_loopback_answer_to_no_other_host() -> None:
    for host in (host for host in FOREIGN_HOSTS if host.isascii()):
        assert asked_of_admin("127.0.0.1", {"host": host}).status_code == 421, host


def test_probes_and_scrapes_come_by_the_hosts_that_they_have() -> None:
    for admin_host, allowed, host in (
        ("127.0.0.1", (), "localhost:9464"),
        ("127.0.0.1", (), "127.0.0.1:9464"),
        ("127.0.0.2", (), "127.0.0.2:9464"),
        ("::1", (), "[::1]:9464"),
        ("localhost", ("sidecar.internal",), "sidecar.internal"),
        ("localhost", ("sidecar.internal",), "127.0.0.1:9464"),
        ("127.0.0.1", ("*",), "any.thing"),
        ("0.0.0.0", (), "shop-7f9c.default.svc:9464"),
        ("10.1.2.3", (), "10.1.2.3:9464"),
    ):
        assert asked_of_admin(admin_host, {"host": host}, allowed).status_code == 200, host


def test_no_page_reads_metrics_wherever_they_are() -> None:
    for admin_host in ("127.0.0.1", "0.0.0.0"):
        for headers in (
            {"origin": "http://localhost:9464"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
            {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        ):
            assert asked_of_admin(admin_host, headers).status_code == 403, (admin_host, headers)


async def test_a_server_on_loopback_guards_its_metrics() -> None:
    running = RunningServer()
    async with running.clients() as (_, admin):
        for headers, status in (
            ({}, 200),
            ({"host": "evil.example"}, 421),
            ({"origin": "http://evil.example"}, 403),
        ):
            assert (await admin.get("/metrics", headers=headers)).status_code == status, headers


# -- requests without a preflight ----------------------------------------------------------------------------

#: What a form, fetch(no-cors) or sendBeacon can send without asking first.
SIMPLE: Final = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "",
    None,
)


def test_a_form_of_another_page_writes_nothing(web: HttpApp) -> None:
    for media_type in SIMPLE:
        for origin in ("null", "https://evil.example", "http://localhost:3000", "file://", ""):
            headers = {"host": "localhost:8085", "origin": origin}
            if media_type is not None:
                headers["content-type"] = media_type
            for path in PRODUCES:
                assert web.post(path, content=RECORDS, headers=headers).status_code == 403, (path, headers)
            assert web.producer.submitted == [], (media_type, origin)
            assert web.producer.calls == [], (media_type, origin)


def test_a_form_without_an_origin_is_no_record_where_its_type_is_none(web: HttpApp) -> None:
    for media_type in SIMPLE:
        headers = {} if media_type is None else {"content-type": media_type}
        assert web.post(PRODUCE, content=RECORDS, headers=headers).status_code in (400, 415)
    assert web.producer.submitted == []


def test_no_preflight_is_answered_unless_its_origin_is_allowed(web: HttpApp) -> None:
    for origin in ("https://evil.example", "http://localhost:8085"):
        headers = {
            "host": "localhost:8085",
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,authorization",
            "access-control-request-private-network": "true",
        }
        answer = web.ask("OPTIONS", PRODUCE, headers=headers)
        assert answer.status_code in (403, 405), origin
        assert not [name for name in answer.headers if name.startswith("access-control")], origin


# -- requests without an Origin: images, scripts, frames -----------------------------------------------------


def fetched(site: str, mode: str = "no-cors", dest: str = "image") -> dict[str, str]:
    return {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}


def test_another_page_embeds_nothing_and_holds_no_place(web: HttpApp) -> None:
    for mode, dest in (
        ("no-cors", "image"),
        ("no-cors", "script"),
        ("navigate", "iframe"),
        ("navigate", "object"),
        ("cors", "empty"),
    ):
        for site in ("cross-site", "same-site", "anything-new"):
            for path in ("/v1/watch", "/v1/topics/made-up?max_block_ms=60000", "/v1/topics/orders", "/"):
                assert web.get(path, headers=fetched(site, mode, dest)).status_code == 403, (site, path)
        assert web.producer.calls == [], mode


def test_a_page_can_not_send_us_elsewhere_by_submitting_a_form(web: HttpApp) -> None:
    headers = {"content-type": "text/plain", **fetched("cross-site", "navigate", "document")}
    assert web.post(PRODUCE, content=RECORDS, headers=headers).status_code == 403


def test_our_own_page_and_a_typed_address_are_let_in(web: HttpApp) -> None:
    for site in ("same-origin", "none"):
        assert web.get("/v1/cluster", headers=fetched(site, "cors", "empty")).status_code == 200, site
        assert web.get("/", headers=fetched(site, "navigate", "document")).status_code == 200, site


def test_a_link_may_be_followed(web: HttpApp) -> None:
    assert web.get("/", headers=fetched("cross-site", "navigate", "document")).status_code == 200


def test_an_allowed_origin_is_let_in_though_it_is_another_site() -> None:
    web = HttpApp(allowed_origins="https://ops.example")
    web.producer.set_topics({"orders": 3})
    headers = {"origin": "https://ops.example", **fetched("cross-site", "cors", "empty")}
    assert web.get("/v1/cluster", headers=headers).status_code == 200


def test_our_own_origin_does_not_excuse_another_host(web: HttpApp) -> None:
    headers = {"host": "evil.example", "origin": "http://evil.example", **fetched("same-origin")}
    assert web.get("/v1/cluster", headers=headers).status_code == 421
