"""Defines event v1: JSON objects, one per line, which a sidecar writes about itself and its cluster.

    v, type, cluster_id, sidecar_id, service, boot_id, seq, observed_at     in every event, in this order
    metadata.partition   a partition in a snapshot: when it is first seen, and whenever it changes
    metadata.topic       a topic appeared, changed or ended
    metadata.refresh     one refresh of metadata, also a failed one
    produce.window       results of batches, added up per topic, partition and broker
    connection           a connection to a broker was opened or ended
    heartbeat            the sidecar is running, and how many of its events were lost

While `v` is 1, fields may be added, but none is removed or changes its meaning: readers ignore unknown
fields. A sidecar writes every field of a type, null if there is no value. The fields are described only here;
`schema.py` copies the descriptions to docs/event-v1.schema.json. A test checks that the format that
`pipeline/` reads is equal. Pure; events are created on the event log's thread.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from service.wire.freshness import rfc3339

VERSION: Final = 1

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: RFC 3339 in UTC, with six digits of a second.
Time = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$")]
Brokers = tuple[Int32, ...]
_BROKER: Final = "-1, -2, ...: an address of bootstrap.servers"

TopicChange = Literal["appeared", "grew", "shrank", "recreated", "gone", "forgotten"]
ConnectionState = Literal["ready", "disconnected"]


class Event(Struct, kw_only=True):
    """The fields of every event. Those of the sidecar, and the number, are set when it is queued."""

    v: Literal[1] = 1
    type: str = ""
    cluster_id: Annotated[str | None, Meta(description="null until a broker has reported it")] = None
    sidecar_id: str = ""
    service: Annotated[str, Meta(description="the service that the sidecar is for; empty if unset")] = ""
    boot_id: Annotated[
        Int64, Meta(description="of one start of the sidecar; a later start has a greater one")
    ] = 0
    seq: Annotated[
        Int64, Meta(description="1, 2, 3, ... within a boot; a number that is missing was lost on the way")
    ] = 0
    observed_at: Annotated[Time, Meta(description="by the clock of the sidecar's host")]


class PartitionEvent(Event, kw_only=True):
    """A partition in the sidecar's snapshot: when it is first seen, and whenever it changes."""

    type: Literal["metadata.partition"] = "metadata.partition"
    topic: str
    topic_id: Annotated[
        str | None, Meta(description="as Kafka's tools print it; null before Metadata version 10")
    ]
    partition: Int32
    leader: Annotated[Int32 | None, Meta(description="a broker's id; null: there is none")]
    leader_epoch: Annotated[
        Int32 | None, Meta(description="null: the brokers reported none that is reliable")
    ]
    isr: Annotated[Brokers, Meta(description="the in-sync replicas, by broker id")]
    replicas: Brokers
    offline: Brokers
    metadata_version: Annotated[Int64, Meta(description="the number of the sidecar's snapshot")]
    broker: Annotated[
        Int32 | None,
        Meta(description=f"the broker that reported it; null if a produce response did; {_BROKER}"),
    ]
    reason: Annotated[
        str,
        Meta(description="why metadata was refreshed, or produce_answer: an answer that named the leader"),
    ]


class TopicEvent(Event, kw_only=True):
    """A change of a topic. gone: the brokers say that it does not exist. forgotten: the sidecar no longer
    follows it, because it is no longer used here, or it is no longer authorized to see it.
    """

    type: Literal["metadata.topic"] = "metadata.topic"
    change: TopicChange
    topic: str
    topic_id: Annotated[
        str | None, Meta(description="of the topic that ended, for recreated, gone and forgotten")
    ]
    partitions: Annotated[Int32 | None, Meta(description="how many it has now; null where it ended")]
    metadata_version: Int64


class RefreshEvent(Event, kw_only=True):
    """One refresh of metadata."""

    type: Literal["metadata.refresh"] = "metadata.refresh"
    duration_us: Annotated[Int64, Meta(description="from the request until its answer was applied")]
    broker: Annotated[
        Int32 | None, Meta(description=f"the broker that was asked; null if none could be; {_BROKER}")
    ]
    topics: Annotated[Int32, Meta(description="topics known after the refresh")]
    partitions: Int32
    changed: Annotated[Int32, Meta(description="partitions that were reported because of the refresh")]
    reason: Annotated[
        str,
        Meta(
            description="initial, expired, topic_missing, leader_error, disconnect, bootstrap, manual or "
            "age, as in pilotfish_metadata_refreshes_total"
        ),
    ]
    outcome: Annotated[str, Meta(description="ok, error, timeout or no_node")]
    metadata_version: Int64


class WindowEvent(Event, kw_only=True):
    """The results of batches between started_at and observed_at, for one partition on one broker."""

    type: Literal["produce.window"] = "produce.window"
    started_at: Time
    topic: str
    partition: Int32
    broker: Annotated[Int32 | None, Meta(description="null: they failed before they were sent to one")]
    records: Annotated[Int64, Meta(description="acknowledged")]
    batches: Annotated[Int64, Meta(description="batches that were acknowledged or failed")]
    bytes: Annotated[Int64, Meta(description="of acknowledged batches, as they were sent")]
    retries: Annotated[Int64, Meta(description="how often batches were sent again")]
    errors: Annotated[dict[str, Int64], Meta(description="records that failed, by Kafka's name of the error")]
    latency_us: Annotated[
        dict[str, Int64],
        Meta(description="acknowledged records by the bucket of their latency, from append to answer"),
    ]


class ConnectionEvent(Event, kw_only=True):
    """A connection became ready, ended, or could not be made."""

    type: Literal["connection"] = "connection"
    broker: Annotated[Int32, Meta(description=_BROKER)]
    state: ConnectionState
    reason: Annotated[
        str | None,
        Meta(description="why it ended, as in pilotfish_broker_disconnects_total; null for ready"),
    ]


class HeartbeatEvent(Event, kw_only=True):
    """The sidecar is running: the first and the last event of a boot, and about one per minute."""

    type: Literal["heartbeat"] = "heartbeat"
    uptime_ms: Int64
    dropped: Annotated[Int64, Meta(description="events of this boot that were numbered and lost")]
    topics: Int32
    partitions: Int32
    metadata_max_age_ms: Annotated[Int64, Meta(description="the current interval of metadata refreshes")]
    version: Annotated[str, Meta(description="of Pilotfish")]


#: All types of events, in the order of the documentation.
TYPES: Final[tuple[type[Event], ...]] = (
    PartitionEvent,
    TopicEvent,
    RefreshEvent,
    WindowEvent,
    ConnectionEvent,
    HeartbeatEvent,
)

#: Their names, which are the values of `type`.
TYPE_NAMES: Final = tuple(kind.__struct_defaults__[1] for kind in TYPES)

encode: Final = msgspec.json.Encoder().encode


class Origin(NamedTuple):
    """The sidecar that writes: the same in all events of a boot."""

    sidecar_id: str
    service: str
    boot_id: int


@lru_cache(maxsize=8)
def time_text(wall_ms: int) -> str:
    """Returns milliseconds since 1970 as `2026-11-21T10:00:00.123000Z`."""
    return rfc3339(wall_ms).replace("Z", "000Z")


# -- the latency histogram -----------------------------------------------------------------------------------

#: Buckets per doubling: a bound is at most a quarter above the value, and histograms can be added up.
SUB_BUCKETS: Final = 4


def bucket_of(latency_us: int) -> int:
    """Returns the number of a latency's bucket. The reader in `pipeline/` uses the same numbers."""
    if latency_us < SUB_BUCKETS:
        return max(latency_us, 0)
    shift = latency_us.bit_length() - 3
    return SUB_BUCKETS * shift + (latency_us >> shift)
