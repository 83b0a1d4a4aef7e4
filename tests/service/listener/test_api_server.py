"""uvicorn as the API's server: what it leaves out, and that it accepts nothing once it was shut down."""

from __future__ import annotations

import asyncio
import socket

from service.listener.api_server import ApiServer
from service.listener.connections import Connections
from service.listener.listeners import Listener
from tests.support.coroutine_tests import until
from tests.support.http_app import HttpApp
from tests.support.served import Caller, limits


def server(web: HttpApp, *listeners: Listener) -> ApiServer:
    access_log = web.app.sidecar.settings.access_log
    made = ApiServer(web.app, listeners, Connections(limits()), access_log=access_log, cors=web.app.cors)
    made.config.load()
    made.lifespan = made.config.lifespan_class(made.config)
    return made


def test_no_header_of_a_proxy_is_believed_and_the_last_answers_have_two_seconds() -> None:
    config = server(HttpApp()).config
    assert (config.proxy_headers, config.server_header, config.lifespan) == (False, False, "on")
    assert config.ws_protocol_class is None
    # Of the 5 s that a pod has after its drain.
    assert config.timeout_graceful_shutdown == 2
    assert [server(HttpApp(access_log=on)).config.access_log for on in (True, False)] == [True, False]


async def test_a_server_that_was_shut_down_accepts_nothing_more() -> None:
    web = HttpApp()
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    running = server(web, Listener(listening, "tcp"))
    await running.startup()
    caller = Caller(*await asyncio.open_connection(*address))
    caller.send(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    status, headers, _ = await caller.answer()
    assert (status, "server" in headers) == (200, False)
    await running.shutdown()
    assert await caller.until_closed() == b""
    await caller.hang_up()
    assert listening.fileno() == -1
    await until(lambda: not running._connections.open)
