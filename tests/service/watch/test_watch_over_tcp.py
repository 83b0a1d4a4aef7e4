"""Watchers over real sockets with small buffers: a slow one is dropped, and nobody else notices."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.coroutine_tests import until
from tests.support.event_stream import EventReader
from tests.support.http_app import HttpApp
from tests.support.metadata_responses import partition, topic
from tests.support.served import LOOPS, Caller, Served, limits, on_loop

if TYPE_CHECKING:
    from tests.support.event_stream import ServerSentEvent

WATCH = b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n"
SMALL_BUFFERS = 4_096

#: More in one snapshot than the kernel's buffers and the connection's own hold.
PARTITIONS = 4_000


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def large() -> list[Any]:
    partitions = [partition(p, leader=1, replicas=(1, 2, 3)) for p in range(PARTITIONS)]
    return [topic("large", partitions)]


class Stream:
    """Reads the chunks of one answer, as events."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._reader = EventReader()
        self._events: list[ServerSentEvent] = []

    async def begin(self) -> None:
        self._caller.send(WATCH)
        head = await self._caller.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head

    async def next(self) -> ServerSentEvent:
        while not self._events:
            size = int(await self._caller.reader.readuntil(b"\r\n"), 16)
            assert size, "the stream has ended"
            self._events += self._reader.feed((await self._caller.reader.readexactly(size + 2))[:-2])
        return self._events.pop(0)


def test_a_watcher_that_takes_nothing_is_cut_off_and_others_go_on(loop: str) -> None:
    web = HttpApp(stall_timeout_ms=300)
    web.producer.set_topics(large())

    async def scenario() -> None:
        feed = web.app.sidecar.feed
        async with Served(web.app, limits=limits(), send_buffer_bytes=SMALL_BUFFERS) as served:
            (await served.call(receive_buffer_bytes=SMALL_BUFFERS)).send(WATCH)
            await until(lambda: feed.watchers == 1)
            quick = Stream(await served.call())
            await quick.begin()
            assert (await quick.next()).event == "snapshot"
            await until(lambda: feed.watchers == 1)
            web.producer.set_topics([*large(), topic("new", 1, nodes=(1,))])
            assert (await quick.next()).data["change"] == "appeared"

    on_loop(loop, scenario())


def test_a_watcher_that_takes_too_little_is_told_so_and_resumes_where_it_was(loop: str) -> None:
    web = HttpApp(watch_queue_events=3)
    web.producer.set_topics(large())

    async def scenario() -> list[str]:
        async with Served(web.app, limits=limits(), send_buffer_bytes=SMALL_BUFFERS) as served:
            slow_caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
            slow_caller.send(WATCH)
            feed = web.app.sidecar.feed
            await until(lambda: any(p.transport.get_write_buffer_size() for p in served.protocols))
            for epoch in range(1, 6):
                web.producer.set_topics([*large(), topic("small", [partition(0, leader=1, epoch=epoch)])])
                await until(lambda: feed.log.number >= 2 + epoch)  # noqa: B023 - awaited in the loop
            # With so small a window the kernel would take seconds for the rest.
            own = slow_caller.writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            await slow_caller.reader.readuntil(b"\r\n\r\n")
            slow = Stream(slow_caller)
            snapshot, end = await slow.next(), await slow.next()
            assert (snapshot.event, end.event, end.data["reason"]) == ("snapshot", "end", "too_slow")
            again = await served.call()
            again.send(WATCH[:-2] + b"Last-Event-ID: %s\r\n\r\n" % end.last_id.encode())
            head = await again.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            resumed = Stream(again)
            return [(await resumed.next()).event for _ in range(6)]

    assert on_loop(loop, scenario()) == ["topic", *["leader"] * 5]


def test_a_watcher_that_hangs_up_leaves_nothing_behind(loop: str) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 1})

    async def scenario() -> None:
        async with Served(web.app, limits=limits()) as served:
            caller = await served.call()
            stream = Stream(caller)
            await stream.begin()
            await stream.next()
            await caller.hang_up()
            await until(lambda: web.app.sidecar.feed.watchers == 0)

    on_loop(loop, scenario())
