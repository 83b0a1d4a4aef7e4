"""A TCP proxy on loopback whose target a test can change: an address that lives on while brokers move.

    with TcpProxy(cluster.address(1)) as proxy:        # bootstrap.servers = proxy.bootstrap_servers
        cluster.move_all_brokers()
        proxy.retarget(cluster.address(1))

It passes bytes both ways and knows no Kafka. Existing connections keep their target until `sever`; a target
that refuses is told on by closing the client's connection. Any thread may steer; it runs on a loop in a
thread of its own. What passes bytes badly is `faulty_proxy.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Final, Self

from client_core.testing.free_ports import free_ports
from client_core.testing.loop_thread import LoopThread, stop_accepting

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

_HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 65_536
_BACKLOG: Final = 256

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TcpProxy:
    """Listens from its creation on. `accepted` and `open_connections` may be read by any thread."""

    def __init__(self, target: tuple[str, int], *, port: int | None = None) -> None:
        """Listens at this port, or at a free one."""
        self._target = target
        self.address: tuple[str, int] = (_HOST, free_ports(1)[0] if port is None else port)
        self.accepted = 0
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._loop = LoopThread("tcp-proxy")
        self._loop.run(self._listen())

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

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

    async def _relay(self, client: Streams, target: Streams) -> None:
        """Passes bytes between the two until both have ended, or one is broken: OSError."""
        await asyncio.gather(_pass(client[0], target[1]), _pass(target[0], client[1]))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes bytes on until their source ends, and then the end."""
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
