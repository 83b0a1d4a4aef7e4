"""Peers on loopback for tests of the network: with Kafka's framing, with other bytes, or silent.

`TcpPeer` only listens: the test accepts and plays the server itself, step by step, in its own thread.
`ScriptedPeer` plays one function for each connection, each on a thread of its own; the functions of this file
are such scripts. No sleeps: everything waits for bytes or for the end of a connection. `close` frees all
sockets and joins all threads.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: How long a peer waits for the client before the waiting itself is the failure.
PATIENCE_S: Final = patient(30.0)

_SIZE: Final = struct.Struct(">i")

#: What an HTTP server says to bytes that are no HTTP.
HTTP_ANSWER: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"

#: What a TLS listener says to bytes that are no TLS: alert, TLS 1.2, two bytes long: fatal,
#: unexpected_message.
TLS_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x0a"

#: The largest size there is, two gigabytes less one, and ten bytes of it.
HUGE_SIZE: Final = b"\x7f\xff\xff\xff" + b"ten bytes!"


def frame(payload: bytes) -> bytes:
    """The payload behind its size."""
    return _SIZE.pack(len(payload)) + payload


class TcpPeer:
    """A listening socket; connections wait in its backlog until the test accepts them."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=64)
        self._listener.settimeout(PATIENCE_S)
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        bound = self._listener.getsockname()
        self.address: tuple[str, int] = (str(bound[0]), int(bound[1]))

    def accept(self) -> socket.socket:
        """The next connection; the peer closes it in the end, if the test does not."""
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE_S)
        with self._lock:
            self._connections.append(connection)
        return connection

    def close_connections(self) -> None:
        """Ends every connection: what was sent still arrives, then the end of the stream."""
        for connection in self._shut_down():
            connection.close()

    def _shut_down(self) -> list[socket.socket]:
        with self._lock:
            ending, self._connections = self._connections, []
        for connection in ending:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return ending

    def close(self) -> None:
        self._listener.close()
        self.close_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ScriptedPeer(TcpPeer):
    """Plays `script(connection)` for each connection; the connection ends when the script returns."""

    def __init__(self, script: Callable[[socket.socket], None], host: str = "127.0.0.1") -> None:
        super().__init__(host)
        self._script = script
        self._is_closing = False
        self._threads = [threading.Thread(target=self._serve, name="tcp-peer", daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        self._listener.settimeout(None)
        while True:
            try:
                connection = self.accept()
            except OSError:
                return
            if self._is_closing:
                connection.close()
                return
            thread = threading.Thread(target=self._play, args=(connection,), name="tcp-peer", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:  # the client, or `close`, may end it at any point of the script
            self._script(connection)

    def close_connections(self) -> None:
        # The threads close: a descriptor freed here may be another connection's when a script reads it.
        self._shut_down()

    def close(self) -> None:
        self._is_closing = True
        with suppress(OSError):  # closing a listener does not end an accept; a connection does
            socket.create_connection(self.address, PATIENCE_S).close()
        self._threads[0].join(PATIENCE_S)
        super().close()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"{thread.name} does not end"


# -- scripts -------------------------------------------------------------------------------------------------


def echo(connection: socket.socket) -> None:
    """Sends every frame back, until the client ends."""
    while (payload := receive_frame(connection)) is not None:
        connection.sendall(frame(payload))


def stay_silent(connection: socket.socket) -> None:
    """Reads and never answers."""
    while connection.recv(65536):
        pass


def close_at_once(connection: socket.socket) -> None:
    """Ends the connection without a word."""


def close_after_first_frame(connection: socket.socket) -> None:
    """Ends the connection instead of an answer."""
    receive_frame(connection)


def say(*pieces: bytes) -> Callable[[socket.socket], None]:
    """A script that waits for the client's first bytes, sends literal ones, a system call each, and ends."""

    def script(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.recv(65536)
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        stay_silent(connection)

    return script


def speak_http(connection: socket.socket) -> None:
    """Answers whatever comes as an HTTP server would."""
    say(HTTP_ANSWER)(connection)


def speak_tls(connection: socket.socket) -> None:
    """Answers plaintext as a TLS listener would."""
    say(TLS_ALERT)(connection)


def promise_two_gigabytes(connection: socket.socket) -> None:
    """Announces the largest frame there is, sends ten bytes of it, and waits for the client to end."""
    connection.recv(65536)
    connection.sendall(HUGE_SIZE)
    stay_silent(connection)


def receive_frame(connection: socket.socket) -> bytes | None:
    """The next frame without its size; None at the end of the stream."""
    size = receive_exactly(connection, _SIZE.size)
    if size is None:
        return None
    return receive_exactly(connection, _SIZE.unpack(size)[0])


def receive_exactly(connection: socket.socket, count: int) -> bytes | None:
    """So many bytes; None if the stream ends before."""
    received = bytearray()
    while len(received) < count:
        data = connection.recv(min(count - len(received), 65536))
        if not data:
            return None
        received += data
    return bytes(received)


def in_pieces(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Cuts bytes into pieces of the given sizes, the rest last."""
    pieces = []
    at = 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    pieces.append(data[at:])
    return [piece for piece in pieces if piece]
