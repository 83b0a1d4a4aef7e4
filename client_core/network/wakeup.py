"""Wakes a thread from its select, through a socket pair.

At most one byte is pending. The waking thread sets the flag, then writes the byte. If the flag is set it does
neither, so a pending wakeup costs no system call. The woken thread reads the byte, then clears the flag, then
looks for work. Any other order loses wakeups. If the flag is cleared first, a byte written in between is read
while its flag stays set, and no thread ever writes again (observed).

Source: trio's WakeupSocketpair for the design; kafka-python #1760 and #763 for known bugs (SEL-15).
"""

from __future__ import annotations

import socket
import threading

from client_core import forks


class Wakeup:
    """`wakeup` from any thread; all else on the woken thread."""

    def __init__(self, reader: socket.socket, writer: socket.socket) -> None:
        """Takes both ends of a socket pair and owns them."""
        reader.setblocking(False)
        writer.setblocking(False)
        forks.close_in_child(reader)
        forks.close_in_child(writer)
        self._reader = reader
        self._writer = writer
        # Held for one non-blocking call at most, so that no byte goes to a descriptor that `close` has just
        # freed. Reentrant, because a signal handler may interrupt a wakeup of its own thread.
        self._lock = threading.RLock()
        self._is_pending = False
        self._is_closed = False

    @classmethod
    def open(cls) -> Wakeup:
        """Returns a wakeup with a socket pair of its own."""
        return cls(*socket.socketpair())

    def fileno(self) -> int:
        """Returns the descriptor to watch for reading."""
        return self._reader.fileno()

    def wakeup(self) -> None:
        """Makes the reader readable. Any thread; never blocks; does nothing once closed."""
        if self._is_pending:
            return
        with self._lock:
            if not self._is_pending and not self._is_closed:
                self._is_pending = True
                self._writer.send(b"\0")

    def clear(self) -> int:
        """Clears pending wakeups; returns the bytes read, 0 or 1.

        The caller checks its queues after this, never before.
        """
        try:
            taken = len(self._reader.recv(16))
        except BlockingIOError:
            return 0
        self._is_pending = False
        return taken

    def close(self) -> None:
        """Frees both sockets."""
        with self._lock:
            self._is_closed = True
            self._reader.close()
            self._writer.close()
