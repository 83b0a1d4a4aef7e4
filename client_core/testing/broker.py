"""One fake broker: a listener on loopback, its connections, and their requests.

    frame -> header -> is the version supported? -> the API's own module -> a test's reaction ->
    frame

An unreadable or unsupported request ends the connection, as in Kafka. Requests of one connection are answered
one after another. Runs on the cluster's loop; holds the cluster's lock only while it uses the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import ProtocolError
from client_core.protocol.header import decode_request_header, encode_response_header
from client_core.testing.loop_thread import stop_accepting
from client_core.testing.sasl import SaslSession

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from client_core.protocol.header import RequestHeader
    from client_core.testing.reactions import Reaction, Sending

_log = logging.getLogger(__name__)

_SIZE: Final = struct.Struct(">i")
#: socket.request.max.bytes, Kafka's default.
_MAX_REQUEST_BYTES: Final = 104_857_600


class Answer(NamedTuple):
    """The response's body (None: no response), and its version."""

    body: bytes | None
    version: int
    #: Whether the connection ends after it: the client was refused.
    is_last: bool = False


class EndConnectionError(Exception):
    """The broker ends the connection in place of a response."""


class FakeBroker:
    """A broker's listener and connections. Runs on the cluster's loop; any thread may read `connections`."""

    def __init__(
        self,
        broker_id: int,
        react: Callable[[int, RequestHeader], Reaction],
        handle: Callable[[int, RequestHeader, bytes, Reaction, SaslSession], Answer],
    ) -> None:
        """`react` returns the test's reaction to a request; `handle` records and applies the request."""
        self.id = broker_id
        self._react = react
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    @property
    def is_listening(self) -> bool:
        return self._server is not None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._connected, host, port, ssl=tls)

    async def stop(self, before_disconnects: Callable[[], None] = lambda: None) -> None:
        """Ends the listener and every connection, as when a process ends.

        `before_disconnects` runs when no request can arrive any more, and before any client sees its end.
        """
        server, self._server = self._server, None
        if server is not None:
            # Clients accepted last see the disconnect.
            await stop_accepting(server)
        before_disconnects()
        await self.drop_connections()

    async def drop_connections(self) -> None:
        """Ends every connection; the listener stays open."""
        tasks = list(self._connections.values())
        for writer, task in list(self._connections.items()):
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[writer] = task
        try:
            if self.is_listening:  # false if accepted just before the broker stopped
                await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError, EndConnectionError) as error:  # includes TLS errors
            _log.debug("a connection to fake broker %d ended: %r", self.id, error)
        except ProtocolError as error:
            _log.info("fake broker %d ends a connection: %s", self.id, error)
        except asyncio.CancelledError:
            _log.debug("fake broker %d was stopped", self.id)
        finally:
            del self._connections[writer]
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers requests until the connection ends."""
        session = SaslSession()
        kept: list[bytes] = []  # responses to send after the next one
        while True:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            if not 0 <= size <= _MAX_REQUEST_BYTES:
                raise EndConnectionError
            payload = await reader.readexactly(size)
            header = decode_request_header(payload)
            reaction = self._react(self.id, header)
            answer = self._handle(self.id, header, payload, reaction, session)
            await reaction.pause()
            if answer.body is None:
                continue
            head = encode_response_header(header.api, answer.version, header.correlation_id)
            frame = _SIZE.pack(len(head) + len(answer.body)) + head + answer.body
            sending = reaction.shape(frame)
            if sending.then_keep:
                kept.extend(sending.pieces)
                continue
            await self._send(reader, writer, replace(sending, pieces=(*sending.pieces, *kept)))
            kept.clear()
            if answer.is_last:
                raise EndConnectionError

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sending: Sending
    ) -> None:
        for piece in sending.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)  # let the loop run, so that each piece is a system call
        if sending.then_close:
            raise EndConnectionError
        if sending.then_silent:
            while await reader.read(65_536):
                pass
            raise EndConnectionError
