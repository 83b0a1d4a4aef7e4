"""What a record may do with the metadata that is there: go on, wait, or fail. One judgement for all who wait.

The blocking `KafkaProducer.wait_on_metadata` and the parked requests of the I/O thread ask the same
function, and make the same TimeoutError when their wait is over. Pure. Source:
KafkaProducer.waitOnMetadata, Kafka 4.3 (PROD-01..04).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import (
    InvalidTopicError,
    KafkaError,
    NoBrokersError,
    TimeoutError,
    TopicAuthorizationError,
    error_for,
)

if TYPE_CHECKING:
    from client_core.metadata.metadata_cache import MetadataCache


class Known(NamedTuple):
    """The topic has so many partitions, the one asked for among them."""

    partition_count: int


class Fail(NamedTuple):
    """Waiting is of no use: the broker said so."""

    error: KafkaError


class Wait(Enum):
    """The topic, or the partition asked for, is not there yet."""

    FOR_TOPIC = "topic"
    FOR_PARTITION = "partition"


Judgement = Known | Wait | Fail


def judge_metadata_wait(
    cache: MetadataCache, topic: str, partition: int | None, *, answered: bool
) -> Judgement:
    """Whether a record for a topic, and perhaps a partition of it, can be appended now.

    `answered`: the snapshot is an answer to our own question. Before that, a topic that was invalid stays
    invalid, but one that we were not allowed to see is asked for again: ACLs change.
    """
    cluster = cache.cluster
    if topic in cluster.invalid_topics:
        return Fail(InvalidTopicError(f"Invalid topics: [{topic}]"))
    if answered and topic in cluster.unauthorized_topics:
        return Fail(TopicAuthorizationError(f"Not authorized to access topics: [{topic}]"))
    count = cluster.partition_count_for_topic(topic)
    if count is None:
        return Wait.FOR_TOPIC
    if partition is not None and partition >= count:
        return Wait.FOR_PARTITION
    return Known(count)


def metadata_timeout(
    cache: MetadataCache,
    topic: str,
    partition: int | None,
    max_wait_ms: int,
    last_error_code: int | None,
    last_disconnection: str | None = None,
) -> TimeoutError:
    """Java's words for a wait that was in vain (PROD-02, PROD-03).

    Its cause is the broker's last word on the topic, or that no broker ever had one, and why.
    """
    count = cache.cluster.partition_count_for_topic(topic)
    if count is None or partition is None:
        error = TimeoutError(f"Topic {topic} not present in metadata after {max_wait_ms} ms.")
    else:
        error = TimeoutError(
            f"Partition {partition} of topic {topic} with partition count {count} is not present in metadata "
            f"after {max_wait_ms} ms."
        )
    if last_error_code:
        error.__cause__ = error_for(last_error_code)
    elif cache.is_bootstrap:
        error.__cause__ = no_brokers(last_disconnection)
    return error


#: Said where no broker is known: none has answered since the client began, or began anew.
_NO_BROKERS: Final = "No broker of bootstrap.servers has answered"


def no_brokers(last_disconnection: str | None, *, waited_ms: int | None = None) -> NoBrokersError:
    """No broker has answered: within which time, and how the last attempt ended, if there was one."""
    said = _NO_BROKERS if waited_ms is None else f"{_NO_BROKERS}, within {waited_ms} ms"
    return NoBrokersError(said if last_disconnection is None else f"{said}; last: {last_disconnection}")
