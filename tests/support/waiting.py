"""Waiting for something that lives in another process or thread and can't tell us when it changes.

Look, wait a little, look again, and after a deadline fail with a sentence that says what was awaited and what
was last seen. For what is in this process a condition, an event or a future is better; this is for Kafka's
brokers, operating system processes and peers behind a socket. Blocks; any thread.

The deadline is a net for what never comes, not a bound on how long it may take: a busy machine needs long.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_until(
    look: Callable[[], T],
    *,
    what: str,
    timeout_s: float = 120.0,
    every_s: float = 0.1,
    last_seen: Callable[[], object] | None = None,
) -> T:
    """Calls `look` until it returns something true, and returns that; AssertionError after timeout_s.

    `last_seen` is asked at the end, for the failure's text. Looks at least once, and once more after the
    deadline.
    """
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
