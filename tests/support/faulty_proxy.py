"""A TCP proxy on loopback that passes bytes late, slowly, cut, with losses, or not at all, as a test wants.

    with FaultyProxy(cluster.proxied_target(1), port=port) as proxy:
        proxy.delay(200, jitter_ms=50, seed=7)
        proxy.reset_after_bytes(1_000)        # on top of the delay
        proxy.heal()                          # back to plain passing
        proxy.retarget(cluster.address(2))    # its address lives on while brokers move

It knows no Kafka. Existing connections keep their target until `sever`. If the target refuses, the client's
connection is closed.

Each call takes effect at once, for existing and for new connections, and in addition to earlier calls. The
same call with other figures replaces the earlier one. `heal` ends a connection that lost bytes by `swallow`;
one that was late or stalled goes on with all of its bytes. The ways of harming a stream are in
`harmed_flow.py`.

Requests are what the client sends, answers what the target sends. Any thread may steer, one at a time; it
runs on a loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from client_core.testing.free_ports import free_ports
from client_core.testing.loop_thread import LoopThread, stop_accepting
from tests.support.harmed_flow import Break, Delay, Finish, HarmedFlow, Harms, Pass, ResetAfter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.harmed_flow import Direction

_HOST: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 65_536
_BACKLOG: Final = 256
#: How many bytes one direction of a connection may hold before the proxy stops reading, as in a router.
_MOST_HELD_BYTES: Final = 1_048_576
#: struct linger: on, for no time. Closing then sends a RST instead of a FIN.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Tap(Protocol):
    """Hears one connection."""

    def request_bytes(self, data: bytes) -> None: ...
    def answer_bytes(self, data: bytes) -> None: ...


class _NoTap:
    def request_bytes(self, data: bytes) -> None:
        """Nobody listens."""

    answer_bytes = request_bytes


_NO_TAP: Final = _NoTap()


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class FaultyProxy:
    """Passes plainly by default. Listens from its creation on, at this port or at a free one.

    Its counters may be read by any thread.
    """

    def __init__(self, target: tuple[str, int], *, port: int | None = None, host: str = _HOST) -> None:
        self._target = target
        self.address: tuple[str, int] = (host, free_ports(1)[0] if port is None else port)
        self.accepted = 0
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._harms = Harms()
        self._ways: dict[asyncio.Task[None], tuple[_Way, _Way]] = {}
        self._relayed = 0
        #: Gives a listener for each new connection, which hears all bytes as they come; it runs on the loop.
        self.tap: Callable[[], Tap] | None = None
        #: Connections that were ended by a reset here; not those that a peer reset.
        self.resets = 0
        #: What was passed on, either way.
        self.request_bytes = 0
        self.answer_bytes = 0
        #: What was swallowed, both ways together.
        self.swallowed_bytes = 0
        self._loop = LoopThread("tcp-proxy")
        self._loop.run(self._listen())

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    @property
    def held_bytes(self) -> int:
        """The bytes that have come and were neither passed on nor dropped yet."""
        return self._loop.run(self._sum_of_held())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- steering --------------------------------------------------------------------------------------------

    def retarget(self, target: tuple[str, int]) -> None:
        """New connections go to another target; existing ones keep theirs."""
        self._target = target

    def sever(self) -> None:
        """Ends every connection; new ones are accepted."""
        self._loop.run(self._end_connections())

    def refuse(self) -> None:
        """Stops listening and ends every connection: new ones are refused."""
        self._loop.run(self._stop())

    def listen(self) -> None:
        """Listens again, at the same address."""
        self._loop.run(self._listen())

    def close(self) -> None:
        """Ends everything. Idempotent."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self.refuse()
        self._loop.close()

    def heal(self) -> None:
        """Listens, and passes plainly again; connections that have lost bytes end, all others go on."""
        self._loop.run(self._heal())

    def reset(self) -> None:
        """Ends every connection by a RST to both sides, now; new ones are accepted."""
        self._loop.run(self._reset_all())

    def reset_after_bytes(
        self, byte_count: int, *, direction: Direction = "answers", count_from_s: float = 0
    ) -> None:
        """Resets each connection in the middle of a frame, after so many more bytes, and each new one too."""
        self._change(reset_after=ResetAfter(byte_count, direction, count_from_s))

    def delay(self, latency_ms: float, *, jitter_ms: float = 0, seed: int = 0) -> None:
        """Passes everything on so much later, either way; in order, with a jitter that the seed repeats."""
        self._change(delay=Delay(latency_ms, jitter_ms, seed))

    def limit(self, bytes_per_second: int) -> None:
        """Passes no more than that in a second, each way, of each connection."""
        self._change(bytes_per_second=bytes_per_second)

    def swallow(self, *, requests: bool = False, answers: bool = False) -> None:
        """Half-open: bytes of these directions vanish, and so does their end; connections stay."""
        wanted: set[Direction] = set()
        if requests:
            wanted.add("requests")
        if answers:
            wanted.add("answers")
        self._change(swallowed=frozenset(wanted))

    def stall(self) -> None:
        """Accepts connections, passes nothing, and keeps all of it for `heal`."""
        self._change(is_stalled=True)

    def dribble(self, bytes_per_packet: int = 1) -> None:
        """Passes everything in packets of that size."""
        self._change(bytes_per_packet=bytes_per_packet)

    def blackhole(self) -> None:
        """The kernel accepts new connections, but the proxy does not until `heal`.

        Existing connections go on.
        """
        self._loop.run(self._stop_accepting())

    def _change(self, **changed: object) -> None:
        self._loop.run(self._apply(replace(self._harms, **changed)))  # type: ignore[arg-type]

    # -- on the loop -----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(self.address, backlog=_BACKLOG)
        if self._server is None:
            # A copy: the server closes what it was given, and the kernel may have to go on listening.
            self._server = await asyncio.start_server(self._connected, sock=self._listener.dup())

    async def _stop_accepting(self) -> None:
        """From now on connections wait in the kernel's backlog."""
        server, self._server = self._server, None
        if server is not None:
            await stop_accepting(server)

    async def _stop(self) -> None:
        listener, self._listener = self._listener, None
        await self._stop_accepting()
        if listener is not None:
            listener.close()
        await self._end_connections()

    async def _end_connections(self, tasks: Iterable[asyncio.Task[None]] | None = None) -> None:
        """Ends these connections, or all of them."""
        ending = {task: self._connections[task] for task in (self._connections if tasks is None else tasks)}
        for task, writers in ending.items():
            for writer in writers:
                writer.transport.abort()
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._listener is None:  # it was taken out of the backlog as the listening ended
            writer.transport.abort()
            return
        self.accepted += 1
        self._connections[task] = (writer,)
        writers = [writer]
        try:
            # The target may refuse, one side reset, and the test sever.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                target_reader, target_writer = await asyncio.open_connection(*self._target)
                writers.append(target_writer)
                self._connections[task] = tuple(writers)
                await self._relay((reader, writer), (target_reader, target_writer))
        finally:
            del self._connections[task]
            for each in writers:
                each.close()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await each.wait_closed()

    async def _apply(self, harms: Harms) -> None:
        self._harms = harms
        for way in self._all_ways():
            way.changed.set()

    async def _heal(self) -> None:
        broken = [task for task, ways in self._ways.items() if any(way.flow.is_broken for way in ways)]
        await self._end_connections(broken)
        await self._apply(Harms())
        await self._listen()

    async def _sum_of_held(self) -> int:
        return sum(way.flow.held_bytes for way in self._all_ways())

    async def _reset_all(self) -> None:
        for writers in self._connections.values():
            self.resets += 1
            for writer in writers:
                _send_no_fin(writer)
        await self._end_connections()

    def _all_ways(self) -> list[_Way]:
        return [way for ways in self._ways.values() for way in ways]

    async def _relay(self, client: _Streams, target: _Streams) -> None:
        """Passes bytes between the two until both have ended, or one is broken."""
        task = asyncio.current_task()
        assert task is not None
        self._relayed += 1
        tap = self.tap() if self.tap is not None else _NO_TAP
        ways = (
            _Way(HarmedFlow("requests", self._relayed), client[0], target[1], tap.request_bytes),
            _Way(HarmedFlow("answers", self._relayed), target[0], client[1], tap.answer_bytes),
        )
        self._ways[task] = ways
        try:
            async with asyncio.TaskGroup() as both:
                for way in ways:
                    both.create_task(self._pull(way))
                    both.create_task(self._push(way))
        except* (OSError, _Broken):
            for way in ways:
                _send_no_fin(way.sink)
        finally:
            del self._ways[task]

    async def _pull(self, way: _Way) -> None:
        """Takes what comes, until its end."""
        by_reset = False
        try:
            while data := await way.source.read(_CHUNK_BYTES):
                way.hear(data)
                way.flow.receive(data, self._harms, _now_s())
                way.changed.set()
                while way.flow.held_bytes >= _MOST_HELD_BYTES:
                    way.has_room.clear()
                    await way.has_room.wait()
        except OSError:
            by_reset = True
        way.flow.end(by_reset=by_reset)
        way.changed.set()

    async def _push(self, way: _Way) -> None:
        """Passes on what the harms let through, until the end; _Broken where they end it."""
        while True:
            way.changed.clear()
            held_before, swallowed_before = way.flow.held_bytes, way.flow.swallowed_bytes
            step = way.flow.next_step(self._harms, _now_s())
            self.swallowed_bytes += way.flow.swallowed_bytes - swallowed_before
            if way.flow.held_bytes < held_before:
                way.has_room.set()
            if isinstance(step, Pass):
                way.sink.write(step.data)
                await way.sink.drain()
                self._count(way.flow.direction, len(step.data))
                if step.alone:
                    await asyncio.sleep(0)
            elif isinstance(step, Finish):
                if way.sink.can_write_eof():
                    way.sink.write_eof()
                return
            elif isinstance(step, Break):
                self.resets += step.by_harm
                raise _Broken
            else:
                # Not wait_for: before Python 3.12 it may swallow a cancellation, and this would go on.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(step.seconds):
                        await way.changed.wait()

    def _count(self, direction: Direction, size: int) -> None:
        if direction == "requests":
            self.request_bytes += size
        else:
            self.answer_bytes += size


class _Broken(Exception):
    """A connection is at its end by a harm, or by a peer's reset."""


class _Way:
    """One direction of a connection with its streams; the loop's thread."""

    def __init__(
        self,
        flow: HarmedFlow,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        hear: Callable[[bytes], None],
    ) -> None:
        self.flow = flow
        self.hear = hear
        self.source = source
        self.sink = sink
        self.changed = asyncio.Event()
        self.has_room = asyncio.Event()


def _send_no_fin(writer: asyncio.StreamWriter) -> None:
    """Has a connection end by a RST, which also forgets what was not sent yet."""
    with contextlib.suppress(OSError):  # it is closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
