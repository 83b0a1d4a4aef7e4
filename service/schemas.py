"""The shapes of requests and answers, for the OpenAPI document and for query parameters.

Answers from metadata are spelled in answers.py and produce answers in produce_answers.py; these models
describe them, and tests hold the two equal. Only the query models are used at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.lookup.lookups import MAX_WAIT_MS, Demands
from service.payload import Format
from service.produce.records_codec import MAX_INT32


def digits_only(value: object) -> object:
    """pydantic would take 1.0, 1_0 and blanks around for whole numbers."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        raise ValueError("must be a whole number in plain digits")
    return value


# The bounds stand first, or the document would not know them for an integer's.
Milliseconds = Annotated[int, Field(ge=0, le=MAX_WAIT_MS), BeforeValidator(digits_only)]
Int32 = Annotated[int, Field(ge=0, le=MAX_INT32), BeforeValidator(digits_only)]


def error_answers(
    model: type[BaseModel], descriptions: Mapping[int, str], media_type: str = "application/json"
) -> Callable[..., dict[int | str, dict[str, Any]]]:
    """A function from statuses to what a route's `responses` say of them, for the OpenAPI document.

    The model is named and not given: FastAPI would make a validator for each answer of each route, half of
    what a start costs. openapi.py adds it to the document.
    """
    content = {media_type: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}

    def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
        return {
            status: {"description": descriptions[status], "content": deepcopy(content)} for status in statuses
        }

    return described


#: As in spool/aside.py, of which nothing is loaded without a spool; what can't be read can't be put back.
SetAsideReason = Literal["too_large", "forbidden", "topic_gone", "partition_gone", "invalid", "refused"]


class _Query(BaseModel):
    """Unknown parameters are refused: a misspelt deadline must not become none."""

    model_config = ConfigDict(extra="forbid")


class NoQuery(_Query):
    """A call that takes no parameters."""


class WaitQuery(_Query):
    max_block_ms: Milliseconds | None = Field(
        None, description="How long to wait for metadata at most (Kafka's max.block.ms, for this request)."
    )


class RequeueQuery(WaitQuery):
    topic: str | None = Field(None, description="Only records of this topic.")
    reason: SetAsideReason | None = Field(None, description="Only records set aside for this reason.")


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
    key_format: Format = Field(Format.TEXT, description="How the key is written here or in Pilotfish-Key.")


class ListQuery(_Query):
    prefix: str = Field("", description="Only topics whose names begin so.")
    internal: bool = Field(False, description="Whether to list Kafka's internal topics too.")
    max_block_ms: Milliseconds | None = Field(None, description="How long to wait for the list at most.")
    max_age_ms: Milliseconds | None = Field(None, description="Fetch the list again if it is older.")

    def demands(self) -> Demands:
        return Demands(self.max_block_ms, self.max_age_ms)


class Broker(BaseModel):
    id: int
    host: str
    port: int
    rack: str | None


class ClusterAnswer(BaseModel):
    cluster_id: str | None
    brokers: list[Broker]


class Leads(BaseModel):
    topic: str
    partitions: list[int]


class BrokerAnswer(Broker):
    leads: list[Leads] = Field(description="Among the topics that this sidecar knows.")


class Partition(BaseModel):
    partition: int
    leader: Broker | None
    leader_epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    error: str | None = Field(description="The partition's error by Kafka's name, if it has one.")


class TopicAnswer(BaseModel):
    name: str
    id: str | None = Field(description="As Kafka's tools print it; null from brokers before 2.8.")
    internal: bool
    partitions: list[Partition]


class ListedTopic(BaseModel):
    name: str
    id: str | None
    internal: bool
    partition_count: int
    error: str | None


class TopicsAnswer(BaseModel):
    topics: list[ListedTopic]


class LeaderAnswer(BaseModel):
    topic: str
    partition: int
    leader: Broker | None
    leader_epoch: int | None


class ItemError(BaseModel):
    kafka_error: str | None
    code: int | None
    message: str
    retriable: bool
    written: Literal["no", "unknown"] | None = None
    phase: Literal["metadata", "buffer", "delivery"] | None = None
    waited_ms: int | None = None


class FailedItem(BaseModel):
    error: ItemError


class LeadersAnswer(BaseModel):
    results: list[LeaderAnswer | FailedItem]


class RequeueAnswer(BaseModel):
    requeued: int = Field(description="How many records are to be delivered again.")


class RefreshAnswer(BaseModel):
    version: str = Field(description="As in Pilotfish-Metadata-Version; good for min_version.")
    waited_ms: int


class Receipt(BaseModel):
    partition: int
    offset: int | None = Field(description="Null where the broker did not say it.")
    timestamp: int


class ProduceAnswer(BaseModel):
    topic: str
    results: list[Receipt | FailedItem] = Field(description="One per record, in order.")


class SpooledAnswer(BaseModel):
    topic: str
    spooled: int = Field(description="How many records are in the spool now: all that the request brought.")
    first_sequence: int = Field(description="The number of the first of them; the others follow it.")
    last_sequence: int
    status: str = Field(description="Where to look what became of the spool.")


class ProblemAnswer(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    kafka_error: str | None
    code: int | None
    retriable: bool
    written: Literal["no", "unknown"] | None = None
    phase: Literal["metadata", "buffer", "delivery"] | None = None
    waited_ms: int | None = None
    place: str | None = None
    results: list[Receipt | FailedItem] | None = None


# -- bodies that are read by msgspec, not by pydantic --------------------------------------------------------

_FORMATS = [form.value for form in Format]

PRODUCE_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["records"],
    "properties": {
        "key_format": {"enum": _FORMATS, "default": Format.TEXT.value},
        "value_format": {"enum": _FORMATS, "default": Format.JSON.value},
        "records": {
            "type": "array",
            "minItems": 1,
            "items": {
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
                        "description": "Milliseconds since 1970; now if null or absent.",
                    },
                    "headers": {
                        "type": ["array", "null"],
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["key", "value"],
                            "properties": {
                                "key": {"type": "string"},
                                "value": {"type": ["string", "null"], "contentEncoding": "base64"},
                            },
                        },
                    },
                },
            },
        },
    },
}

LOOKUPS_BODY: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["lookups"],
    "properties": {
        "lookups": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1000,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["topic"],
                "properties": {
                    "topic": {"type": "string"},
                    "partition": {"type": "integer", "minimum": 0},
                    "key": {"description": "In key_format; instead of a partition."},
                    "key_format": {"enum": _FORMATS, "default": Format.TEXT.value},
                },
            },
        }
    },
}
