"""Bytes over one TCP connection; maps the system's errors to ours.

`TransportLayer` is the interface. `PlaintextTransportLayer` is the socket itself; TLS has the same methods.
Callers see no OSError: what is not possible now is None or 0, a lost connection is DisconnectError with one
sentence. Nothing here blocks.

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

#: What a non-blocking connect answers when it has only begun.
_BEGUN: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR})


class TransportLayer(Protocol):
    """One connection's bytes. What does I/O raises DisconnectError once the connection is gone."""

    @property
    def remote_address(self) -> str:
        """`host:port` of the peer, for people."""
        ...

    @property
    def ready(self) -> bool:
        """Whether bytes of the layer above may flow: connected, and the handshake done."""
        ...

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether a read brings bytes without the network (TLS reads ahead); no select tells (SEL-05)."""
        ...

    @property
    def has_pending_writes(self) -> bool:
        """Whether bytes that were taken, or made by a handshake, still wait for the system to take them."""
        ...

    def fileno(self) -> int: ...

    def finish_connect(self) -> bool:
        """Whether the connection is established now. Raises DisconnectError when it could not be made."""
        ...

    def handshake(self) -> None:
        """Goes on with the handshake as far as the bytes allow; nothing in plaintext.

        Raises SslAuthenticationError when the peer's certificate or protocol won't do.
        """
        ...

    def read(self, max_bytes: int) -> bytes | None:
        """Some bytes, at least one; None when there are none now. The end of the stream raises."""
        ...

    def write(self, pieces: Sequence[Piece]) -> int:
        """Sends pending writes, then what is taken of the pieces; returns how much, 0 when nothing is."""
        ...

    def close(self) -> None:
        """Frees the socket. Says goodbye where the protocol has one and the socket lets it; never raises."""
        ...


class PlaintextTransportLayer:
    """A non-blocking socket, which it owns."""

    __slots__ = ("_connected", "_remote_address", "_socket")

    # Between the layer above and the system there is nothing.
    has_bytes_buffered = False
    has_pending_writes = False

    def __init__(self, connection: socket.socket, remote_address: str) -> None:
        self._socket = connection
        self._remote_address = remote_address
        self._connected = False

    @property
    def remote_address(self) -> str:
        return self._remote_address

    @property
    def ready(self) -> bool:
        return self._connected

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
            # A port of the ephemeral range where nobody listens can be given to the very socket that connects
            # to it (TCP's simultaneous open). It would answer every request with that request.
            raise DisconnectError(
                "connection refused: the socket connected to itself, no process listens on that port"
            )
        self._connected = True
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
        self._connected = False
        with suppress(OSError):  # some systems report a reset here; the descriptor is free all the same
            self._socket.close()


def open_socket(
    address: tuple[str, int], send_buffer_bytes: int, receive_buffer_bytes: int
) -> tuple[socket.socket, bool]:
    """A non-blocking socket that connects to a numeric IPv4 or IPv6 address, and whether it is connected at
    once.

    A negative buffer size leaves the system's own (SEL-01). Raises OSError when the system refuses at once,
    also when the address is a name: resolving blocks, and is not the network's business.
    """
    host, port = address
    ((family, kind, protocol, _, sockaddr),) = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST
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
    """`host:port`, an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _sentence(error: OSError) -> str:
    return _SENTENCES.get(error.errno) or (error.strerror or str(error)).lower()
