"""A repeated request to an app without a server; its body comes in pieces as from a connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from service.wire.asgi import ASGIApp, Message

JSON: Final = (b"content-type", b"application/json")
TRACEPARENT: Final = (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
#: What one read of a connection brings.
_READ_BYTES: Final = 256 * 1024


class Call:
    """One request; a POST where it has a body. `status`, `headers` and `answer` are those of the last one."""

    def __init__(self, app: ASGIApp, target: str, *headers: tuple[bytes, bytes], body: bytes = b"") -> None:
        path, _, query = target.partition("?")
        self._app = app
        self._body = body
        length = ((b"content-length", b"%d" % len(body)),) if body else ()
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": "POST" if body else "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), *length, *headers],
        }
        self._reads: list[bytes] = []
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.answer = b""

    async def ask(self) -> int:
        """The status."""
        if self._body:
            starts = range(0, len(self._body), _READ_BYTES)
            self._reads = [self._body[at : at + _READ_BYTES] for at in starts][::-1]
        await self._app(dict(self._scope), self._receive, self._send)
        return self.status

    def look_up(self, times: int = 1) -> None:
        """A prepared answer needs no loop, since it waits for nothing. AssertionError if it does wait."""
        for _ in range(times):
            try:
                self.ask().send(None)
            except StopIteration:
                continue
            raise AssertionError("a look-up waited for something")

    async def _receive(self) -> Message:
        if len(self._body) > _READ_BYTES:
            await asyncio.sleep(0)
        if not self._reads:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": self._reads.pop(), "more_body": bool(self._reads)}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            self.answer = message.get("body", b"")[:1_000]
