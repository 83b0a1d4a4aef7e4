"""Logs unexpected errors of long-running threads: each bug once with its stack, then counted.

    new bug           one line with its stack
    repeated          counted, and summarised in one line a minute
    another bug       the pending summary, then one line with its own stack

Otherwise a bug in every turn of a loop would fill the disk with its stack, and push its cause out of the log.
Two errors are the same bug when their class and their innermost frames are equal. Their texts are ignored,
since they may differ each time. The number of remembered bugs is limited; the one seen longest ago is
forgotten, and logged with its stack again.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging

#: How often repetitions are summed up.
SUM_UP_EVERY_MS: Final = 60_000

#: Kinds of errors that are remembered.
MAX_KINDS: Final = 32

#: Innermost places that tell one bug from another.
_PLACES: Final = 3

_Kind = tuple[str, tuple[tuple[str, int], ...]]


class UncaughtErrors:
    """Those of one thread, which is the only one to call it; `count` may be read by any."""

    def __init__(self, log: logging.Logger, where: str) -> None:
        """`where` is the thread in words: "the I/O thread"."""
        self._log = log
        self._where = where
        self._repeated: dict[_Kind, int] = {}
        self._summed_up_ms: int | None = None
        #: All of them.
        self.count = 0
        #: Those that no line tells of yet.
        self.unreported = 0

    def __repr__(self) -> str:
        return f"<UncaughtErrors in {self._where} count={self.count} kinds={len(self._repeated)}>"

    def report(self, error: BaseException, now_ms: int) -> None:
        """Counts an error; logs it where it is a new one, with its stack."""
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
        self._repeated[kind] = repeated + 1  # and is the last one seen
        self.unreported += 1
        self.sum_up_when_due(now_ms)

    def sum_up_when_due(self, now_ms: int) -> None:
        """Logs how often which came again, unless that was told less than a minute ago."""
        if self._summed_up_ms is None:
            self._summed_up_ms = now_ms
        elif now_ms - self._summed_up_ms >= SUM_UP_EVERY_MS:
            self._sum_up(now_ms)

    def end(self, now_ms: int) -> None:
        """The thread ends: logs what was not summed up yet."""
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


def _kind_of(error: BaseException) -> _Kind:
    """Strings only: what held on to the stack would hold on to all that its functions work on."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return type(error).__qualname__, tuple(places[-_PLACES:])
