"""A listening socket of the API: accepts, does the TLS handshake, starts HTTP.

Connections are accepted here, not by the loop, which does not limit them: a listener without room leaves new
ones in the kernel's backlog. It also sees connections before their TLS handshake is done. So these have
limits of number and time like any other, and each uses the certificates in force at that moment.

    plain HTTP at a TLS port   gets an answer in plain HTTP: the first byte reveals it
    a failed handshake         is not logged above DEBUG: anyone who reaches the port could fill the log
    no more files              is logged, and tried again after a moment

Called by `api_server.py`, on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from service.listener.connections import Connections
from service.listener.http_exchange import spelled
from service.listener.http_protocol import MAX_HEAD_BYTES, ApiProtocol
from service.wire.errors import Problem

_log: Final = logging.getLogger(__name__)

#: Connections accepted in one turn of the loop, so that open ones get their turn.
_ACCEPTS_PER_TURN: Final = 64

#: A listener without room checks again after this: some connection may be idle by then.
_LOOK_AGAIN_S: Final = 1.0

#: The loop's limit for closing a TLS connection, slow last answer included. Never reached: the connection
#: itself notices when nothing goes out (`http_protocol.py`).
_GOODBYE_S: Final = 86_400.0

#: The first byte of a TLS handshake record. Source: RFC 8446 section 5.1.
_HANDSHAKE: Final = b"\x16"

_SPEAKS_TLS: Final = Problem(
    400, "this port speaks TLS (api_tls_certificate_file); use https://", written="no"
)


class Listener:
    """One listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        name: str,
        *,
        context: Callable[[], ssl.SSLContext] | None = None,
        close: Callable[[], None] | None = None,
        receive_buffer_bytes: int = 0,
    ) -> None:
        """`name` is its name in logs; `context` returns the TLS context in force, None for plain HTTP.

        `receive_buffer_bytes` is the kernel's buffer for what a caller sends; 0 if the kernel decides.
        """
        self.name: Final = name
        self._socket = listening
        self._context = context
        self._close = listening.close if close is None else close
        self._receive_buffer_bytes = receive_buffer_bytes
        #: Accepted, with their tasks, which have not begun yet.
        self._new: dict[socket.socket, asyncio.Task[None]] = {}
        self._arriving: set[asyncio.Task[None]] = set()
        self._is_accepting = self._is_closed = False
        #: The last accept error, until an accept works.
        self._fault: str | None = None

    def open(self, make_protocol: Callable[[], ApiProtocol], connections: Connections) -> None:
        """Starts to accept."""
        self._loop = asyncio.get_running_loop()
        self._make_protocol = make_protocol
        self._connections = connections
        self._socket.setblocking(False)
        if self._socket.family != socket.AF_UNIX:
            # Connections inherit it; asyncio sets it only on those that it accepts itself.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer_bytes:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        self._go_on()

    def close(self) -> None:
        """Stops accepting and cancels handshakes; served connections continue. Idempotent."""
        self._is_closed = True
        self._pause()
        while self._new:  # a task that never began does not clean up either
            connection, task = self._new.popitem()
            task.cancel()
            connection.close()
            self._connections.over()
        if self._context is not None:
            for task in self._arriving:
                task.cancel()
        self._close()

    def __repr__(self) -> str:
        return f"<Listener {self.name}>"

    # -- accepting -------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        if not self._connections.has_room():
            self._connections.make_room(self._loop.time())
            self._wait_for_room()
            return
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._connections.has_room():
                return  # called again, if another one waits
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                self._complain(e)
                self._wait_for_room()
                return
            self._fault = None
            connection.setblocking(False)
            self._connections.accepted()
            task = self._loop.create_task(self._welcome(connection))
            self._new[connection] = task
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    def _complain(self, error: OSError) -> None:
        """Logs a new error once: the listener retries each second."""
        if error.strerror != self._fault:
            self._fault = error.strerror
            _log.error("%s: can't accept a connection: %s", self.name, error.strerror)

    def _wait_for_room(self) -> None:
        self._pause()
        self._connections.when_room(self._go_on)
        self._loop.call_later(_LOOK_AGAIN_S, self._go_on)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._socket)

    def _go_on(self) -> None:
        if not self._is_accepting and self._socket.fileno() != -1:
            self._is_accepting = True
            self._loop.add_reader(self._socket, self._accept)

    # -- arriving --------------------------------------------------------------------------------------------

    async def _welcome(self, connection: socket.socket) -> None:
        del self._new[connection]
        protocol = self._make_protocol()
        try:
            if self._context is None:
                # Never cancelled: uvloop would close the socket, without a word to its protocol.
                await self._loop.connect_accepted_socket(lambda: protocol, connection)
                if self._is_closed:
                    protocol.shutdown()
            else:
                await self._shake_hands(protocol, connection, self._context)
        except OSError as e:  # includes ssl.SSLError and TimeoutError
            self._connections.ended("handshake")
            _log.debug("%s: no handshake: %s", self.name, e)
        finally:
            if not protocol.is_made:  # otherwise the protocol reports its own end
                self._connections.over()

    async def _shake_hands(
        self, protocol: ApiProtocol, connection: socket.socket, context: Callable[[], ssl.SSLContext]
    ) -> None:
        limits = self._connections.limits
        async with asyncio.timeout(limits.head_s):
            try:
                first = await self._first_byte(connection)
            except BaseException:
                connection.close()  # later the transport owns it
                raise
            if first != _HANDSHAKE:
                self._connections.ended("handshake")
                _turn_away(connection, first)
                return
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=context(),
                ssl_handshake_timeout=limits.head_s,
                ssl_shutdown_timeout=_GOODBYE_S,
            )

    async def _first_byte(self, connection: socket.socket) -> bytes:
        """Peeks at the caller's first byte; empty if it has left."""
        while True:
            readable = asyncio.Event()
            self._loop.add_reader(connection, readable.set)
            try:
                await readable.wait()
            finally:
                self._loop.remove_reader(connection)
            with contextlib.suppress(BlockingIOError):  # spurious wakeup
                return connection.recv(1, socket.MSG_PEEK)


def _turn_away(connection: socket.socket, first: bytes) -> None:
    """Closes a connection that starts no handshake; answers first if it sends HTTP."""
    with connection, contextlib.suppress(OSError):  # it is closing anyway
        if first.isalpha():
            # Closing with unread input would lose the answer.
            connection.recv(MAX_HEAD_BYTES)
            connection.send(spelled(_SPEAKS_TLS))
            connection.shutdown(socket.SHUT_WR)
