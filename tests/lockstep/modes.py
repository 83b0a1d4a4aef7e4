"""The modes: settings of a producer that traces run with. What a mode does not name has Kafka's default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from client_core.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

_PLAIN: Final = {"enable.idempotence": "false"}


@dataclass(frozen=True)
class Mode:
    """A mode's name and settings."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)
    #: Whether the trace begins before InitProducerId, and not after it.
    begins_without_id: bool = False

    @property
    def is_uncompressed(self) -> bool:
        return self.config.get("compression.type", "none") == "none"

    @property
    def is_idempotent(self) -> bool:
        return self.config.get("enable.idempotence") != "false"

    def versions(self, random: Random) -> dict[ApiKey, int]:
        """The newest versions that a trace's brokers have."""
        if random.random() < 0.7:
            return {}
        return {ApiKey.PRODUCE: random.choice((9, 10, 12)), ApiKey.METADATA: random.choice((9, 12))}


MODES: Final = (
    Mode("default"),
    Mode("default, without an id yet", begins_without_id=True),
    Mode("idempotent, max.in.flight 1", {"max.in.flight.requests.per.connection": "1"}),
    Mode("idempotent, linger 0, small batches", {"linger.ms": "0", "batch.size": "1024"}),
    Mode("idempotent, lz4", {"compression.type": "lz4"}),
    Mode("idempotent, gzip", {"compression.type": "gzip"}),
    Mode("plain, acks all", {**_PLAIN, "acks": "all"}),
    Mode("plain, acks 1", {**_PLAIN, "acks": "1"}),
    Mode("plain, acks 0", {**_PLAIN, "acks": "0"}),
    Mode("plain, max.in.flight 1", {**_PLAIN, "max.in.flight.requests.per.connection": "1"}),
    Mode("plain, linger 0, small batches", {**_PLAIN, "linger.ms": "0", "batch.size": "1024"}),
    Mode("plain, little memory", {**_PLAIN, "buffer.memory": "131072"}),
    Mode("plain, availability timeout", {**_PLAIN, "partitioner.availability.timeout.ms": "50"}),
    Mode("plain, gzip", {**_PLAIN, "compression.type": "gzip"}),
    Mode("plain, snappy", {**_PLAIN, "compression.type": "snappy"}),
    Mode("plain, lz4", {**_PLAIN, "compression.type": "lz4"}),
    Mode("plain, zstd", {**_PLAIN, "compression.type": "zstd"}),
)
