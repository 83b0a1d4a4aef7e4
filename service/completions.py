"""How finished work comes back to the event loop: one call_soon_threadsafe per turn of the I/O thread.

`LoopCompletions` is handed to KafkaProducer before a loop exists; the app's lifespan binds it. `post` runs
on the I/O thread, the callbacks on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from client_core import Done, Result

_log: Final = logging.getLogger(__name__)


class LoopCompletions:
    """A CompletionSink over one event loop. `bind` once, before the first request."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        """Has each `done` called on the loop; after the loop has ended, when nobody waits, does nothing."""
        if self._loop is None:
            _log.error("%d results came before an event loop was bound; they are lost", len(finished))
            return
        try:
            self._loop.call_soon_threadsafe(_call_each, finished)
        except RuntimeError:
            _log.debug("%d results came after the event loop had closed", len(finished))


def _call_each(finished: Sequence[tuple[Done, Result]]) -> None:
    for done, result in finished:
        try:
            done(result)
        except Exception:  # noqa: BLE001
            # One caller's fault must not cost the others their answers.
            _log.exception("a completion failed")
