"""Disables a producer in a forked child, without touching the parent's sockets.

A producer belongs to the process that created it. Its copy in a forked child has no I/O thread, and its
sockets are the parent's. Threads that do not exist there may hold its locks. So in the child every call is
refused (`ensure_own_process`), before any lock. The child closes its copies of the parent's descriptors: it
can't write to them, and a connection ends when the parent closes it. It uses only `close(2)`: no shutdown,
TLS alert or epoll_ctl affects the parent's sockets.

`count` is compared, not the process id, which would cost a system call per record. Importing this module
registers nothing. Windows has no fork. No Java counterpart: a JVM can't fork.
"""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from client_core.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Callable


class Descriptor(Protocol):
    """An object that the child closes, such as a socket or a selector."""

    def close(self) -> None: ...


#: The number of forks between the first process and this one. An object that stored another count was created
#: in another process.
count = 0

_REFUSAL: Final = (
    "{} was made before a fork: its I/O thread runs in the parent process only. Make a new KafkaProducer in "
    "the child, after the fork."
)

_descriptors: Final[weakref.WeakSet[Descriptor]] = weakref.WeakSet()
_renewals: Final[set[Callable[[], None]]] = set()
_is_watching = False


def watch(renew: Callable[[], None]) -> None:
    """Counts forks from the first call on. `renew` recreates a lock in each child. Any thread."""
    global _is_watching
    _renewals.add(renew)
    if sys.platform != "win32" and not _is_watching:
        _is_watching = True
        os.register_at_fork(after_in_child=_in_child)


def close_in_child(descriptor: Descriptor) -> None:
    """Makes forked children close their copies. Holds it weakly; may be closed before. Any thread."""
    _descriptors.add(descriptor)


def ensure_own_process(made_at: int, what: object) -> None:
    """Raises IllegalStateError, with the remedy, if `count` has changed since `made_at`."""
    if made_at != count:
        raise IllegalStateError(_REFUSAL.format(what))


def _in_child() -> None:
    """Runs in the child before os.fork returns. Takes no lock: its holder may not exist."""
    global count
    count += 1
    for renew in tuple(_renewals):
        renew()
    for descriptor in tuple(_descriptors):
        with suppress(OSError):  # a kqueue is not inherited
            descriptor.close()
