"""How much memory all frames that are being received may take together.

A frame reserves its size before more than its beginning is read, and holds it until it was dealt with. While
the pool is used up nobody reserves: the connection is not read, so its bytes stay with the system and in the
end with the broker, and nothing is dropped. One frame may take more than there is, or a frame larger than the
pool could never be read; thus the frames hold less than the pool and one frame together. Those refused get
their turn in the order in which they asked.

Not counted: the 64 KiB that a read may bring beyond the frame it is for, once for each connection.

Counts only; the bytes are the connections'. Owned by Selector, on the I/O thread. Source: SimpleMemoryPool
(not strict), Kafka 4.3, which its brokers use and its clients could.
"""

from __future__ import annotations


class MemoryPool:
    """Bytes by the connection that holds them. Not thread-safe."""

    __slots__ = ("_held", "available_bytes", "size_bytes", "waiting")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.available_bytes = size_bytes  # below zero while a frame has more than there was
        self._held: dict[int, int] = {}
        self.waiting: dict[int, None] = {}  # in the order in which they asked

    def next_in_line(self) -> int | None:
        """The connection that would be given memory now; None when nobody waits or there is none."""
        return next(iter(self.waiting), None) if self.available_bytes > 0 else None

    def try_reserve(self, node_id: int, size_bytes: int) -> bool:
        """Whether the connection may hold a frame of that size; if not, it waits in line until it asks again.

        One that was refused is told by `next_in_line()`.
        """
        if self.available_bytes <= 0 or next(iter(self.waiting), node_id) != node_id:
            self.waiting.setdefault(node_id)
            return False
        self.waiting.pop(node_id, None)
        self.available_bytes -= size_bytes
        self._held[node_id] = self._held.get(node_id, 0) + size_bytes
        return True

    def leave_line(self, node_id: int) -> None:
        """Gives up a connection's place in line: it does not want to read now."""
        self.waiting.pop(node_id, None)

    def release(self, node_id: int) -> None:
        """Takes back all that a connection holds."""
        self.available_bytes += self._held.pop(node_id, 0)

    def __repr__(self) -> str:
        return f"<MemoryPool {self.available_bytes} of {self.size_bytes} bytes, {len(self.waiting)} waiting>"
