"""Exponential backoff with an upper bound and jitter.

    min(long(U[1 - jitter, 1 + jitter) * initial * 2 ** min(attempts, log2(max / max(initial, 1)))), max)

When max <= initial the backoff is always min(initial, max), without jitter; tests use that for exact values.
Source: ExponentialBackoff, Kafka 4.3 (KIP-144, KIP-580, KIP-601).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.errors import IllegalArgumentError

if TYPE_CHECKING:
    from random import Random

#: Kafka's multiplier and jitter for reconnects, connection set-up, metadata and produce retries
#: (CommonClientConfigs).
MULTIPLIER: Final = 2
JITTER: Final = 0.2


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Backoffs for one kind of retry. Thread-safe if the Random is."""

    initial_ms: int
    max_ms: int
    random: Random
    multiplier: int = MULTIPLIER
    jitter: float = JITTER

    def __post_init__(self) -> None:
        if not 0 <= self.jitter < 1:
            raise IllegalArgumentError("jitter must be between 0 inclusive and 1 exclusive")

    def backoff_ms(self, attempts: int) -> int:
        """Returns the wait in ms after `attempts` earlier attempts (0: the first retry)."""
        if self.max_ms <= self.initial_ms:
            return min(self.initial_ms, self.max_ms)
        highest_exponent = math.log(self.max_ms / max(self.initial_ms, 1)) / math.log(self.multiplier)
        term_ms = self.initial_ms * self.multiplier ** min(attempts, highest_exponent)
        if self.jitter:
            term_ms *= self.random.uniform(1 - self.jitter, 1 + self.jitter)
        return min(int(term_ms), self.max_ms)
