"""Logs unexpected errors of long-running threads: each bug once with its stack, then counted.

    new bug           one line with its stack
    repeated          counted, and summarised in one line a minute
    another bug       the pending summary, then one line with its own stack

Otherwise a bug in every turn of a loop would fill the disk with its stack, and push its cause out of the log.
Two errors are the same bug if their class and their innermost frames are equal. Their texts are ignored,
since they may differ each time. The number of remembered bugs is limited; the one seen longest ago is
forgotten, and its stack is logged again.
"""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging

#: Interval between summaries of repeated errors.
SUM_UP_EVERY_MS: Final = 60_000

#: Number of remembered bugs.
MAX_KINDS: Final = 32

#: Number of innermost frames that identify a bug.
_PLACES: Final = 3

_Kind = tuple[str, tuple[tuple[str, int], ...]]


class UncaughtErrors:
    """The uncaught errors of one thread, which alone calls it; any thread may read `count`."""

    def __init__(self, log: logging.Logger, where: str) -> None:
        """`where` names the thread: "the I/O thread"."""
        self._log = log
        self._where = where
        self._repeated: dict[_Kind, int] = {}
        self._summed_up_ms: int | None = None
        #: All errors.
        self.count = 0
        #: Errors that are not in a log line yet.
        self.unreported = 0

    def __repr__(self) -> str:
        return f"<UncaughtErrors in {self._where} count={self.count} kinds={len(self._repeated)}>"

    def report(self, error: BaseException, now_ms: int) -> None:
        """Counts an error; logs it with its stack if it is new."""
        self.count += 1
        kind = _kind_of(error)
        repeated = self._repeated.pop(kind, None)
        if repeated is None:
            self._sum_up(now_ms)
            if len(self._repeated) >= MAX_KINDS:
                del self._repeated[next(iter(self._repeated))]
            self._repeated[kind] = 0
            self._log.error("Uncaught error in %s", self._where, exc_info=error)
            return
        self._repeated[kind] = repeated + 1  # now the last one seen
        self.unreported += 1
        self.sum_up_when_due(now_ms)

    def sum_up_when_due(self, now_ms: int) -> None:
        """Logs how often each bug was repeated, at most once a minute."""
        if self._summed_up_ms is None:
            self._summed_up_ms = now_ms
        elif now_ms - self._summed_up_ms >= SUM_UP_EVERY_MS:
            self._sum_up(now_ms)

    def end(self, now_ms: int) -> None:
        """Logs the pending summary when the thread ends."""
        self._sum_up(now_ms)

    def _sum_up(self, now_ms: int) -> None:
        self._summed_up_ms = now_ms
        for kind, repeated in self._repeated.items():
            if repeated:
                name, places = kind
                file, line = places[-1] if places else ("nowhere", 0)
                self._log.error(
                    "Uncaught error in %s again: %s at %s:%d, %d times since it was last logged",
                    self._where,
                    name,
                    file,
                    line,
                    repeated,
                )
                self._repeated[kind] = 0
        self.unreported = 0


def is_interrupt(error: BaseException) -> bool:
    """Returns whether a signal interrupts this thread: that raises KeyboardInterrupt on the main thread only.

    On another thread it is an error of the code that raised it, such as a user's callback.
    """
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _kind_of(error: BaseException) -> _Kind:
    """Returns strings only: a reference to the stack would keep its frames' objects alive."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return type(error).__qualname__, tuple(places[-_PLACES:])
