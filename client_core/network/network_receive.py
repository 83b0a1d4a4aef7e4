"""Splits a stream into size-prefixed frames, within a shared memory limit.

    int32 size, size bytes of response, int32 size, ...

`feed` takes bytes, `take` returns complete frames. One read may contain a size, its body and more frames; the
rest stays here until it is taken. Memory grows with the bytes received, never with the announced size: a
frame that announces two gigabytes and sends ten bytes costs ten bytes. Pure: no socket, no clock. Owned by
one KafkaChannel, on the I/O thread. Source: NetworkReceive, Kafka 4.3 (SEL-07 to SEL-09).

The memory pool limits the bytes of all frames being received. A frame reserves its size before more than its
beginning is read, and releases it after it was handled. While the pool is exhausted, no other connection is
read: the bytes stay with the system, then with the broker, and nothing is dropped. One frame may exceed the
remaining memory, otherwise a frame larger than the pool could never be read. So the total stays below the
pool plus one frame. Refused frames are served in order. Not counted: up to 64 KiB per connection that a read
may bring beyond its frame. The pool only counts; Selector owns it, on the I/O thread. Source:
SimpleMemoryPool (not strict), Kafka 4.3, which brokers use and clients could.
"""

from __future__ import annotations

import struct
from typing import Final

from client_core.errors import InvalidReceiveError

_SIZE: Final = struct.Struct(">i")
_LARGEST_FRAME_BYTES: Final = (1 << 31) - 1

#: First bytes of other protocols found on a wrong port, and the remedy.
_FOREIGN_BEGINNINGS: Final = (
    (b"HTTP", "the peer speaks HTTP, not Kafka; give the address of a broker's Kafka listener"),
    (
        b"\x15\x03",
        "the peer answered with a TLS alert: its listener wants TLS; set security.protocol to SSL or SASL_SSL"
        " or give the address of a plaintext listener",
    ),
    (b"SSH-", "the peer speaks SSH, not Kafka; give the address of a broker's Kafka listener"),
)


class MemoryPool:
    """Counts the bytes that each connection holds. Not thread-safe."""

    __slots__ = ("_held", "available_bytes", "size_bytes", "waiting")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.available_bytes = size_bytes  # negative while a frame exceeds the free bytes
        self._held: dict[int, int] = {}
        self.waiting: dict[int, None] = {}  # in order of request

    def next_in_line(self) -> int | None:
        """Returns the connection that gets memory next; None when none waits or no memory is free."""
        return next(iter(self.waiting), None) if self.available_bytes > 0 else None

    def try_reserve(self, node_id: int, size_bytes: int) -> bool:
        """Returns whether the connection may hold a frame of that size; if not, it waits in line.

        `next_in_line()` returns a refused connection when it may ask again.
        """
        if self.available_bytes <= 0 or next(iter(self.waiting), node_id) != node_id:
            self.waiting.setdefault(node_id)
            return False
        self.waiting.pop(node_id, None)
        self.available_bytes -= size_bytes
        self._held[node_id] = self._held.get(node_id, 0) + size_bytes
        return True

    def leave_line(self, node_id: int) -> None:
        """Removes a connection from the line: it will not read now."""
        self.waiting.pop(node_id, None)

    def release(self, node_id: int) -> None:
        """Frees all bytes that a connection holds."""
        self.available_bytes += self._held.pop(node_id, 0)

    def __repr__(self) -> str:
        return f"<MemoryPool {self.available_bytes} of {self.size_bytes} bytes, {len(self.waiting)} waiting>"


class NetworkReceive:
    """The frames of one connection. `max_bytes` None: the int32 maximum. Not thread-safe."""

    __slots__ = ("_data", "_max_bytes", "_start", "_taken_bytes", "frame_bytes")

    def __init__(self, max_bytes: int | None) -> None:
        self.limit(max_bytes)
        self._data: bytes | bytearray = b""
        self._start = 0  # offset of the current frame's size in _data, or of its remaining bytes
        self._taken_bytes = 0  # of the current frame and its size, by `take_piece`
        #: The size of the current frame, not validated; None until its four bytes are here.
        self.frame_bytes: int | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes not taken yet: of the current frame and those after it."""
        return len(self._data) - self._start

    @property
    def has_frame(self) -> bool:
        """Whether `take` needs no more bytes: a whole frame is here, or a size that it will refuse."""
        size = self.frame_bytes
        return size is not None and (size > self._max_bytes or self.missing_bytes == 0)

    @property
    def missing_bytes(self) -> int:
        """How many bytes the current frame lacks: of its size, then of its body."""
        size, here = self.frame_bytes, len(self._data) - self._start
        if size is None:
            return _SIZE.size - here
        return 0 if size > self._max_bytes else max(_SIZE.size + size - self._taken_bytes - here, 0)

    def limit(self, max_bytes: int | None) -> None:
        """Sets the size limit of a frame from now on."""
        self._max_bytes = _LARGEST_FRAME_BYTES if max_bytes is None else max_bytes

    def feed(self, data: bytes) -> None:
        """Takes bytes received from the connection."""
        if not self._data:  # the common case: a read brings one whole frame, and nothing is copied here
            self._data = data
        elif isinstance(self._data, bytearray):
            del self._data[: self._start]
            self._data += data
        else:
            joined = bytearray(memoryview(self._data)[self._start :])
            joined += data
            self._data = joined
        self._start = 0
        if self.frame_bytes is None:
            self._look_at_size()

    def take(self) -> bytes | None:
        """Returns the current frame without its size, if it is whole; then the next frame is the current one.

        Raises InvalidReceiveError when the size is negative or over the limit: the stream is unreadable from
        there.
        """
        size = self.frame_bytes
        if size is None:
            return None
        if size < 0 or size > self._max_bytes:
            raise InvalidReceiveError(self._what_is_wrong_with(size))
        begin = self._start + _SIZE.size
        end = begin + size
        data = self._data
        if len(data) < end:
            return None
        payload = data[begin:end] if isinstance(data, bytes) else bytes(memoryview(data)[begin:end])
        self._drop(end, ends_frame=True)
        return payload

    def take_piece(self) -> tuple[bytes, bool]:
        """Returns the current frame's bytes not taken yet, and whether they are its last.

        The size must be known and valid. After the last piece the next frame is the current one.
        """
        size = self.frame_bytes
        assert size is not None
        left = _SIZE.size + size - self._taken_bytes
        end = min(self._start + left, len(self._data))
        begin = self._start if self._taken_bytes else self._start + _SIZE.size
        piece = bytes(memoryview(self._data)[begin:end])
        self._taken_bytes += end - self._start
        is_last = end - self._start == left
        self._drop(end, ends_frame=is_last)
        return piece, is_last

    def _drop(self, end: int, *, ends_frame: bool) -> None:
        """Drops the bytes before `end`."""
        if end == len(self._data):
            self._data = b""  # gives a large frame's memory back
            self._start = 0
        else:
            self._start = end
        if ends_frame:
            self.frame_bytes = None
            self._taken_bytes = 0
            if self._data:
                self._look_at_size()

    def _look_at_size(self) -> None:
        if len(self._data) - self._start >= _SIZE.size:
            (self.frame_bytes,) = _SIZE.unpack_from(self._data, self._start)

    def _what_is_wrong_with(self, size: int) -> str:
        said = f"Invalid receive (size = {size})"
        if size >= 0:
            said = f"Invalid receive (size = {size} larger than {self._max_bytes})"
        hint = _who_begins_with(_SIZE.pack(size))
        return said if hint is None else f"{said}: {hint}"

    def __repr__(self) -> str:
        return f"<NetworkReceive {self.bytes_read} bytes, size {self.frame_bytes}>"


def _who_begins_with(beginning: bytes) -> str | None:
    """Returns the remedy for a peer whose first bytes are another protocol's; None if they are unknown."""
    for prefix, hint in _FOREIGN_BEGINNINGS:
        if beginning.startswith(prefix):
            return hint
    if all(0x20 <= byte < 0x7F for byte in beginning):
        text = beginning.decode("ascii")
        return f"the peer sent text ({text!r}), not Kafka; give the address of a broker's Kafka listener"
    return None
