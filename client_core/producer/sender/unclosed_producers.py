"""Flushes producers that nobody closed, at process exit or garbage collection.

    the process ends (main returns, sys.exit,         accepted records are sent, for up to
    an uncaught exception, SIGINT)                    exit.flush.timeout.ms
    the last reference to a producer is gone          its I/O thread sends the accepted records, closes the
                                                      sockets and ends
    SIGKILL, os._exit, SIGTERM without a handler      nothing can be done

Either way the number of undelivered records is logged as a warning, which Python writes to stderr when
logging is not configured. Java's producer loses them silently. The I/O thread is a daemon: Python joins other
threads before it runs exit handlers, and an unclosed one would never end.

A multiprocessing child ends by os._exit, after finalizers of its own; the flush is one of these there. A
producer made before a fork belongs to the parent, and the child ignores it. Any thread may call.
"""

from __future__ import annotations

import atexit
import logging
import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core import forks
from client_core.clock import SystemClock

if TYPE_CHECKING:
    from client_core.producer.sender.io_thread import IoThread

_log: Final = logging.getLogger(__name__)

#: How long the exit waits beyond the given time for I/O threads that were force-closed: they need a few
#: milliseconds, unless they are in a DNS look-up, which nothing can end.
_GRACE_MS: Final = 500


class _Unclosed(NamedTuple):
    client_id: str
    flush_timeout_ms: int
    is_held: bool = False


#: A running thread keeps itself alive; one that never started is dropped with its producer.
_unclosed: Final[weakref.WeakKeyDictionary[IoThread, _Unclosed]] = weakref.WeakKeyDictionary()
_registered_at: int | None = None  # forks.count: a child of multiprocessing has none of its parent's


def watch(io_thread: IoThread, client_id: str, flush_timeout_ms: int) -> None:
    """Watches a producer's I/O thread until `forget`, as long as the process lives."""
    global _registered_at
    _unclosed[io_thread] = _Unclosed(client_id, flush_timeout_ms)
    if _registered_at == forks.count:
        return
    _registered_at = forks.count
    atexit.unregister(flush_all)  # the parent's, if inherited
    atexit.register(flush_all)
    if "multiprocessing.util" in sys.modules:  # as in each of its children
        sys.modules["multiprocessing.util"].Finalize(None, flush_all, exitpriority=0)


def forget(io_thread: IoThread) -> None:
    """Forgets the thread of a closed producer, unless it is held: the caller has the report."""
    of = _unclosed.get(io_thread)
    if of is not None and not of.is_held:
        _unclosed.pop(io_thread, None)


def hold(io_thread: IoThread) -> None:
    """Keeps it until `release` or `abandon`: the caller of its close may be gone when that has a report."""
    of = _unclosed.get(io_thread)
    if of is not None:
        _unclosed[io_thread] = of._replace(is_held=True)


def release(io_thread: IoThread) -> None:
    """Forgets a held one: its caller has the report."""
    _unclosed.pop(io_thread, None)


def abandon(io_thread: IoThread) -> None:
    """Has a held one reported when it ends: its caller will not get the report."""
    report = partial(_report, io_thread, "was being closed when that was cancelled")
    io_thread.call_at_end(report)  # there: the process may end as soon as the thread does
    if io_thread.is_over:
        report()


def let_go(io_thread: IoThread) -> None:
    """Ends the thread of a garbage producer. Called by a finalizer on any thread: no lock, no wait."""
    io_thread.end_unclosed(partial(_report, io_thread, "was dropped"))


def flush_all() -> None:
    """Sends what unclosed producers of this process have accepted, each for its exit.flush.timeout.ms."""
    clock = SystemClock()
    began_ms = clock.now_ms()
    left = _left()
    try:
        for io_thread in left:
            io_thread.initiate_close()
        for io_thread, of in left.items():
            io_thread.join(max(began_ms + of.flush_timeout_ms - clock.now_ms(), 0))
    finally:  # KeyboardInterrupt ends the wait, and is raised after the report
        for io_thread in left:
            io_thread.force_close()
        given_up_by_ms = clock.now_ms() + _GRACE_MS
        for io_thread in left:
            io_thread.join(max(given_up_by_ms - clock.now_ms(), 0))
            _report(io_thread, "was still open when the process ended")


def _left() -> dict[IoThread, _Unclosed]:
    """Returns this process's producers. Other threads may close theirs, or the GC run, at the same time."""
    left: dict[IoThread, _Unclosed] = {}
    for reference in _unclosed.keyrefs():
        io_thread = reference()
        of = None if io_thread is None else _unclosed.get(io_thread)
        if io_thread is not None and of is not None and not io_thread.is_inherited:
            left[io_thread] = of
    return left


def report_lost(io_thread: IoThread) -> None:
    """Logs what an interrupted close() failed, because that returns no report."""
    _report(io_thread, "was being closed when it was interrupted")


def _report(io_thread: IoThread, why: str) -> None:
    """Logs, once for each producer, how many records were not delivered."""
    of = _unclosed.pop(io_thread, None)
    if of is None:
        return
    records = sum(left.records for left in io_thread.unacknowledged())
    if records:
        _log.warning(
            "%d records that the producer %s had accepted were not delivered: it %s. Call close(), or use it "
            "as a context manager. exit.flush.timeout.ms is %d.",
            records,
            of.client_id,
            why,
            of.flush_timeout_ms,
        )
