"""Answers that go on: chunks are written as they come, to a caller who takes them, or not at all.

A caller who takes nothing for `stall_ms` is cut off: what waits for it would grow, and its place is somebody
else's. One who leaves ends the stream. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.responses import Response

from service.asgi import ABORT, HeaderPairs, Receive, Scope, Send
from service.waiting import CallerGoneError


class Outlet:
    """Where the chunks of one answer go."""

    def __init__(self, scope: Scope, send: Send, stall_ms: int) -> None:
        self._send = send
        self._stall_ms = stall_ms
        self._abort: Final[Callable[[], None] | None] = scope.get(ABORT)

    async def write(self, chunk: bytes) -> None:
        """Hands a chunk on; returns when the connection has room for more.

        Raises CallerGoneError where the caller takes nothing for stall_ms; the connection is cut then.
        """
        try:
            async with asyncio.timeout(self._stall_ms / 1000):
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError as e:
            if self._abort is not None:
                self._abort()
            raise CallerGoneError(f"the caller took nothing for {self._stall_ms} ms") from e


class StreamedAnswer(Response):
    """A response whose body is what `write` puts into the outlet.

    With `watch` the caller's leaving cancels `write`; without it, `write` reads the body itself and will see.
    """

    def __init__(
        self,
        headers: HeaderPairs,
        write: Callable[[Outlet], Awaitable[None]],
        *,
        stall_ms: int,
        status: int = 200,
        watch: bool = True,
    ) -> None:
        super().__init__(status_code=status)
        self.raw_headers = headers
        self._write = write
        self._stall_ms = stall_ms
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outlet = Outlet(scope, send, self._stall_ms)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with contextlib.suppress(CallerGoneError):  # nobody is left to end it for
            if self._watch:
                await _unless_gone(self._write(outlet), receive)
            else:
                await self._write(outlet)
            await send({"type": "http.response.body", "body": b""})


async def _unless_gone(work: Awaitable[None], receive: Receive) -> None:
    """Does the work; raises CallerGoneError, the work cancelled, when the caller leaves before its end."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CallerGoneError("the caller closed the connection")
        await working
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
