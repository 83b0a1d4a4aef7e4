"""Waiting for something in another process or thread that can't notify us when it changes.

Look, wait a little, look again, and after a deadline fail with a sentence that says what was awaited and what
was last seen. Within this process a condition, an event or a future is better. This is for Kafka's brokers,
operating system processes and peers behind a socket. Blocks; any thread.

No test depends on the length of a deadline: deadlines are for hangs. On a busy machine TEST_PATIENCE
multiplies all of them (`make test-stress`).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Duration = TypeVar("Duration", int, float)

#: The environment variable of a whole number: how many times longer than usual a test waits.
PATIENCE_VARIABLE: Final = "TEST_PATIENCE"
_PATIENCE: Final = int(os.environ.get(PATIENCE_VARIABLE, "1"))


def patient(most: Duration) -> Duration:
    """How long a wait may take until it gives up, in the unit that it was given in."""
    return most * _PATIENCE


def wait_until(
    look: Callable[[], T],
    *,
    what: str,
    timeout_s: float = 120.0,
    every_s: float = 0.1,
    last_seen: Callable[[], object] | None = None,
) -> T:
    """Calls `look` until it returns something true, and returns that. AssertionError when patience ends.

    `last_seen` is asked at the end, for the failure's text. Looks at least once, and once more after the
    deadline, which is patient(timeout_s) away.
    """
    timeout_s = patient(timeout_s)
    deadline_s = time.monotonic() + timeout_s
    while True:
        late = time.monotonic() >= deadline_s
        seen = look()
        if seen:
            return seen
        if late:
            detail = f"; last seen: {last_seen()}" if last_seen is not None else f"; last seen: {seen!r}"
            raise AssertionError(f"{what}: not within {timeout_s:g} s{detail}")
        time.sleep(every_s)
