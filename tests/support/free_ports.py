"""TCP ports on loopback for servers in other processes, which must be told a number before they start.

They are taken from below the range that systems hand out to outgoing connections, so that a port stays free
while its server is down and about to come back. Two test runs at once draw from different
places, and so do the processes of one run: pytest-xdist numbers them, as their ids are too close together.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Final

_FIRST: Final = 20_000
_COUNT: Final = 10_000

_lock = threading.Lock()
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_next = (os.getppid() * 97 + _worker * _COUNT // 4) % _COUNT


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that nobody listens on now, never handed out before in this process."""
    global _next
    found: list[int] = []
    with _lock:
        for _ in range(_COUNT):
            if len(found) == count:
                break
            port = _FIRST + _next
            _next = (_next + 1) % _COUNT
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
