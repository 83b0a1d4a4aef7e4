"""TLS over another transport layer: handshake, and buffers of encrypted bytes.

    above <── read ──  SSLObject <── incoming <── under.read
    above ── write ──> SSLObject ──> outgoing ──> under.write

OpenSSL sees no socket (`ssl.MemoryBIO`), so nothing blocks, and tests need no network. `read` reads the lower
transport once and decrypts everything it got. `write` encrypts some records, passes them down, and continues
only when they were accepted: data for a slow peer stays unencrypted in place. Encrypted bytes count as
written; `has_pending_writes` is true until the system has all of them (SEL-17).

Peers may not renegotiate (TLS 1.2); OpenSSL handles new keys and session tickets (TLS 1.3). In TLS 1.3 a
broker checks our certificate after our handshake is complete. So a failure before the first bytes is still an
authentication failure (SSL-04).

Called by KafkaChannel on the I/O thread. Source: SslTransportLayer, Kafka 4.3 (SSL-01 to SSL-04).
"""

from __future__ import annotations

import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from client_core.errors import DisconnectError, SslAuthenticationError
from client_core.network import ssl_failures
from client_core.network.transport_layer import PlaintextTransportLayer

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from client_core.errors import KafkaError
    from client_core.network.ssl_context import SslContexts
    from client_core.network.transport_layer import Piece, TransportLayer

log = logging.getLogger(__name__)

#: The most that one record carries (RFC 8446, section 5.1), and that OpenSSL takes and returns at once.
_RECORD_BYTES: Final = 16 * 1024

#: Bytes encrypted before they are passed to the system: eight records per system call.
_BURST_BYTES: Final = 8 * _RECORD_BYTES

#: The most read from the lower transport at once; OpenSSL keeps a buffer of that size.
_MOST_READ_BYTES: Final = 256 * 1024

#: The least: more than the largest record with header and tag, and usually a broker's whole part of a
#: handshake.
_LEAST_READ_BYTES: Final = 32 * 1024

#: Reads of a broken connection to find its cause.
_LAST_WORDS_READS: Final = 16


class SslTransportLayer:
    """The client's side of one TLS connection. It owns the lower transport layer."""

    __slots__ = (
        "_ahead",
        "_allowed_cipher_suites",
        "_failure",
        "_has_begun",
        "_host",
        "_incoming",
        "_is_after_handshake",
        "_outgoing",
        "_ssl",
        "_under",
        "_unsent",
        "ready",
        "remote_address",
    )

    def __init__(
        self,
        under: TransportLayer,
        context: ssl.SSLContext,
        server_hostname: str,
        allowed_cipher_suites: frozenset[str] = frozenset(),
    ) -> None:
        """If the context verifies names, the certificate must match `server_hostname`, a name or address.

        If `allowed_cipher_suites` is not empty, the handshake must choose one of them. Raises
        SslAuthenticationError when no certificate can match the name.
        """
        self._under = under
        self.remote_address = under.remote_address
        self._host = _as_in_certificates(server_hostname)
        self._allowed_cipher_suites = allowed_cipher_suites
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        try:
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._host)
        except ValueError as error:  # includes UnicodeError
            raise SslAuthenticationError(f"no certificate can be for the host name {self._host!r}") from error
        self._has_begun = False
        self.ready = False
        self._is_after_handshake = False  # TLS 1.3, and nothing was read yet
        self._failure: KafkaError | None = None  # raised by the next read or handshake
        self._ahead = b""  # decrypted beyond the requested bytes
        self._unsent = memoryview(b"")  # encrypted, not yet taken by the lower transport

    # -- state -----------------------------------------------------------------------------------------------

    @property
    def has_bytes_buffered(self) -> bool:
        return bool(self._ahead or self._ssl.pending() or (self.ready and self._failure is not None))

    @property
    def has_pending_writes(self) -> bool:
        return bool(self._unsent or self._outgoing.pending)

    def fileno(self) -> int:
        return self._under.fileno()

    def finish_connect(self) -> bool:
        return self._under.finish_connect()

    # -- the handshake ---------------------------------------------------------------------------------------

    def handshake(self) -> None:
        """Continues the handshake as far as the bytes allow (SSL-01).

        Raises SslAuthenticationError for an unacceptable certificate, protocol or peer, after the alert was
        sent; DisconnectError when the connection ends.
        """
        try:
            if self._failure is None:
                self._shake_hands()
            is_flushed = self._flush()
        except DisconnectError as error:
            # A peer that refuses us sends an alert and closes; the alert takes precedence.
            raise self._failure or self._last_words() or ssl_failures.terminated(error.message) from error
        if self._failure is not None and is_flushed and not self.ready:
            raise self._failure

    def _shake_hands(self) -> None:
        """Does one read and one step."""
        if self._has_begun:
            received = self._under.read(_LEAST_READ_BYTES)
            if received is None:
                return
            self._incoming.write(received)
        self._has_begun = True
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            self._failure = ssl_failures.handshake_failure(error, self._host)
            return
        self._finish_handshake()

    def _finish_handshake(self) -> None:
        cipher = self._ssl.cipher()
        name = "" if cipher is None else cipher[0]
        if self._allowed_cipher_suites and name not in self._allowed_cipher_suites:
            self._failure = ssl_failures.forbidden_cipher_suite(name)
            return
        version = self._ssl.version()
        log.debug("TLS handshake with %s is done: %s, %s", self.remote_address, version, name)
        self._is_after_handshake = version == "TLSv1.3"
        self.ready = True
        self._look_ahead()

    def _last_words(self) -> KafkaError | None:
        """Returns the reason for a broken connection from the unread bytes before its end, if any."""
        with suppress(DisconnectError):
            for _ in range(_LAST_WORDS_READS):
                received = self._under.read(_LEAST_READ_BYTES)
                if received is None:
                    break
                self._incoming.write(received)
        if self.ready:
            while self._failure is None and self._decrypt(_RECORD_BYTES):
                continue  # unread data is lost with the connection (SEL-13)
        else:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                return None
            except ssl.SSLError as error:
                self._failure = ssl_failures.handshake_failure(error, self._host)
        return self._failure

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, max_bytes: int) -> bytes | None:
        """Returns at least one byte; None when there are none now.

        Raises SslAuthenticationError when the broker refuses us after the handshake (SSL-04), DisconnectError
        at the end of the stream.
        """
        data = self._take_ahead(max_bytes) or self._decrypt(max_bytes)
        if not data and self._failure is None:
            received = self._under.read(min(max(max_bytes, _LEAST_READ_BYTES), _MOST_READ_BYTES))
            if received is None:
                return None
            self._incoming.write(received)
            data = self._decrypt(max_bytes)
        if data:
            self._look_ahead()
            return data
        if self._failure is not None:
            raise self._failure
        return None

    def _decrypt(self, max_bytes: int) -> bytes:
        """Decrypts the received bytes; a failure after them waits for the next read."""
        pieces = []
        missing = max_bytes
        while missing and self._failure is None and (self._incoming.pending or self._ssl.pending()):
            try:
                piece = self._ssl.read(min(missing, _RECORD_BYTES))
            except ssl.SSLWantReadError:  # the record is incomplete; OpenSSL keeps its beginning
                break
            except ssl.SSLError as error:
                self._failure = self._judge(error)
                break
            if not piece:
                self._failure = DisconnectError("the peer closed the connection")
                break
            self._is_after_handshake = False
            pieces.append(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _judge(self, error: ssl.SSLError) -> KafkaError:
        if self._is_after_handshake:
            return ssl_failures.post_handshake_failure(error, self._host)
        return ssl_failures.stream_failure(error, self._host)

    def _look_ahead(self) -> None:
        """Decrypts one record of the remaining bytes: only this shows whether one is complete (SEL-05)."""
        if self._incoming.pending and not self._ahead and not self._ssl.pending():
            self._ahead = self._decrypt(_RECORD_BYTES)

    def _take_ahead(self, max_bytes: int) -> bytes:
        data, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
        return data

    # -- writing ---------------------------------------------------------------------------------------------

    def write(self, pieces: Sequence[Piece]) -> int:
        """Sends pending bytes, then encrypts the pieces as far as possible; returns the bytes encrypted.

        Raises DisconnectError when the connection is lost, SslAuthenticationError when the broker refused us
        before.
        """
        try:
            return self._write(pieces)
        except DisconnectError as error:
            refusal = self._last_words()
            if isinstance(refusal, SslAuthenticationError):
                raise refusal from error
            raise

    def _write(self, pieces: Sequence[Piece]) -> int:
        if not self._flush():
            return 0
        taken = 0
        for record in _records(pieces):
            taken += self._encrypt(record)
            if self._outgoing.pending >= _BURST_BYTES and not self._flush():
                return taken
        self._flush()
        return taken

    def _encrypt(self, record: Piece) -> int:
        try:
            written = self._ssl.write(record)
        except ssl.SSLError as error:  # OpenSSL says why only once, to the read that found it
            raise self._failure or ssl_failures.stream_failure(error, self._host) from error
        assert written == len(record), "a MemoryBIO is never full"
        return written

    def _flush(self) -> bool:
        """Passes encrypted bytes down; returns whether all of them were taken."""
        while self.has_pending_writes:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            sent = self._under.write((self._unsent,))
            self._unsent = self._unsent[sent:]
            if self._unsent:
                return False
        return True

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Sends close_notify if the socket takes it at once, and frees the lower transport."""
        if self.ready:
            self.ready = False
            with suppress(ssl.SSLError):  # WantRead: don't wait for the peer's close_notify
                self._ssl.unwrap()
            with suppress(DisconnectError):
                self._flush()
        self._ahead = b""
        self._under.close()


class SslTransports:
    """Builds TLS transports over sockets."""

    def __init__(self, contexts: SslContexts) -> None:
        self._contexts = contexts

    def transport(self, host: str, connection: socket.socket, remote_address: str) -> TransportLayer:
        """Returns a transport with the current certificates. Raises SslAuthenticationError for a bad name."""
        return SslTransportLayer(
            PlaintextTransportLayer(connection, remote_address),
            self._contexts.context(),
            host,
            self._contexts.checked_after_handshake,
        )

    def version(self) -> int:
        """Returns a number that grows when other certificates come into use. Never raises."""
        return self._contexts.version()


def _as_in_certificates(host: str) -> str:
    """Returns a host as in certificates: a name without final dot, an IPv6 address without zone."""
    return host.partition("%")[0] if ":" in host else host.removesuffix(".")


def _records(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Groups the pieces into records: joins small ones, slices large ones without a copy."""
    gathered: list[Piece] = []
    room = _RECORD_BYTES
    for piece in pieces:
        view = memoryview(piece)
        at = 0
        while at < len(view):
            part = view[at : at + room]
            at += len(part)
            gathered.append(part)
            room -= len(part)
            if not room:
                yield gathered[0] if len(gathered) == 1 else b"".join(gathered)
                gathered, room = [], _RECORD_BYTES
    if gathered:
        yield gathered[0] if len(gathered) == 1 else b"".join(gathered)
