"""How work crosses between the event loop and the I/O thread: each wakes the other once a turn.

Both run under one interpreter lock, so who wakes the other in the middle of a turn has to fight him for the
rest of it. Finished work comes back by one call_soon_threadsafe at the end of the I/O thread's turn; the I/O
thread is woken at the end of the loop's.

`LoopCompletions` is handed to KafkaProducer before a loop exists; the app's lifespan binds it. `post` runs
on the I/O thread, the callbacks and `wake_soon` on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from client_core import Done, Result

_log: Final = logging.getLogger(__name__)


class LoopCompletions:
    """A CompletionSink over one event loop. `bind` once, before the first request."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup: Callable[[], None] | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wakeup = None

    def wake_soon(self, wakeup: Callable[[], None]) -> None:
        """Has the I/O thread woken when the loop has done what lies before it. Called on the loop; who is
        not on it has it done at once.
        """
        if self._wakeup is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            wakeup()
            return
        self._wakeup = wakeup
        loop.call_soon(self._wake)

    def _wake(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            wakeup()

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        """Has each `done` called on the loop; after the loop has ended, when nobody waits, does nothing."""
        if self._loop is None:
            _log.error("%d results came before an event loop was bound; they are lost", len(finished))
            return
        try:
            self._loop.call_soon_threadsafe(_call_each, finished)
        except RuntimeError:
            _log.debug("%d results came after the event loop had closed", len(finished))

    def call(self, function: Callable[[], None]) -> None:
        """Has a function called on the loop; after the loop has ended, when nobody waits, does nothing."""
        if self._loop is None:
            _log.error("a completion was posted before an event loop was bound; it is lost")
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            _log.debug("a completion was posted after the event loop had closed")


def _call_each(finished: Sequence[tuple[Done, Result]]) -> None:
    for done, result in finished:
        try:
            done(result)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001
            # One caller's fault must not cost the others their answers.
            _log.exception("a completion failed")
