"""What the client is doing, as values that any thread may read.

Built by the I/O thread's own swaps and counters.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One connection.

    `state`: disconnected, connecting, checking_api_versions, ready, authentication_failed.
    """

    id: int
    host: str
    port: int
    state: str
    in_flight_requests: int
    oldest_in_flight_age_ms: int | None
    backoff_left_ms: int
    throttle_left_ms: int
    last_error: str | None
    last_error_age_ms: int | None


@dataclass(frozen=True, slots=True)
class MetadataStatus:
    """How fresh the cache is. Ages are None before the first success."""

    update_version: int
    request_version: int
    age_ms: int | None
    max_age_ms: int
    refresh_in_progress: bool
    topics: int
    partitions: int
    last_error: str | None
    last_error_age_ms: int | None


@dataclass(frozen=True, slots=True)
class BufferStatus:
    """buffer.memory and what waits in it."""

    total_bytes: int
    available_bytes: int
    waiters: int
    batches: int
    records: int
    oldest_batch_age_ms: int | None


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """The whole client. `state`: starting, running, closing, closed, failed."""

    state: str
    loop_turns: int
    loop_age_ms: int
    waiting_for_metadata: int
    waiting_for_buffer: int
    in_flight_batches: int
    producer_id: int | None
    metadata: MetadataStatus
    buffer: BufferStatus
    nodes: tuple[NodeStatus, ...]


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """Records of one partition that close() gave up."""

    topic: str
    partition: int | None  # None: still waiting for metadata
    records: int


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What close() left behind; nothing, if all was acknowledged in time."""

    unacknowledged: tuple[Unacknowledged, ...] = ()

    @property
    def flushed(self) -> bool:
        return not self.unacknowledged
