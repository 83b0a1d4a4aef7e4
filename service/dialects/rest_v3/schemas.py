"""REST Proxy v3's shapes, for the OpenAPI document only.

resources.py and delivery_reports.py encode the answers; a test compares these with the shapes. Members are in
Confluent's order.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Path
from pydantic import ConfigDict, Field

from service.dialects.rest_v3.batch_codec import MAX_ENTRIES, MAX_ID_LENGTH
from service.wire.schemas import AnswerModel, error_answers
from service.wire.strict_json import MAX_INT32

# -- paths ---------------------------------------------------------------------------------------------------

_NUMBER: Final[dict[str, Any]] = {"type": "integer", "minimum": 0, "maximum": MAX_INT32}

ClusterId = Annotated[
    str,
    Path(
        description="The id of the cluster, as GET /v3/clusters returns it.",
        json_schema_extra={"pattern": "^[a-zA-Z0-9_-]+$"},
    ),
]
#: A string, so that an invalid number gets a 404, as an unknown one does.
BrokerId = Annotated[str, Path(description="A broker's id.", json_schema_extra=_NUMBER)]
PartitionId = Annotated[str, Path(description="A partition's number.", json_schema_extra=_NUMBER)]


class _Shape(AnswerModel):
    """Every member of an answer is described."""

    model_config = ConfigDict(extra="forbid")


# -- metadata ------------------------------------------------------------------------------------------------


class Related(_Shape):
    related: str = Field(description="A URL, by the scheme and Host of the request.")


class ItemMetadata(_Shape):
    self: str
    resource_name: str = Field(examples=["crn:///kafka=MkU3OEVBNTcwNTJENDM2Qg/topic=orders"])


class ListMetadata(_Shape):
    self: str
    next: str | None = Field(description="The URL of the next page; null if there is none.")


class ClusterData(_Shape):
    kind: Literal["KafkaCluster"]
    metadata: ItemMetadata
    cluster_id: str
    controller: Related | None = Field(description="With KRaft, a broker that need not be the controller.")
    acls: Related = Field(description="Not served here.")
    brokers: Related
    broker_configs: Related = Field(description="Not served here.")
    consumer_groups: Related = Field(description="Not served here.")
    topics: Related
    partition_reassignments: Related = Field(description="Not served here.")


class ClusterDataList(_Shape):
    kind: Literal["KafkaClusterList"]
    metadata: ListMetadata
    data: list[ClusterData]


class BrokerData(_Shape):
    kind: Literal["KafkaBroker"]
    metadata: ItemMetadata
    cluster_id: str
    broker_id: int
    host: str
    port: int
    rack: str | None
    configs: Related = Field(description="Not served here.")
    partition_replicas: Related = Field(description="Not served here.")


class BrokerDataList(_Shape):
    kind: Literal["KafkaBrokerList"]
    metadata: ListMetadata
    data: list[BrokerData]


class TopicData(_Shape):
    kind: Literal["KafkaTopic"]
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    partitions: Related
    configs: Related = Field(description="Not served here.")
    partition_reassignments: Related = Field(description="Not served here.")
    authorized_operations: list[str] = Field(description="Always empty.")


class TopicDataList(_Shape):
    kind: Literal["KafkaTopicList"]
    metadata: ListMetadata
    data: list[TopicData]


class PartitionData(_Shape):
    kind: Literal["KafkaPartition"]
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str
    partition_id: int
    leader: Related | None = Field(description="The leader's replica; null while there is none.")
    replicas: Related
    reassignment: Related = Field(description="Not served here.")


class PartitionDataList(_Shape):
    kind: Literal["KafkaPartitionList"]
    metadata: ListMetadata
    data: list[PartitionData]


class ReplicaData(_Shape):
    kind: Literal["KafkaReplica"]
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str
    partition_id: int
    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Related


class ReplicaDataList(_Shape):
    kind: Literal["KafkaReplicaList"]
    metadata: ListMetadata
    data: list[ReplicaData]


# -- produce -------------------------------------------------------------------------------------------------


class Sized(_Shape):
    type: Literal["BINARY", "JSON", "STRING"]
    size: int = Field(description="In bytes, as on the wire; -1 for null.")


class _Delivered(_Shape):
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int | None = Field(None, description="Absent if the broker did not report it.")
    timestamp: str | None = Field(None, examples=["2021-02-05T19:14:42Z"])
    key: Sized | None = Field(None, description="Absent if the record gave no type for it.")
    value: Sized | None = Field(None, description="Absent if the record gave no type for it.")


class DeliveryReport(_Delivered):
    error_code: Literal[200]


class ErrorAnswer(_Shape):
    error_code: int = Field(examples=[40403])
    message: str


class BatchSuccess(_Delivered):
    id: str


class BatchFailure(ErrorAnswer):
    id: str


class BatchAnswer(_Shape):
    successes: list[BatchSuccess]
    failures: list[BatchFailure]


# -- errors --------------------------------------------------------------------------------------------------

#: A route's error answers, for the OpenAPI document.
errors: Final = error_answers(
    ErrorAnswer,
    {
        400: "The request is malformed.",
        403: "The caller may not use this topic (40301).",
        404: "There is no such cluster, broker, topic (40403), partition or replica.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The media type is not served.",
        422: "The request is well-formed but invalid: parameters, an empty body (42206), no batch (42208).",
        429: "Too many requests or bytes wait already; nothing was written.",
        503: "No broker answers (50302), or the sidecar is shutting down; nothing was written.",
    },
)

# -- bodies parsed by the dialect's own code -----------------------------------------------------------------

#: The members have no types: an invalid record is not refused by the HTTP status, but has an error in its
#: place among the answers.
_RECORD_MEMBERS: Final[dict[str, Any]] = {
    "partition_id": {"description": f"A number from 0 to {MAX_INT32}, or null."},
    "headers": {"description": 'A list of `{"name", "value"}`; the value is base64 or null.'},
    "key": {"description": '`{"type", "data"}`; the type is BINARY (base64), JSON or STRING.'},
    "value": {"description": "As the key; absent for none."},
    "timestamp": {"description": "As 2021-02-05T19:14:42Z."},
}

_RECORD_EXAMPLE: Final[dict[str, Any]] = {
    "partition_id": 0,
    "headers": [{"name": "trace", "value": "SGVhZGVyLTE="}],
    "key": {"type": "STRING", "data": "customer-7"},
    "value": {"type": "JSON", "data": {"total": 12.5}},
    "timestamp": "2021-02-05T19:14:42Z",
}

RECORDS_BODY: Final[dict[str, Any]] = {
    "required": True,
    "description": "One record, or any number of concatenated records.",
    "content": {
        "application/json": {
            "schema": {"title": "RecordV3", "properties": _RECORD_MEMBERS},
            "example": _RECORD_EXAMPLE,
        }
    },
}

_ENTRY: Final[dict[str, Any]] = {
    "title": "BatchEntryV3",
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {
            "type": "string",
            "pattern": "^[0-9a-zA-Z_-]+$",
            "minLength": 1,
            "maxLength": MAX_ID_LENGTH,
        },
        **_RECORD_MEMBERS,
    },
}

BATCH_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "title": "BatchBodyV3",
                "type": "object",
                "additionalProperties": False,
                "required": ["entries"],
                "properties": {
                    "entries": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MAX_ENTRIES,
                        "items": _ENTRY,
                    }
                },
            },
            "example": {"entries": [{"id": "1", **_RECORD_EXAMPLE}]},
        }
    },
}
