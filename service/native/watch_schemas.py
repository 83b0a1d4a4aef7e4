"""The shapes of what is watched, for the OpenAPI document, and the query of a watch.

`changes.py` and `snapshot.py` spell them; a test holds them equal.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.native.schemas import Broker
from service.wire.schemas import FailedItem, Milliseconds, digits_only
from service.wire.waiting import MAX_WAIT_MS

#: More often than this a status says nothing that a person could follow.
MIN_STATUS_MS: Final = 250

#: What one watch may name; as many as one POST /v1/leaders.
MAX_TOPICS: Final = 1_000


#: The bounds stand first, or the document would not know them for an integer's.
StatusMilliseconds = Annotated[int, Field(ge=MIN_STATUS_MS, le=MAX_WAIT_MS), BeforeValidator(digits_only)]


class WatchQuery(BaseModel):
    """What to watch, and from where on."""

    model_config = ConfigDict(extra="forbid")

    topics: str | None = Field(
        None,
        description="Topics, separated by commas; all that the sidecar knows if absent.",
        examples=["orders,payments"],
    )
    last_event_id: str | None = Field(
        None, description="Go on after this id; the header Last-Event-ID wins over it."
    )
    status_ms: StatusMilliseconds | None = Field(
        None, description="Tell /v1/status in this rhythm as well. Event streams only."
    )
    min_version: str | None = Field(
        None,
        description="Wait for this change; one of another process is 412. `Accept: application/json` only.",
    )
    max_block_ms: Milliseconds | None = Field(
        None, description="How long to wait for a change at most. `Accept: application/json` only."
    )


class WatchedPartition(BaseModel):
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    error: str | None


class WatchedTopic(BaseModel):
    name: str
    id: str | None
    internal: bool
    partitions: list[WatchedPartition]


class TopicError(FailedItem):
    topic: str


class Snapshot(BaseModel):
    version: str = Field(description="The id of the change that led to this; good for Last-Event-ID.")
    metadata_version: str = Field(description="As in Pilotfish-Metadata-Version.")
    refreshed_at: str | None
    cluster_id: str | None
    brokers: list[Broker]
    topics: list[WatchedTopic]
    errors: list[TopicError] = Field(description="Topics that were named and can't be told of.")


class ChangedPartition(WatchedPartition):
    previous_leader: int | None


class PartitionsChanged(BaseModel):
    """Of `leader` and `replicas`: partitions of one topic, whole, as they are now."""

    topic: str
    at: str
    partitions: list[ChangedPartition]


class TopicChanged(BaseModel):
    """Of `topic`."""

    topic: str
    at: str
    change: Literal["appeared", "grew", "shrank", "recreated", "gone"]
    id: str | None
    internal: bool
    partition_count: int | None
    previous_partition_count: int | None


class BrokerChanged(BaseModel):
    """Of `broker`."""

    change: Literal["joined", "left", "moved"]
    at: str
    broker: Broker


class WatchedChange(BaseModel):
    id: str
    event: Literal["leader", "replicas", "topic", "broker"]
    data: PartitionsChanged | TopicChanged | BrokerChanged


class ChangesAnswer(BaseModel):
    version: str = Field(description="Up to which change this tells; the next one to wait for is one more.")
    reset: bool = Field(description="Whether what was told before can't be gone on with; see `snapshot`.")
    changes: list[WatchedChange]
    reason: Literal["other_process", "gap", "bad_id", "cluster_changed"] | None = None
    detail: str | None = None
    snapshot: Snapshot | None = None


#: What an event stream looks like.
EVENT_STREAM: Final[dict[str, Any]] = {
    "schema": {
        "type": "string",
        "description": "Server-sent events: snapshot, leader, replicas, topic, broker, reset, status, end.",
    },
    "example": "retry: 2000\n\nevent: snapshot\nid: 5f2c9a10-1\ndata: {…}\n\n"
    'event: broker\nid: 5f2c9a10-2\ndata: {"change":"left","at":"2026-01-31T09:26:53.589Z",'
    '"broker":{"id":2,"host":"10.0.0.2","port":9092,"rack":null}}\n\n',
}
