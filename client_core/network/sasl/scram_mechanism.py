"""The two variants of SCRAM that Kafka knows: which hash, and how many iterations are too few or too many.

Immutable, any thread. Source: ScramMechanism, Kafka 4.3; RFC 5802, RFC 7677.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

#: RFC 7677's least, and Kafka's.
MIN_ITERATIONS: Final = 4096

#: Kafka's own tools refuse more than 16,384. A broker may ask for two billion, which would keep the I/O
#: thread for twenty minutes; 100,000 rounds of SHA-512 take about 0.06 s (measured: hashlib, one core).
#: Java's client has no such bound.
MAX_ITERATIONS: Final = 100_000


class ScramMechanism(Enum):
    """A SCRAM variant by Java's name of it."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"

    @property
    def mechanism_name(self) -> str:
        """The name on the wire and in sasl.mechanism."""
        return self.value

    @property
    def hash_name(self) -> str:
        """The hash as hashlib calls it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"
