"""The modes: settings of a producer that traces run with. What a mode does not name has Kafka's default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from client_core.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

_PLAIN: Final = {"enable.idempotence": "false"}
#: What a trace of a mode that draws its settings may have.
_DRAWN: Final = {
    "batch.size": ("0", "300", "2048", "65536"),
    "buffer.memory": ("200000", "1000000"),
    "linger.ms": ("0", "1", "50", "700"),
    "max.in.flight.requests.per.connection": ("1", "2", "3"),
    "metadata.max.age.ms": ("200", "1000", "20000"),
    "metadata.max.idle.ms": ("5000", "60000"),
    "metadata.recovery.rebootstrap.trigger.ms": ("0", "3000", "60000"),
    "metadata.recovery.strategy": ("none",),
    "partitioner.adaptive.partitioning.enable": ("false",),
    "partitioner.availability.timeout.ms": ("20", "1000"),
    "reconnect.backoff.max.ms": ("60", "5000"),
    "reconnect.backoff.ms": ("10", "800"),
    "request.timeout.ms": ("100", "2000", "10000"),
    "retries": ("1", "3"),
    "retry.backoff.max.ms": ("100", "4000"),
    "retry.backoff.ms": ("0", "1", "30", "900"),
    "socket.connection.setup.timeout.max.ms": ("500", "60000"),
    "socket.connection.setup.timeout.ms": ("200", "3000"),
}
#: delivery.timeout.ms is at least linger.ms plus request.timeout.ms, and so much more.
_PATIENCE_MS: Final = (0, 500, 60_000)


@dataclass(frozen=True)
class Mode:
    """A mode's name and settings."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)
    #: Whether the trace begins before InitProducerId, and not after it.
    begins_without_id: bool = False
    #: Whether each trace draws other settings.
    draws: bool = False

    @property
    def is_uncompressed(self) -> bool:
        return self.config.get("compression.type", "none") == "none"

    @property
    def is_idempotent(self) -> bool:
        return self.config.get("enable.idempotence") != "false"

    def settings(self, random: Random) -> dict[str, str]:
        """A trace's settings."""
        if not self.draws:
            return dict(self.config)
        drawn = {name: random.choice(values) for name, values in _DRAWN.items() if random.random() < 0.3}
        least_ms = int(drawn.get("linger.ms", "5")) + int(drawn.get("request.timeout.ms", "30000"))
        patience_ms = random.choice(_PATIENCE_MS)
        return {**drawn, "delivery.timeout.ms": str(least_ms + patience_ms), **self.config}

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
    Mode("idempotent, drawn settings", draws=True),
    Mode("plain, drawn settings", _PLAIN, draws=True),
)
