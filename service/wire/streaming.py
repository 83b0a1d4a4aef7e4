"""Streamed answers: writes each chunk as it comes, to a caller who keeps reading.

A caller who reads nothing for `stall_ms` is disconnected: its backlog would grow, and it holds a permit that
others need. A caller who leaves ends the stream. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from starlette.responses import Response

from service.wire.asgi import ABORT, HeaderPairs, Message, Receive, Scope, Send, header
from service.wire.waiting import CallerGoneError, until_gone

T = TypeVar("T")


class Outlet:
    """Writes the chunks of one answer."""

    def __init__(self, scope: Scope, send: Send, stall_ms: int) -> None:
        self._send = send
        self._stall_ms = stall_ms
        self._abort: Final[Callable[[], None] | None] = scope.get(ABORT)

    async def write(self, chunk: bytes) -> None:
        """Sends a chunk; returns when the connection has room for more.

        Raises CallerGoneError, and cuts the connection, if the caller reads nothing for stall_ms.
        """
        try:
            async with asyncio.timeout(self._stall_ms / 1000):
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError as e:
            if self._abort is not None:
                self._abort()
            raise CallerGoneError(f"the caller read nothing for {self._stall_ms} ms") from e


class StreamedAnswer(Response):
    """A response whose body `write` puts into the outlet.

    With `watch`, the caller's leaving cancels `write`. Without it, `write` reads the body and notices itself.
    """

    def __init__(
        self,
        headers: HeaderPairs,
        write: Callable[[Outlet], Awaitable[None]],
        *,
        stall_ms: int,
        status: int = 200,
        watch: bool = True,
        begin: Callable[[], Awaitable[None]] | None = None,
        held: AbstractContextManager[object] | None = None,
    ) -> None:
        """Awaits `begin` before it sends the head, as `AskedBody.ask` needs.

        `held` is released with the answer, however that ends, even if the head can't be sent.
        """
        super().__init__(status_code=status)
        self.raw_headers = headers
        self._write = write
        self._stall_ms = stall_ms
        self._watch = watch
        self._begin = begin
        self._held = contextlib.nullcontext() if held is None else held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        outlet = Outlet(scope, send, self._stall_ms)
        if self._begin is not None:
            await self._begin()
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with contextlib.suppress(CallerGoneError):  # nobody is left to end it for
            if self._watch:
                await unless_gone(self._write(outlet), receive)
            else:
                await self._write(outlet)
            await send({"type": "http.response.body", "body": b""})


class AskedBody:
    """A request's `receive`, for an answer that begins before the body arrives.

    A caller that sent `Expect: 100-continue` would take an early answer for a refusal. Servers send 100
    Continue when the application first receives, so `ask` receives early. One task calls.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._waits = header(scope, b"expect") is not None
        self._receive = receive
        self._first: asyncio.Future[Message] | None = None

    async def ask(self) -> None:
        """Makes the server send 100 Continue, if the caller expects it."""
        if self._waits:
            self._first = asyncio.ensure_future(self._receive())
            await asyncio.sleep(0)

    async def __call__(self) -> Message:
        first, self._first = self._first, None
        return await (self._receive() if first is None else first)


async def unless_gone(work: Awaitable[T], receive: Receive) -> T:
    """Returns the result of `work`. If the caller leaves first, cancels it and raises CallerGoneError."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(until_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CallerGoneError("the caller closed the connection")
        return await working
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
