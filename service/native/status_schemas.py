"""The shape of GET /v1/status for OpenAPI. `sidecar/status_report.py` encodes it; a test compares them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from service.wire.schemas import AnswerModel, CauseOfTimeout, Query


class Times(AnswerModel):
    """Of the last minute; right to a quarter, the maximum exactly."""

    count: int
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class WaitingBatches(AnswerModel):
    batches: int
    records: int
    partitions: int
    oldest_ms: int | None = Field(description="Since the oldest of the batches was begun.")
    cause: CauseOfTimeout | None = Field(description="Why it is late; null if it is not, or if unknown.")


class NodeFailure(AnswerModel):
    api: str | None = Field(description="The request that failed; null if the connection failed.")
    error: str = Field(description="Kafka's name of the error, or a word for why the connection ended.")
    detail: str
    age_ms: int
    since_ms: int = Field(
        description="Time since the first failure of a series; ten seconds without a failure end it."
    )
    times: int = Field(description="The number of failures in this series.")


class NodeState(AnswerModel):
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
    cause: CauseOfTimeout | None = Field(
        description="Why there is no connection: the failures since it last worked."
    )
    produce: Times = Field(description="From sending a Produce request to its answer.")
    other_requests: Times = Field(description="The same for its other requests, such as Metadata.")
    waiting: WaitingBatches = Field(description="In unsent batches of partitions that the node leads.")
    on_the_wire: WaitingBatches = Field(
        description="In batches that were sent to the node and not answered yet."
    )
    last_failure: NodeFailure | None


class MetadataState(AnswerModel):
    update_version: int
    request_version: int
    age_ms: int | None
    max_age_ms: int = Field(description="The age at which it is fetched again; advice may have lowered it.")
    refresh_in_progress: bool
    topics: int
    partitions: int
    last_error: str | None
    last_error_age_ms: int | None


class BufferState(AnswerModel):
    total_bytes: int
    available_bytes: int
    waiters: int
    batches: int
    records: int
    oldest_batch_age_ms: int | None


class Slow(AnswerModel):
    node: int | None
    phase: Literal["client", "metadata", "buffer", "queue", "delivery"]
    detail: str
    kafka_error: str | None = Field(description="Kafka's name of the cause; null if nothing has failed.")


class PhaseState(AnswerModel):
    waiting: int = Field(description="Requests in metadata and buffer, records in queue and delivery.")
    oldest_ms: int | None
    recent: Times


class Phases(AnswerModel):
    metadata: PhaseState = Field(description="Requests that wait for a topic to be known; look-ups as well.")
    buffer: PhaseState = Field(description="Requests that wait for buffer.memory.")
    queue: PhaseState = Field(description="Records in batches that are not sent.")
    delivery: PhaseState = Field(description="Records that are sent and not acknowledged.")


class TopicWaiting(AnswerModel):
    topic: str
    phase: Literal["metadata", "buffer"]
    lacks_partition: bool = Field(description="The topic is known, but the named partition is not.")
    requests: int
    oldest_ms: int


class ProduceSeconds(AnswerModel):
    """The last sixty whole seconds, oldest first."""

    records: list[int]
    failed_records: list[int]
    bytes: list[int]
    mean_ms: list[int | None]
    max_ms: list[int | None]


class ProduceState(AnswerModel):
    requests: int = Field(description="Produce requests that were answered over HTTP since the start.")
    failed_requests: int
    records: int = Field(description="Records acknowledged since the start.")
    failed_records: int
    bytes: int = Field(description="Bytes of the batches that were acknowledged.")
    latency: Times = Field(description="From a batch's first record to its acknowledgement.")
    per_second: ProduceSeconds | None = Field(description="Null without `history`.")


class LeaderMoved(AnswerModel):
    at: str
    topic: str
    partition: int
    old_leader: int | None
    new_leader: int | None
    leader_epoch: int | None


class RefusedTopic(AnswerModel):
    topic: str
    records: int = Field(description="How many records of the topic wait.")
    reason: str = Field(description="The reason, if they become dead letters after spool_topic_wait_ms.")
    detail: str = Field(description="The broker's message of the last refusal.")
    refused_ms: int = Field(description="Since the first refusal.")


class SpoolState(AnswerModel):
    entries: int = Field(description="Records that are to be delivered.")
    bytes: int = Field(description="Bytes in the folder, with dead letters.")
    max_bytes: int
    oldest_age_ms: int | None = Field(description="Time since the oldest of those records was accepted.")
    set_aside: int = Field(description="Records that can't be delivered: pilotfish spool show lists them.")
    damaged_files: int
    last_error: str | None = Field(description="Kafka's name of the last delivery error.")
    last_error_age_ms: int | None
    refused: list[RefusedTopic] = Field(
        description="Topics whose records wait because brokers refuse them, the longest first, at most fifty."
    )


class FailedRequest(AnswerModel):
    """The last of some equal failures: of one caller, call, topic and reason."""

    at: str
    times: int
    caller: str
    method: str
    route: str
    topic: str | None = Field(description="The topic that the path names.")
    type: str = Field(description="The `type` of the problem.")
    status: int
    detail: str
    kafka_error: str | None
    trace_id: str | None = Field(description="Of the caller's traceparent, or of the request's span.")
    written: Literal["no", "unknown"] | None = None
    phase: Literal["metadata", "buffer", "delivery"] | None = None
    waited_ms: int | None = None
    cause: CauseOfTimeout | None = None
    place: str | None = None


class StatusAnswer(AnswerModel):
    state: str
    draining: bool
    version: str
    at: str
    slow: list[Slow] = Field(description="What makes a produce slow now, the most important first.")
    waiting_requests: int
    waiting_bytes: int
    watchers: int
    loop_turns: int
    loop_age_ms: int
    waiting_for_metadata: int
    waiting_for_buffer: int
    in_flight_batches: int
    producer_id: int | None
    last_answer_age_ms: int | None = Field(
        description="Since when no broker has answered any request; null before the first answer."
    )
    metadata: MetadataState
    buffer: BufferState
    nodes: list[NodeState]
    leaderless: WaitingBatches = Field(description="In batches of partitions without a leader.")
    phases: Phases
    waits: list[TopicWaiting] = Field(description="Topics that requests wait for, at most fifty.")
    produce: ProduceState
    spool: SpoolState | None = Field(description="The spool; null without one.")
    failed_requests: list[FailedRequest] = Field(
        description="The last failed requests, latest first: the caller's own, and those about topics that "
        "it may read. At most twenty."
    )
    leader_changes: list[LeaderMoved] = Field(description="The last fifty leader changes, latest first.")


class StatusQuery(Query):
    history: bool = Field(False, description="Whether `produce.per_second` shows the last minute by seconds.")
