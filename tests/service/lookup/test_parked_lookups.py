"""Look-ups that wait in front of FastAPI end as those that wait within it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from client_core import MetadataResult
from service.lookup.fast_lookups import ParkedLookups
from service.wire.asgi import respond_with
from tests.support.coroutine_tests import run, until
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    import httpx

    from service.wire.asgi import Receive, Scope, Send
    from tests.support.fake_producer import FakeTicket

PLAIN = [
    "/v1/topics/orders",
    "/v1/topics/orders?max_block_ms=700",
    "/v1/topics/orders/partitions/1",
    "/v1/topics/orders/partitions/1?max_block_ms=700",
    "/v1/topics/orders/leader?partition=1",
    "/v1/topics/orders/leader?key=a-b_c.1&max_block_ms=700",
]


def within(path: str) -> str:
    """The same look-up in a spelling that only FastAPI reads: one letter of the name is encoded."""
    return path.replace("orders", "%6Frders")


def asked(web: HttpApp, path: str, end: str) -> tuple[httpx.Response, dict[str, object]]:
    """The answer to a look-up that waits until the topic appears, is missing, or the time is over."""

    async def scenario() -> tuple[httpx.Response, dict[str, object]]:
        async with web.client() as client:
            waiting = asyncio.create_task(client.get(path))
            await until(lambda: web.producer.waiting)
            (ticket,) = web.producer.waiting
            if end == "appears":
                web.producer.set_topics({"orders": 3})
                web.producer.finish(ticket, MetadataResult(web.producer.cache))
            elif end == "missing":
                web.producer.say_unknown(ticket)
            else:
                web.producer.time_out(ticket)
            return await waiting, ticket.asked

    return run(scenario())


@pytest.mark.parametrize("end", ["appears", "missing", "late"])
@pytest.mark.parametrize("path", PLAIN)
def test_both_ways_ask_the_same_and_answer_the_same(path: str, end: str) -> None:
    here, asked_here = asked(HttpApp(), path, end)
    there, asked_there = asked(HttpApp(), within(path), end)
    assert asked_here == asked_there
    assert (here.status_code, here.json()) == (there.status_code, there.json())
    assert here.headers.keys() == there.headers.keys()
    assert here.headers["content-type"] == there.headers["content-type"]


async def nobody(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("a look-up that is plain enough went on to the routes")


@pytest.mark.parametrize("path", PLAIN)
def test_a_look_up_in_vain_never_gets_to_the_routes(path: str) -> None:
    web = HttpApp()
    sidecar = web.app.sidecar
    parked = ParkedLookups(nobody, sidecar.lookups, lambda _: False, sidecar.http)

    def end(ticket: FakeTicket) -> None:
        assert sidecar.http.in_progress == 1
        web.producer.say_unknown(ticket)

    assert web.get(path, app=parked, ends=end).status_code == 404
    assert sidecar.http.in_progress == 0


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/orders?max_age_ms=5",
        "/v1/topics/orders?max_block_ms=3600001",
        "/v1/topics/orders?max_block_ms=",
        "/v1/topics/orders/leader",
        "/v1/topics/orders/leader?partition=1&key=a",
        "/v1/topics/orders/leader?key=%61",
        "/v1/topics/orders/partitions/01x",
        "/v1/topics/orders/else",
    ],
)
def test_what_is_not_plain_goes_on_as_it_came(path: str) -> None:
    web = HttpApp()
    gone_on = []

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        gone_on.append(scope["raw_path"])
        await respond_with(send, 204, b"text/plain", b"", [])

    parked = ParkedLookups(route, web.app.sidecar.lookups, lambda _: False, web.app.sidecar.http)
    assert web.ask("GET", path, app=parked).status_code == 204
    assert gone_on
    assert not web.producer.calls
