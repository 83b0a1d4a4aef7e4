"""A caller of a request that stays open: it may send and read at any time, without a socket.

    async with StreamCaller(web.app, "/v1/topics/orders/records") as caller:
        caller.send(b'{"value":1}\\n')
        assert (await caller.line())["offset"] == 100
        caller.end()
        assert await caller.rest() == [{"summary": …}]

`leave` is a connection that was lost. The answer's head is `status` and `headers` once it has come.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from service.wire.asgi import ASGIApp

NDJSON = "application/x-ndjson"


class StreamCaller:
    """One open request. Its task ends with the `with`."""

    def __init__(
        self, app: ASGIApp, path: str, query: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        given = {"host": "localhost", "content-type": NDJSON, **(headers or {})}
        self._app = app
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._said = bytearray()
        self._came = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.is_answered = False

    async def __aenter__(self) -> Self:
        self.request = asyncio.ensure_future(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.request.cancel()
        await asyncio.gather(self.request, return_exceptions=True)

    # -- the caller ------------------------------------------------------------------------------------------

    def send(self, body: bytes) -> None:
        self._sent.put_nowait({"type": "http.request", "body": body, "more_body": True})

    def end(self, body: bytes = b"") -> None:
        self._sent.put_nowait({"type": "http.request", "body": body, "more_body": False})

    def leave(self) -> None:
        self._sent.put_nowait({"type": "http.disconnect"})

    def stop_reading(self) -> None:
        """The connection takes no more of the answer from now on."""
        self._reads.clear()

    def read_on(self) -> None:
        self._reads.set()

    @property
    def is_taken(self) -> bool:
        """Whether the application has received all that was sent."""
        return self._sent.empty()

    async def line(self) -> dict[str, Any]:
        """The next line of the answer."""
        while b"\n" not in self._said:
            assert not self.is_answered, f"the answer ended with {bytes(self._said)!r}"
            self._came.clear()
            await self._came.wait()
        line, _, rest = bytes(self._said).partition(b"\n")
        self._said[:] = rest
        reported: dict[str, Any] = json.loads(line)
        return reported

    async def rest(self) -> list[dict[str, Any]]:
        """All further lines, once the answer has ended."""
        await asyncio.shield(self.request)
        lines, self._said = bytes(self._said).splitlines(), bytearray()
        return [json.loads(line) for line in lines]

    # -- the connection --------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        await self._app(self._scope, self._sent.get, self._take)

    async def _take(self, message: MutableMapping[str, Any]) -> None:
        await self._reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.chunks.append(message.get("body", b""))
            self._said += self.chunks[-1]
            self.is_answered = not message.get("more_body", False)
        self._came.set()
