"""Sends records at a steady rate, and notes when each was sent and acknowledged.

It never waits for an answer: an unacknowledged record does not delay the next. Times are seconds of the
machine's calendar clock, which all processes of a benchmark share.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: How long after the last record was sent the last answer may come.
_PATIENCE_S: Final = 30.0


class Outcome(NamedTuple):
    """One record's outcome; both None while it is unknown."""

    sent_s: float
    acknowledged_s: float | None
    failure: str | None


class Sends(Protocol):
    """Sends a record, and later reports the outcome on any thread: None for an acknowledgement."""

    def send(self, topic: str, value: bytes, done: Callable[[str | None], None]) -> None: ...


class SteadyLoad:
    """The sending thread and the outcomes. Values are `{name}-{number}`, numbers from 0."""

    def __init__(self, client: Sends, name: str, topic: str, per_second: float) -> None:
        self._client = client
        self._name = name
        self._topic = topic
        self._pause_s = 1 / per_second
        self._sent_s: list[float] = []
        self._ends: dict[int, tuple[float, str | None]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began_s, number = time.monotonic(), 0
        while not self._stopped.wait(max(0.0, began_s + number * self._pause_s - time.monotonic())):
            self._sent_s.append(time.time())
            self._client.send(self._topic, f"{self._name}-{number}".encode(), partial(self._done, number))
            number += 1

    def _done(self, number: int, failure: str | None) -> None:
        self._ends[number] = (time.time(), failure)

    def acknowledged_after(self, moment_s: float) -> bool:
        """Returns whether any record was acknowledged later than that."""
        return any(at > moment_s for at, failure in tuple(self._ends.values()) if failure is None)

    def stop(self) -> Mapping[str, object]:
        """Stops sending, waits for pending records, and returns a row for each record."""
        self._stopped.set()
        self._thread.join()
        until_s = time.monotonic() + _PATIENCE_S
        while len(self._ends) < len(self._sent_s) and time.monotonic() < until_s:
            time.sleep(0.01)
        rows = []
        for number, sent_s in enumerate(self._sent_s):
            at, failure = self._ends.get(number, (None, "no answer"))
            rows.append((sent_s, at if failure is None else None, failure))
        return {"records": rows}
