"""Peers that speak TLS: on loopback, and in memory.

`TlsPeer` is a ScriptedPeer behind TLS and records how each handshake ended. `TlsPipe` is the transport
below a client's TLS, with a TLS server at its far end: no socket, no thread. A test decides how many bytes
pass, and when the connection breaks. Its server runs whenever bytes come to it. `OpensslServer` is for
features that Python's ssl lacks.
"""

from __future__ import annotations

import queue
import shutil
import socket
import ssl
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from client_core.errors import DisconnectError
from tests.support.tcp_peers import PATIENCE_S, ScriptedPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.network.transport_layer import Piece
    from tests.support.certificates import Identity

TLS12: Final = "TLSv1.2"
TLS13: Final = "TLSv1.3"

_VERSIONS: Final = {TLS12: ssl.TLSVersion.TLSv1_2, TLS13: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(
    identity: Identity,
    *,
    client_auth: str = "none",
    trusts: str | None = None,
    protocols: Sequence[str] = (TLS12, TLS13),
    ciphers: str | None = None,
) -> ssl.SSLContext:
    """A broker's side. `client_auth` as in ssl.client.auth; `trusts` a PEM of authorities; `ciphers` as
    OpenSSL names them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(context, identity)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if trusts is not None:
        context.load_verify_locations(cadata=trusts)
    context.minimum_version = min(_VERSIONS[name] for name in protocols)
    context.maximum_version = max(_VERSIONS[name] for name in protocols)
    if ciphers is not None:
        context.set_ciphers(ciphers)
    return context


def show(context: ssl.SSLContext, identity: Identity) -> None:
    """All later handshakes with this context show this certificate."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(identity.chain + identity.key)
        file.flush()
        context.load_cert_chain(file.name)


class Handshake(NamedTuple):
    """How a handshake ended for the server."""

    error: OSError | None = None
    version: str | None = None
    cipher: str | None = None
    client_certificate: bytes | None = None  # DER


class TlsPeer(ScriptedPeer):
    """Plays `script(connection)` for each connection once its handshake is done."""

    def __init__(
        self, context: ssl.SSLContext, script: Callable[[socket.socket], None], host: str = "127.0.0.1"
    ) -> None:
        self._context = context
        self.server_names: list[str | None] = []  # that clients asked for (SNI), in their order
        context.sni_callback = self._note_server_name
        self._handshakes: queue.Queue[Handshake] = queue.Queue()
        super().__init__(script, host)

    def next_handshake(self) -> Handshake:
        """How the next handshake ended, in the order in which they did; waits for it."""
        return self._handshakes.get(timeout=PATIENCE_S)

    def _note_server_name(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        self.server_names.append(name)

    def accept(self) -> socket.socket:
        accepted, _ = self._listener.accept()
        connection = self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        connection.settimeout(PATIENCE_S)
        with self._lock:
            self._connections.append(connection)
        return connection

    def _shut_down(self) -> list[socket.socket]:
        with self._lock:
            ending, self._connections = self._connections, []
        for connection in ending:
            with suppress(OSError):  # not SSLSocket's own, which forgets TLS under the feet of the script
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        return ending

    def _play(self, connection: socket.socket) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        with suppress(OSError), connection:
            try:
                connection.do_handshake()
            except OSError as error:
                self._handshakes.put(Handshake(error))
                # A connection that is closed with bytes unread is reset, which may overtake the alert.
                socket.socket.shutdown(connection, socket.SHUT_WR)
                while socket.socket.recv(connection, 65536):
                    continue
                return
            self._handshakes.put(
                Handshake(
                    None,
                    connection.version(),
                    (connection.cipher() or ("",))[0],
                    connection.getpeercert(binary_form=True),
                )
            )
            self._script(connection)


def say_goodbye(connection: socket.socket) -> None:
    """A script that ends the connection with close_notify."""
    assert isinstance(connection, ssl.SSLSocket)
    with suppress(OSError):
        connection.unwrap()


class TlsPipe:
    """A transport layer with a TLS server behind it. The first half is the client's, the rest the test's."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.takes: list[int] = []  # how many bytes each write takes; then all of them
        self.gives: list[int] = []  # how many bytes each read gives at most; then what was asked for
        self.breaks_at_read: int | None = None  # which read, or write, finds the connection broken; from 1
        self.breaks_at_write: int | None = None
        self.is_holding = False  # the server's bytes stay with it
        self.reads = 0
        self.writes: list[int] = []  # how many bytes each write offered
        self.asked: list[int] = []  # how many bytes each read asked for
        self.is_closed = False
        self.to_client = bytearray()  # on the wire
        self.received = bytearray()  # by the server, decrypted
        self.error: ssl.SSLError | None = None  # the server's
        self.has_goodbye = False  # the client has sent close_notify
        self._ended: str | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._server = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_connected = False
        self._is_shaken = False

    # -- TransportLayer --------------------------------------------------------------------------------------

    @property
    def remote_address(self) -> str:
        return "10.0.0.1:9093"

    @property
    def ready(self) -> bool:
        return self._is_connected

    @property
    def has_bytes_buffered(self) -> bool:
        return False

    @property
    def has_pending_writes(self) -> bool:
        return False

    def fileno(self) -> int:
        return 99

    def finish_connect(self) -> bool:
        self._is_connected = True
        return True

    def handshake(self) -> None:
        """There is none below TLS."""

    def read(self, max_bytes: int) -> bytes | None:
        self.reads += 1
        self.asked.append(max_bytes)
        if self.reads == self.breaks_at_read:
            raise DisconnectError("the peer reset the connection")
        most = self.gives.pop(0) if self.gives else max_bytes
        data = bytes(self.to_client[: min(most, max_bytes)])
        del self.to_client[: len(data)]
        if data:
            return data
        if self._ended is not None:
            raise DisconnectError(self._ended)
        return None

    def write(self, pieces: Sequence[Piece]) -> int:
        data = b"".join(pieces)
        self.writes.append(len(data))
        if len(self.writes) == self.breaks_at_write or self._ended is not None:
            raise DisconnectError("the peer closed the connection")
        taken = data[: self.takes.pop(0)] if self.takes else data
        self._incoming.write(taken)
        self.serve()
        return len(taken)

    def close(self) -> None:
        self.is_closed = True

    # -- the server's side -----------------------------------------------------------------------------------

    @property
    def client_certificate(self) -> bytes | None:
        """What the client has shown, DER."""
        return self._server.getpeercert(binary_form=True)

    def serve(self) -> None:
        """The server's turn: its handshake, and whatever has come."""
        try:
            if not self._is_shaken:
                self._server.do_handshake()
                self._is_shaken = True
            while data := self._server.read(65536):
                self.received += data
            self.has_goodbye = True
        except ssl.SSLWantReadError:
            """The rest is still to come."""
        except ssl.SSLError as error:
            self.error = error
        self.release()

    def send(self, data: bytes) -> None:
        """Encrypts bytes to the client, in as many records as it takes."""
        view = memoryview(data)
        while view:
            view = view[self._server.write(view) :]
        self.release()

    def say_goodbye(self) -> None:
        """close_notify."""
        with suppress(ssl.SSLError):  # the client's own is not waited for
            self._server.unwrap()
        self.release()

    def say(self, data: bytes) -> None:
        """Literal bytes, not encrypted."""
        self.to_client += data

    def end(self, reason: str = "the peer closed the connection") -> None:
        """What is on the wire still arrives, then the end."""
        self._ended = reason

    def release(self) -> None:
        """Puts on the wire what the server has to say, unless that is being held."""
        if not self.is_holding:
            self.to_client += self._outgoing.read()


class OpensslServer:
    """`openssl s_server`, for what Python's ssl can't be made to do; takes one connection.

    A line of one letter is an order to it (r: renegotiate, K: new keys), all else goes to the client; its
    output has what the client sends. It ends with the block, or a minute later by itself.
    """

    def __init__(self, identity: Identity, *options: str) -> None:
        command = self.command()
        assert command is not None
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(identity.key + identity.chain)
            file.flush()
            self._process = subprocess.Popen(
                [
                    *command,
                    "s_server",
                    "-accept",
                    "127.0.0.1:0",
                    "-naccept",
                    "1",
                    "-cert",
                    file.name,
                    *options,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
            )
            said = self.wait_for(b"ACCEPT 127.0.0.1:", b"\n")
        self.address = ("127.0.0.1", int(said.rpartition(b":")[2]))

    @staticmethod
    def command() -> Sequence[str] | None:
        """How it is called; None where it is not there."""
        timeout, openssl = shutil.which("timeout"), shutil.which("openssl")
        return None if timeout is None or openssl is None else (timeout, "60", openssl)

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def say(self, data: bytes) -> None:
        """Orders something, or sends something to the client."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    def wait_for(self, *texts: bytes) -> bytes:
        """Reads its output until these texts came, one behind the other; returns what was read."""
        assert self._process.stdout is not None
        said = b""
        at = 0
        for text in texts:
            while (found := said.find(text, at)) < 0:
                data = self._process.stdout.read(1)
                assert data, f"openssl ended: {said.decode(errors='replace')}"
                said += data
            at = found + len(text)
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()
