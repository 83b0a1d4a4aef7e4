"""What the network layer can be told: how long a connection may idle, and how much memory receiving takes.

ProducerConfig builds one; the sizes of the socket buffers come with each `connect`, as in Kafka. Immutable,
any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: connections.max.idle.ms of Kafka's clients: a minute less than the broker's ten, so that it is the client
#: who closes.
DEFAULT_CONNECTIONS_MAX_IDLE_MS: Final = 540_000

#: Java's clients set no limit. We do, for a peer that speaks another protocol announces gigabytes: "HTTP"
#: read as a size is 1.2 GB. This is the limit while no request is waiting for an answer; each answer has one
#: of its own (`AnswerReader.most_bytes`).
DEFAULT_MAX_RECEIVE_BYTES: Final = 1024 * 1024

#: Java's clients have no such pool. Answers are small but for metadata, which is read as it comes: 16 MiB
#: never bind an honest cluster, and keep a hundred hostile brokers from taking a gigabyte.
DEFAULT_RECEIVE_MEMORY_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Settings of Selector. None switches a limit off."""

    connections_max_idle_ms: int | None = DEFAULT_CONNECTIONS_MAX_IDLE_MS
    max_receive_bytes: int | None = DEFAULT_MAX_RECEIVE_BYTES
    receive_memory_bytes: int = DEFAULT_RECEIVE_MEMORY_BYTES
