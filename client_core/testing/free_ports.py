"""Free TCP ports on loopback, for servers in other processes that need a number at start.

They are below the range for outgoing connections, so a port stays free while its server restarts. Concurrent
test runs, and the processes of one run, never get the same port. Each process locks the byte of its port in
a file of the user's, until it ends.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import threading
from typing import Final

_FIRST: Final = 20_000
_COUNT: Final = 10_000

_lock = threading.Lock()
#: Where processes begin to search; far apart, so that they rarely collide.
_next = os.getpid() * 97 % _COUNT
_taken = os.open(
    os.path.join(tempfile.gettempdir(), f"pilotfish-test-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT, 0o600
)


def free_ports(count: int) -> tuple[int, ...]:
    """Returns ports without a listener, never returned before in this process."""
    global _next
    found: list[int] = []
    with _lock:
        for _ in range(_COUNT):
            if len(found) == count:
                break
            port = _FIRST + _next
            _next = (_next + 1) % _COUNT
            if not _takes(port):
                continue
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            found.append(port)
    if len(found) < count:
        raise OSError(f"no {count} free ports between {_FIRST} and {_FIRST + _COUNT}")
    return tuple(found)


def _takes(port: int) -> bool:
    """Locks the port for this process; returns whether no other process has it."""
    try:
        fcntl.lockf(_taken, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True
