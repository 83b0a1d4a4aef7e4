"""When a request is made again: backoff with jitter within a budget of time, and never before Retry-After.

    wait before try n = max(Retry-After, 100 ms * 2^(n-1), at most 5 s, times 0.8 to 1.2)

`now_ms` and `sleep_ms` come in, so that tests turn the clock. One request, one thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pipeline.datasource.answers import retry_after_ms
from pipeline.datasource.errors import SidecarUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from pipeline.datasource.sidecar_http import Answer

#: Kafka's retry.backoff.ms; and five times its retry.backoff.max.ms, since many tasks ask one sidecar.
_FIRST_MS: Final = 100
_LONGEST_MS: Final = 5_000
_JITTER: Final = 0.2

#: Answers that a look-up gets when the sidecar can't do it now.
_LATER: Final = (429, 503)


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def sleep_ms(ms: int) -> None:
    time.sleep(ms / 1000)


class Patience:
    """How long one request is asked again."""

    def __init__(
        self,
        budget_ms: int,
        random: Random,
        *,
        now_ms: Callable[[], int] = monotonic_ms,
        sleep_ms: Callable[[int], None] = sleep_ms,
    ) -> None:
        self._now_ms = now_ms
        self._sleep_ms = sleep_ms
        self._random = random
        self._begun_ms = now_ms()
        self._budget_ms = budget_ms
        self.retries = 0

    @property
    def spent_ms(self) -> int:
        return self._now_ms() - self._begun_ms

    def wait(self, at_least_ms: int = 0) -> bool:
        """Waits for the next try; False, at once, where that would come after the budget."""
        backoff_ms = min(_FIRST_MS << min(self.retries, 16), _LONGEST_MS)
        wait_ms = max(at_least_ms, int(backoff_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER)))
        if self.spent_ms + wait_ms > self._budget_ms:
            return False
        self.retries += 1
        self._sleep_ms(wait_ms)
        return True


def asked(ask: Callable[[], Answer], patience: Patience) -> Answer:
    """A look-up's answer; where the sidecar is not there or has no room, asks again while there is time.

    Raises SidecarUnreachableError when time is up and none came.
    """
    while True:
        try:
            answer = ask()
        except SidecarUnreachableError:
            if not patience.wait():
                raise
            continue
        if answer.status not in _LATER or not patience.wait(retry_after_ms(answer)):
            return answer
