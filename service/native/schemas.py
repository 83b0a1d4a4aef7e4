"""Shapes of requests and answers, for the OpenAPI document and for query parameters.

answers.py encodes metadata answers, produce_answers.py produce answers. These models describe them; tests
keep both equal. Only the query models are used at run time.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from service.lookup.lookups import Demands
from service.lookup.paging import PageQuery
from service.produce.many_topics import MAX_TOPICS
from service.produce.records_codec import MAX_TIMESTAMP_MS
from service.wire.payload import Format
from service.wire.schemas import (
    RECORD_HEADER,
    TOPIC_NAME,
    AnswerModel,
    FailedItem,
    Int32,
    Milliseconds,
    WaitQuery,
)
from service.wire.strict_json import MAX_INT32

#: As in spool/dead_letters.py, which is not loaded without a spool. Unreadable entries can't be requeued.
DeadLetterReason = Literal["too_large", "forbidden", "topic_gone", "partition_gone", "invalid", "refused"]

#: Look-ups of one POST /v1/leaders. More would delay those of other callers.
MAX_LOOKUPS: Final = 1_000


class RequeueQuery(WaitQuery):
    topic: str | None = Field(None, description="Only records of this topic.")
    reason: DeadLetterReason | None = Field(None, description="Only dead letters with this reason.")


class LookupQuery(WaitQuery):
    max_age_ms: Milliseconds | None = Field(None, description="Wait for a refresh if the answer is older.")
    min_version: str | None = Field(
        None, description="Wait for this Pilotfish-Metadata-Version; one of another process is 412."
    )

    def demands(self) -> Demands:
        return Demands(self.max_block_ms, self.max_age_ms, self.min_version)


class LeaderQuery(LookupQuery):
    partition: Int32 | None = Field(None, description="The partition to look up.")
    key: str | None = Field(None, description="The key whose partition to look up, by Java's murmur2.")
    key_format: Format = Field(Format.TEXT, description="Format of the key, here or in Pilotfish-Key.")


class ListQuery(PageQuery):
    prefix: str = Field("", description="Only topics whose names have this prefix.")
    internal: bool = Field(False, description="Whether to list Kafka's internal topics as well.")
    max_block_ms: Milliseconds | None = Field(None, description="How long to wait for the list at most.")
    max_age_ms: Milliseconds | None = Field(None, description="Fetch the list again if it is older.")

    def demands(self) -> Demands:
        return Demands(self.max_block_ms, self.max_age_ms)


class Broker(AnswerModel):
    id: int
    host: str
    port: int
    rack: str | None


class ClusterAnswer(AnswerModel):
    cluster_id: str | None
    brokers: list[Broker]


class Leads(AnswerModel):
    topic: str
    partitions: list[int]


class BrokerAnswer(Broker):
    leads: list[Leads] = Field(description="Among the topics that this sidecar knows.")


class Partition(AnswerModel):
    partition: int
    leader: Broker | None
    leader_epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    error: str | None = Field(description="The partition's error by Kafka's name, if it has one.")


class OffsetsAnswer(AnswerModel):
    beginning_offset: int = Field(description="The offset of the first record that is kept.")
    end_offset: int = Field(description="The offset that the next record gets.")


class TopicAnswer(AnswerModel):
    name: str
    id: str | None = Field(description="As Kafka's tools print it; null from brokers before 2.8.")
    internal: bool
    partitions: list[Partition]


class ListedTopic(AnswerModel):
    name: str
    id: str | None
    internal: bool
    partition_count: int
    error: str | None


class TopicsAnswer(AnswerModel):
    topics: list[ListedTopic]
    next_page_token: str | None = Field(
        None, description="For `page_token`; null on the last page, absent if the list is whole."
    )


class LeaderAnswer(AnswerModel):
    topic: str
    partition: int
    leader: Broker | None
    leader_epoch: int | None


class LeadersAnswer(AnswerModel):
    results: list[LeaderAnswer | FailedItem]


class RequeueAnswer(AnswerModel):
    requeued: int = Field(description="How many records are to be delivered again.")


class RefreshAnswer(AnswerModel):
    version: str = Field(description="As in Pilotfish-Metadata-Version; good for min_version.")
    waited_ms: int


class SpooledAnswer(AnswerModel):
    topic: str
    spooled: int = Field(description="The number of spooled records: all records of the request.")
    first_sequence: int = Field(description="The number of the first of them; the others follow it.")
    last_sequence: int
    status: str = Field(description="Where to see the state of the spool.")


# -- bodies parsed by msgspec, not by pydantic ---------------------------------------------------------------

FORMATS: Final = [form.value for form in Format]

_RECORD: dict[str, Any] = {
    "title": "ProduceRecord",
    "type": "object",
    "additionalProperties": False,
    "required": ["value"],
    "properties": {
        "key": {"description": "In key_format; null or absent for none."},
        "value": {"description": "In value_format; null is a tombstone."},
        "partition": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_INT32},
        "timestamp": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": MAX_TIMESTAMP_MS,
            "description": "Milliseconds since 1970; now if null or absent.",
        },
        "headers": {"type": ["array", "null"], "items": RECORD_HEADER},
    },
}

PRODUCE_BODY: dict[str, Any] = {
    "title": "ProduceBody",
    "type": "object",
    "additionalProperties": False,
    "required": ["records"],
    "properties": {
        "key_format": {"type": "string", "enum": FORMATS, "default": Format.TEXT.value},
        "value_format": {"type": "string", "enum": FORMATS, "default": Format.JSON.value},
        "records": {"type": "array", "minItems": 1, "items": _RECORD},
    },
}

PRODUCE_EXAMPLE = {"records": [{"key": "customer-7", "value": {"total": 12.5}}]}

#: The same with a topic in each record.
MANY_BODY: dict[str, Any] = {
    **PRODUCE_BODY,
    "title": "ProduceToTopicsBody",
    "properties": {
        **PRODUCE_BODY["properties"],
        "records": {
            "type": "array",
            "minItems": 1,
            "items": {
                **_RECORD,
                "title": "TopicRecord",
                "required": ["topic", "value"],
                "properties": {
                    "topic": {
                        **TOPIC_NAME,
                        "description": f"At most {MAX_TOPICS} different ones in a request.",
                    },
                    **_RECORD["properties"],
                },
            },
        },
    },
}

MANY_EXAMPLE = {"records": [{"topic": "orders", "key": "customer-7", "value": {"total": 12.5}}]}

LOOKUPS_BODY: dict[str, Any] = {
    "title": "LookupsBody",
    "type": "object",
    "additionalProperties": False,
    "required": ["lookups"],
    "properties": {
        "lookups": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_LOOKUPS,
            "items": {
                "title": "Lookup",
                "type": "object",
                "additionalProperties": False,
                "required": ["topic"],
                "properties": {
                    "topic": {"type": "string"},
                    "partition": {"type": "integer", "minimum": 0, "maximum": MAX_INT32},
                    "key": {"description": "In key_format; instead of a partition."},
                    "key_format": {"type": "string", "enum": FORMATS, "default": Format.TEXT.value},
                },
            },
        }
    },
}
