"""One outgoing frame: a size and the request's pieces, written as the socket allows.

    int32 size, size bytes of request

The pieces are never joined: a Produce request refers to its batches in place. The transport layer is passed
in. Owned by one KafkaChannel, on the I/O thread. Source: NetworkSend, ByteBufferSend, Kafka 4.3 (SEL-17).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from client_core.errors import IllegalArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.network.transport_layer import Piece, TransportLayer

_SIZE: Final = struct.Struct(">i")
_LARGEST_FRAME_BYTES: Final = (1 << 31) - 1

#: Most pieces per system call. POSIX allows a limit of 16; Linux and macOS have 1024 (IOV_MAX).
_PIECES_A_WRITE: Final = 512


class NetworkSend:
    """A frame to one node and its unwritten rest. Not thread-safe."""

    __slots__ = ("_next", "_pieces", "_transport_holds_bytes", "node_id", "remaining_bytes", "size_bytes")

    def __init__(self, node_id: int, payload: Sequence[bytes]) -> None:
        payload_bytes = sum(map(len, payload))
        if payload_bytes > _LARGEST_FRAME_BYTES:
            raise IllegalArgumentError(f"a frame of {payload_bytes} bytes has no int32 size")
        self.node_id = node_id
        self.size_bytes = _SIZE.size + payload_bytes
        self.remaining_bytes = self.size_bytes
        self._pieces: list[Piece] = [_SIZE.pack(payload_bytes), *payload]
        self._next = 0
        self._transport_holds_bytes = False

    @property
    def completed(self) -> bool:
        """Whether the operating system has the last byte, and no TLS buffer holds it."""
        return not self.remaining_bytes and not self._transport_holds_bytes

    def write_to(self, transport: TransportLayer) -> int:
        """Writes what the transport takes now; returns the number of the frame's bytes, possibly 0.

        Raises DisconnectError when the connection is lost.
        """
        written = transport.write(self._pieces[self._next : self._next + _PIECES_A_WRITE])
        self.remaining_bytes -= written
        if self.remaining_bytes:
            self._skip(written)
        else:
            self._pieces.clear()  # the batches may be freed while the response is pending
            self._next = 0
        self._transport_holds_bytes = transport.has_pending_writes
        return written

    def _skip(self, written: int) -> None:
        pieces = self._pieces
        at = self._next
        while written >= len(pieces[at]):
            written -= len(pieces[at])
            at += 1
        if written:
            pieces[at] = memoryview(pieces[at])[written:]
        self._next = at

    def __repr__(self) -> str:
        return f"<NetworkSend node={self.node_id} {self.remaining_bytes} of {self.size_bytes} bytes to write>"
