"""Events inside the client, for metrics, logs and the event log.

Events are immutable. `EventSink.emit` is called on the thread of the event (mostly the I/O thread), often on
the hot path. It must not block, and must not call back into the client. Times are now_ms unless named
wall_ms. One event per batch, request or connection, never per record. Per-request events are named tuples,
which cost a third of a dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from client_core.error_codes import Errors

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A partition, and its leader id and epoch before and after, negative for none as on the wire. Plain tuples,
#: since a broker failure creates tens of thousands.
LeadershipRow = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class MetadataRefreshed:
    """A metadata response was applied."""

    reason: str  # initial, expired, topic_missing, leader_error, disconnect, bootstrap, manual or age
    update_version: int
    request_version: int
    is_partial: bool
    duration_ms: int  # from request sent to response applied
    topics: int
    partitions: int
    leaderless_partitions: int
    cluster_id: str | None
    node_id: int | None = None  # the responding node; below 0: an address of bootstrap.servers


@dataclass(frozen=True, slots=True)
class MetadataRefreshFailed:
    """A metadata request failed, or its response was unusable. `outcome`: error, timeout or no_node."""

    reason: str  # why it was needed: a reason of MetadataRefreshed
    outcome: str
    detail: str
    duration_ms: int = 0  # from request sent to failure; 0 if none was sent
    node_id: int | None = None  # the node that the request was sent to, if any


@dataclass(frozen=True, slots=True)
class Rebootstrapped:
    """The client forgot its known brokers and started again from bootstrap.servers (KIP-899, KIP-1102)."""


class LeaderChange(NamedTuple):
    """One change of LeadersChanged. None: no leader, no epoch."""

    partition: int
    old_leader_id: int | None
    new_leader_id: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class LeadersChanged:
    """At least one known partition of a topic has a new leader or a greater leader epoch.

    One event per topic. Its rows are converted on demand, so `len` and a few changes cost little when a
    broker fails.
    """

    topic: str
    rows: Sequence[LeadershipRow]

    def __len__(self) -> int:
        return len(self.rows)

    def changes(self, last: int | None = None) -> list[LeaderChange]:
        """Returns the changes in partition order: all, or the `last` ones."""
        rows = self.rows if last is None else self.rows[max(len(self.rows) - last, 0) :]
        return [
            LeaderChange(partition, _none_below_0(old_id), _none_below_0(new_id), _none_below_0(epoch))
            for partition, (old_id, _), (new_id, epoch) in rows
        ]


def _none_below_0(number: int) -> int | None:
    return number if number >= 0 else None


@dataclass(frozen=True, slots=True)
class PartitionCountChanged:
    """A topic appeared (old_count None), grew, was re-created, or disappeared (new_count None)."""

    topic: str
    old_count: int | None
    new_count: int | None


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers joined, left, or moved to another address. `moved` has ids known before and after."""

    joined: tuple[int, ...]
    left: tuple[int, ...]
    moved: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeConnecting:
    node_id: int


@dataclass(frozen=True, slots=True)
class NodeReady:
    """ApiVersions was answered: requests may be sent."""

    node_id: int


@dataclass(frozen=True, slots=True)
class NodeDisconnected:
    """A connection ended or failed.

    `reason` is one word for a label, `detail` a sentence for people.
    """

    node_id: int
    reason: (
        str  # refused, unresolved, forbidden, closed, setup_timeout, request_timeout, authentication,
        # protocol_error, idle, local
    )
    detail: str
    backoff_ms: int


class RequestCompleted(NamedTuple):
    """A response arrived, or the request ended without one (see `error`)."""

    api: str  # "Produce", "Metadata", ...
    node_id: int
    latency_ms: int
    sent_bytes: int
    received_bytes: int
    error: Errors = Errors.NONE
    #: throttle_time_ms of the response.
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeThrottled:
    """A broker throttled the client (throttle_time_ms)."""

    node_id: int
    throttle_ms: int


class BatchSent(NamedTuple):
    """A batch was drained into a Produce request."""

    node_id: int
    records: int
    batch_bytes: int
    raw_bytes: int
    queue_ms: int
    attempt: int


@dataclass(frozen=True, slots=True)
class BatchRetried:
    """A batch returns to its queue: the node rejected it, or did not answer."""

    topic: str
    partition: int
    records: int
    error: Errors
    node_id: int


@dataclass(frozen=True, slots=True)
class BatchSplit:
    topic: str
    partition: int
    records: int


class ProduceFinished(NamedTuple):
    """A batch is complete: acknowledged (`error` NONE) or failed. `produce_ms` counts from its creation."""

    topic: str
    partition: int
    node_id: int | None
    records: int
    batch_bytes: int
    produce_ms: int
    retries: int
    error: Errors
    #: The last error of its attempts if it failed by a timeout, else `error`.
    cause: Errors = Errors.NONE


class RecordsCancelled(NamedTuple):
    """Records failed at their request's deadline before they were sent: no ProduceFinished reports them.

    `cause` is the last error that prevented them from being acknowledged, else `error`.
    """

    topic: str
    records: int
    error: Errors
    cause: Errors


class WaitFinished(NamedTuple):
    """A caller waited for metadata, for buffer memory, or for a flush.

    `phase`: metadata, buffer, flush; `outcome`: success, timeout, error.
    """

    phase: str
    outcome: str
    waited_ms: int


@dataclass(frozen=True, slots=True)
class SecretReloaded:
    """A file with a secret changed and was read, or can't be read; then the old secret stays in use."""

    name: str  # the setting, such as ssl.keystore.key
    failure: str | None  # the reason; None if it was read


@dataclass(frozen=True, slots=True)
class CertificateLoaded:
    """A client certificate was loaded, which is sent to brokers that request one."""

    expires_at_s: int  # Unix time


Event = (
    MetadataRefreshed
    | MetadataRefreshFailed
    | Rebootstrapped
    | LeadersChanged
    | PartitionCountChanged
    | BrokersChanged
    | NodeConnecting
    | NodeReady
    | NodeDisconnected
    | RequestCompleted
    | NodeThrottled
    | BatchSent
    | BatchRetried
    | BatchSplit
    | ProduceFinished
    | RecordsCancelled
    | WaitFinished
    | SecretReloaded
    | CertificateLoaded
)


class EventSink(Protocol):
    """Receives events."""

    def emit(self, event: Event, /) -> None:
        """Takes one event; returns at once and raises nothing. Called on any of the client's threads."""
        ...


class _NoEvents:
    def emit(self, event: Event, /) -> None:
        """Drops the event."""


NO_EVENTS: Final[EventSink] = _NoEvents()
