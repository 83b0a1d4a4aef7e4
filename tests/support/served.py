"""An ASGI application on listeners of the sidecar's own, in this process, and raw connections to them.

    async with Served(app, limits=limits(head_s=0.05)) as served:
        caller = await served.call()
        caller.send(b"GET / HTTP/1.1\\r\\n…")
        await caller.until_closed()

`on_loop` runs a scenario on asyncio's own loop or on uvloop, which serves in a real sidecar; a test that is a
coroutine runs on both with `on_each_loop`. What is still connected at the end is cut off, and the end waits
until the server has noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

import uvicorn
import uvloop
from uvicorn.server import ServerState

from service.listener.connections import Connections, Limits
from service.listener.http_protocol import ApiProtocol
from service.listener.listeners import Listener
from service.wire.cors import NO_CORS, Cors
from tests.support.coroutine_tests import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from service.listener.unix_socket import UnixSocket
    from service.wire.asgi import AnswerAtOnce, ASGIApp

T = TypeVar("T")
P = ParamSpec("P")

LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_loop(name: str, scenario: Coroutine[Any, Any, T]) -> T:
    """Runs a scenario to its end on a loop of that name."""

    async def bounded() -> T:
        return await asyncio.wait_for(scenario, PATIENCE_S)

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        return runner.run(bounded())


def on_each_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, run on each loop in turn over the same fixtures; failures name the loop."""

    @functools.wraps(test)
    def in_turn(*given: P.args, **named: P.kwargs) -> None:
        for name in LOOPS:
            try:
                on_loop(name, test(*given, **named))
            except BaseException as e:
                e.add_note(f"on the loop of {name}")
                raise

    return in_turn


def limits(**given: float) -> Limits:
    """Limits that nothing reaches, but for those that are given."""
    roomy = Limits(
        max_connections=1_000,
        head_s=600.0,
        keep_alive_s=600.0,
        stall_s=600.0,
        max_unsent_bytes=1 << 30,
        large_heads_bytes=1 << 30,
    )
    return roomy._replace(**given)  # type: ignore[arg-type]  # whole numbers where they are to be


def ended(connections: Connections) -> Counter[str]:
    """How many connections we ended, by why."""
    return Counter(
        {
            sample.labels["reason"]: int(sample.value)
            for family in connections.collect()
            for sample in family.samples
            if sample.name == "pilotfish_http_connections_ended_total"
        }
    )


class Served:
    """A server, as long as it is entered."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits = limits(),  # noqa: B008 - a value
        context: Callable[[], ssl.SSLContext] | None = None,
        unix: UnixSocket | None = None,
        send_buffer_bytes: int | None = None,
        cors: Cors = NO_CORS,
        answer_at_once: AnswerAtOnce | None = None,
    ) -> None:
        self._cors = cors
        self._answer_at_once = answer_at_once
        self._config = uvicorn.Config(
            app,
            http=ApiProtocol,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        self._config.load()
        self._state = ServerState()
        self.connections = Connections(limits)
        self._unix = unix
        if unix is None:
            listening = socket.create_server(("127.0.0.1", 0), backlog=128)
            if send_buffer_bytes is not None:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            self.address: Any = listening.getsockname()
            self.listener = Listener(listening, "tcp", context=context)
        else:
            self.address = unix.path
            self.listener = Listener(unix.socket, unix.path, close=unix.close)
        self.callers: list[Caller] = []

    async def __aenter__(self) -> Self:
        self.open()
        return self

    def open(self) -> None:
        """Accepts on `listener`."""

        def protocol() -> ApiProtocol:
            return ApiProtocol(
                self._config, self._state, {}, self.connections, self._cors, self._answer_at_once
            )

        self.listener.open(protocol, self.connections)

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
        for caller in self.callers:
            await caller.hang_up()
        for connection in list(self._state.connections):
            connection.transport.abort()
        await until(lambda: not self.connections.open and not self._state.tasks)

    @property
    def protocols(self) -> list[ApiProtocol]:
        """The connections as the server has them."""
        return list(self._state.connections)  # type: ignore[arg-type]  # all are made here

    def put_into_every_head(self, headers: list[tuple[bytes, bytes]]) -> None:
        """As a server of uvicorn's does each second, with the date."""
        self._state.default_headers = headers

    def shut_down(self) -> None:
        """As uvicorn does it: nothing more is accepted, and what is idle ends."""
        self.listener.close()
        for connection in list(self._state.connections):
            connection.shutdown()

    async def call(
        self, *, context: ssl.SSLContext | None = None, receive_buffer_bytes: int | None = None
    ) -> Caller:
        """A connection, made."""
        family = socket.AF_INET if self._unix is None else socket.AF_UNIX
        own = socket.socket(family, socket.SOCK_STREAM)
        own.setblocking(False)
        if receive_buffer_bytes is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(own, self.address)
            name = None if context is None else "localhost"
            reader, writer = await asyncio.open_connection(sock=own, ssl=context, server_hostname=name)
        except BaseException:
            own.close()
            raise
        caller = Caller(reader, writer)
        self.callers.append(caller)
        return caller


class Caller:
    """One connection from the caller's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer, which says its length or is in chunks."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        status = int(status_line.split(" ")[1])
        if status == 100:
            return status, headers, b""
        return status, headers, await self.reader.readexactly(int(headers.get("content-length", "0")))

    async def until_closed(self) -> bytes:
        """All that comes until the server ends the connection, in whichever way."""
        said = bytearray()
        with contextlib.suppress(ConnectionResetError, ssl.SSLError):  # it was cut off
            while part := await self.reader.read(65_536):
                said += part
        return bytes(said)

    async def hang_up(self) -> None:
        """Cuts the connection. Idempotent."""
        self.writer.transport.abort()
        with contextlib.suppress(OSError):  # it was cut off from the other side
            await self.writer.wait_closed()
