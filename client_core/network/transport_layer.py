"""Bytes over one TCP connection; maps the system's errors to ours.

`TransportLayer` is the interface. `PlaintextTransportLayer` is the socket itself; TLS has the same methods.
Callers see no OSError. An operation that is not possible now returns None or 0; a lost connection raises
DisconnectError with one sentence. Nothing here blocks.

Called by KafkaChannel on the I/O thread. Source: TransportLayer, PlaintextTransportLayer, Kafka 4.3.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from client_core import forks
from client_core.errors import DisconnectError

if TYPE_CHECKING:
    from collections.abc import Sequence

Piece = bytes | memoryview

_PEER_CLOSED: Final = "the peer closed the connection"

_SENTENCES: Final[dict[int | None, str]] = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "the peer reset the connection",
    errno.EPIPE: _PEER_CLOSED,
    errno.ETIMEDOUT: "connection timed out",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network is unreachable",
}

#: Results of a non-blocking connect that is in progress.
_BEGUN: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR})


class TransportLayer(Protocol):
    """One connection's bytes. Its I/O raises DisconnectError once the connection is lost."""

    @property
    def remote_address(self) -> str:
        """`host:port` of the peer, for people."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the layer above may send: connected, and the handshake done."""
        ...

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether a read returns bytes without the network (TLS reads ahead); no select shows it (SEL-05)."""
        ...

    @property
    def has_pending_writes(self) -> bool:
        """Whether accepted bytes, or those of a handshake, still wait for the system to take them."""
        ...

    def fileno(self) -> int: ...

    def finish_connect(self) -> bool:
        """Returns whether the connection is established now. Raises DisconnectError when it failed."""
        ...

    def handshake(self) -> None:
        """Continues the handshake as far as the bytes allow; does nothing in plaintext.

        Raises SslAuthenticationError when the peer's certificate or protocol is unacceptable.
        """
        ...

    def read(self, max_bytes: int) -> bytes | None:
        """Returns at least one byte; None when there are none now. Raises at the end of the stream."""
        ...

    def write(self, pieces: Sequence[Piece]) -> int:
        """Sends pending writes, then the pieces as far as possible; returns the pieces' bytes taken."""
        ...

    def close(self) -> None:
        """Frees the socket, after close_notify in TLS if the socket takes it at once. Never raises."""
        ...


class PlaintextTransportLayer:
    """A non-blocking socket, which it owns."""

    __slots__ = ("_socket", "ready", "remote_address")

    # There is no buffer between the layer above and the system.
    has_bytes_buffered = False
    has_pending_writes = False

    def __init__(self, connection: socket.socket, remote_address: str) -> None:
        self._socket = connection
        self.remote_address = remote_address
        self.ready = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def finish_connect(self) -> bool:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise DisconnectError(_sentence(OSError(code, os.strerror(code))))
        try:
            peer = self._socket.getpeername()
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                return False
            raise DisconnectError(_sentence(error)) from error
        if peer == self._socket.getsockname():
            # The system may give a connecting socket the port that it connects to, if no process listens on
            # that ephemeral port (TCP's simultaneous open). It would echo every request.
            raise DisconnectError(
                "connection refused: the socket connected to itself, no process listens on that port"
            )
        self.ready = True
        return True

    def handshake(self) -> None:
        """Plaintext has none."""

    def read(self, max_bytes: int) -> bytes | None:
        try:
            data = self._socket.recv(max_bytes)
        except BlockingIOError:
            return None
        except OSError as error:
            raise DisconnectError(_sentence(error)) from error
        if not data:
            raise DisconnectError(_PEER_CLOSED)
        return data

    def write(self, pieces: Sequence[Piece]) -> int:
        try:
            return self._socket.sendmsg(pieces)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise DisconnectError(_sentence(error)) from error

    def close(self) -> None:
        self.ready = False
        with suppress(OSError):  # some systems report a reset here; the descriptor is free anyway
            self._socket.close()


def open_socket(
    address: tuple[str, int], send_buffer_bytes: int, receive_buffer_bytes: int
) -> tuple[socket.socket, bool]:
    """Returns a non-blocking socket connecting to a numeric IP address, and whether it is connected.

    A negative buffer size keeps the system's default (SEL-01). IPv4 and IPv6. Raises OSError when the
    system refuses at once, also for a host name, because resolving blocks.
    """
    host, port = address
    # As bytes: for a str Python loads its tables of international names.
    ((family, kind, protocol, _, sockaddr),) = socket.getaddrinfo(
        host.encode(), port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST
    )
    connection = socket.socket(family, kind, protocol)
    forks.close_in_child(connection)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer_bytes >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        code = connection.connect_ex(sockaddr)
        if code and code not in _BEGUN:
            raise OSError(code, os.strerror(code))
    except BaseException:
        connection.close()
        raise
    return connection, code == 0


def format_address(address: tuple[str, int]) -> str:
    """Returns `host:port`, an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _sentence(error: OSError) -> str:
    return _SENTENCES.get(error.errno) or (error.strerror or str(error)).lower()
