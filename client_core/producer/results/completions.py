"""What is finished, on its way to those who wait: gathered in a turn of the I/O thread, posted at its end.

Any thread puts things in; a deque takes them without a lock. The I/O thread posts. So a turn costs an event
loop one wakeup, whatever it finished, and no callback ever runs inside one of the client's locks or half-
way through a turn. When the I/O thread is gone, whoever puts something in posts it himself.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from client_core.producer.results.ticket import CompletionSink, Done, Result

_log: Final = logging.getLogger(__name__)


class Completions:
    """Finished tickets with their results, in the order in which they were finished."""

    def __init__(self, sink: CompletionSink) -> None:
        self._sink = sink
        self._finished: deque[tuple[Done, Result]] = deque()
        self._nobody_posts = False
        self._is_posting = False

    def __bool__(self) -> bool:
        """Whether something waits to be posted."""
        return bool(self._finished)

    @property
    def is_told(self) -> bool:
        """Whether all that was added is with the sink. A plain read; I/O thread running."""
        # In this order: what is not in the deque any more has been posted, or is being posted.
        return not self._finished and not self._is_posting

    def add(self, done: Done, result: Result) -> None:
        """Puts a finished ticket in. Any thread, no lock held."""
        self._finished.append((done, result))
        # Looked at after the append: post_from_now_on looks into the deque after it has set this.
        if self._nobody_posts:
            self.post()

    def post(self) -> None:
        """Hands over all that is finished. A sink that fails is logged: nobody else may suffer for it."""
        if not self._finished:
            return
        finished: list[tuple[Done, Result]] = []
        self._is_posting = True
        try:
            with contextlib.suppress(IndexError):  # another thread may empty it at the same time
                while True:
                    finished.append(self._finished.popleft())
            if finished:
                self._post(finished)
        finally:
            self._is_posting = False

    def post_from_now_on(self) -> None:
        """The I/O thread ends: what is added later is posted by whoever adds it."""
        self._nobody_posts = True
        self.post()

    def _post(self, finished: list[tuple[Done, Result]]) -> None:
        try:
            self._sink.post(finished)
        except KeyboardInterrupt:  # which only the main thread gets, and never the I/O thread
            raise
        except BaseException:  # noqa: BLE001 -- a user's code, its sys.exit() and CancelledError too
            _log.exception("The completion sink failed on %d finished tickets", len(finished))
