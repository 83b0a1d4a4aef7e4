"""The event loop of watched files, whose timer fires when a test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from service.base.watched_file import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.base.watched_file import Timers


class Watched(Protocol):
    """A watcher of files: of tokens, of a certificate."""

    def watch(self, loop: Timers) -> None: ...


class FileLooks:
    """The loop, and its one timer."""

    def __init__(self, watched: Watched) -> None:
        self._now_s = 0.0
        self.due: Callable[[], object] | None = None
        watched.watch(self)

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay: float, callback: Callable[[], object]) -> FileLooks:
        assert delay == LOOK_S
        self.due = callback
        return self

    def cancel(self) -> None:
        self.due = None

    def look(self) -> None:
        """Looks twice, so that a change has settled."""
        for _ in range(2):
            self._now_s += LOOK_S
            assert self.due is not None
            self.due()
