"""Server-sent events for tests: a reader by the standard, and a watcher over ASGI without a socket.

    async with watching(web.app, "/v1/watch?topics=orders") as watch:
        snapshot = await watch.next("snapshot")
        watch.stall()             the caller takes nothing from here on
        watch.go_on()

`EventReader` understands what any client of event streams must (WHATWG HTML, 9.2.6). One event loop.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from service.wire.asgi import ASGIApp, Message

#: In real time; a test that waits longer hangs.
PATIENCE_S = patient(20.0)


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event as a client dispatches it. `last_id` is the client's last event id then."""

    event: str
    text: str
    last_id: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


class EventReader:
    """Bytes in, events out. `comments` counts comment lines, `retry_ms` is what the server asked for."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[str] = []
        self.last_id = ""
        self.comments = 0
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [event for line in lines if (event := self._line(line.decode())) is not None]

    def _line(self, line: str) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        if line.startswith(":"):
            self.comments += 1
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self.last_id = value
        elif name == "retry":
            self.retry_ms = int(value)
        else:
            raise AssertionError(f"no field of an event stream: {line!r}")
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, self._data = self._data, []
        event, self._event = self._event, ""
        return ServerSentEvent(event, "\n".join(data), self.last_id) if data else None


class KnownCluster:
    """The state of a watcher that follows docs/watch.md."""

    def __init__(self, snapshot: Any) -> None:
        self.brokers = {broker["id"]: broker for broker in snapshot["brokers"]}
        self.topics: dict[str, dict[int, Any]] = {}
        self.ids: dict[str, str | None] = {}
        for topic in snapshot["topics"]:
            self.topics[topic["name"]] = {found["partition"]: found for found in topic["partitions"]}
            self.ids[topic["name"]] = topic["id"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownCluster) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"<KnownCluster {vars(self)}>"

    def apply(self, event: str, data: Any) -> None:
        """Takes one change in."""
        if event == "broker" and data["change"] == "left":
            del self.brokers[data["broker"]["id"]]
        elif event == "broker":
            self.brokers[data["broker"]["id"]] = data["broker"]
        elif event == "topic" and data["change"] == "gone":
            del self.topics[data["topic"]], self.ids[data["topic"]]
        elif event == "topic":
            if data["change"] != "grew":
                self.topics[data["topic"]] = {}
            self.ids[data["topic"]] = data["id"]
        else:
            for found in data["partitions"]:
                whole = {name: value for name, value in found.items() if name != "previous_leader"}
                self.topics[data["topic"]][found["partition"]] = whole


@dataclass
class Watch:
    """One watcher of an ASGI app: what it was answered so far."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    #: Events that `next` has not taken yet.
    events: list[ServerSentEvent] = field(default_factory=list)
    #: The largest chunk that came at once.
    largest_chunk_bytes: int = 0
    reader: EventReader = field(default_factory=EventReader)
    ended: bool = False
    _takes: asyncio.Event = field(default_factory=asyncio.Event)
    _log_limiter: asyncio.Event = field(default_factory=asyncio.Event)
    _left: asyncio.Event = field(default_factory=asyncio.Event)

    def stall(self) -> None:
        """Takes nothing from here on."""
        self._takes.clear()

    def go_on(self) -> None:
        self._takes.set()

    def leave(self) -> None:
        """Closes the connection."""
        self._left.set()

    def json(self) -> Any:
        """The whole body, of an answer that is none of events."""
        return json.loads(self.raw)

    async def next(self, event: str) -> ServerSentEvent:
        """The next event, which must be of this kind."""
        found = await self.take()
        assert found.event == event, f"expected {event}, got {found}"
        return found

    async def take(self) -> ServerSentEvent:
        """The next event, whatever it is."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.events:
                assert not self.ended, f"the stream has ended: {self.status} {self.raw!r}"
                self._log_limiter.clear()
                await self._log_limiter.wait()
        return self.events.pop(0)

    async def until_ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not self.ended:
                self._log_limiter.clear()
                await self._log_limiter.wait()

    async def until(self, comments: int) -> None:
        """Until so many heartbeats have come."""
        async with asyncio.timeout(PATIENCE_S):
            while self.reader.comments < comments:
                self._log_limiter.clear()
                await self._log_limiter.wait()

    # -- ASGI ------------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        await self._takes.wait()
        body = message.get("body", b"")
        self.raw += body
        self.largest_chunk_bytes = max(self.largest_chunk_bytes, len(body))
        if self.headers.get("content-type") == "text/event-stream":
            self.events += self.reader.feed(body)
        self.ended = not message.get("more_body", False)
        self._log_limiter.set()

    def over(self) -> None:
        """The application has returned."""
        self.ended = True
        self._log_limiter.set()


@asynccontextmanager
async def watching(
    app: ASGIApp,
    target: str,
    headers: Mapping[str, str] | None = None,
    scope: Mapping[str, Any] | None = None,
) -> AsyncIterator[Watch]:
    """A GET that goes on for the length of the block; it is left at its end.

    `scope` is what a server would have put there.
    """
    watch = Watch()
    watch.go_on()
    task = asyncio.ensure_future(
        app({**_scope(target, headers or {}), **(scope or {})}, watch.receive, watch.send)
    )
    task.add_done_callback(lambda _: watch.over())
    try:
        yield watch
    finally:
        watch.leave()
        watch.go_on()
        async with asyncio.timeout(PATIENCE_S):
            await task


def _scope(target: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = target.partition("?")
    pairs = {"host": "localhost", **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in pairs.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8085),
    }
