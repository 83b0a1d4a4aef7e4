"""What a failure of delivery means for a spooled record: wait and try again, or set it aside, and why.

    wait                            what may pass by itself, or by what an operator does for the sidecar as
                                    a whole: no broker, no leader, too few replicas, credentials that are
                                    refused, no right to be idempotent, brokers of another version
    topic_gone, forbidden           holds for the whole topic, and the record is not to blame
    too_large, invalid              perhaps a neighbour's fault, whose batch the record shared: the request is
                                    halved until the record is alone
    refused                         any other error without a remedy, after some attempts

All but the first end with the record set aside, once they have lasted for spool_topic_wait_ms (lanes.py):
what a topic forbids or bounds, people change, and change back. At once is set aside what no such change would
mend: a record that this client does not take, and a topic or partition for which it has waited as long.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from client_core import (
    AuthenticationError,
    ClusterAuthorizationError,
    Errors,
    IllegalArgumentError,
    KafkaError,
    Phase,
    RecordFailure,
    SerializationError,
    TimeoutError,
    UnsupportedVersionError,
)
from service.spool.dead_letters import Reason
from service.wire.errors import explained

#: How often a record is tried whose error says that trying again is of no use, and that no row below knows.
MOST_ATTEMPTS: Final = 10
#: What is kept of a broker's words, for the log and beside each record that is set aside.
DETAIL_CHARACTERS: Final = 200

#: Of the sidecar as a whole, whatever the topic.
_OF_SIDECAR: Final = (AuthenticationError, ClusterAuthorizationError, UnsupportedVersionError)
_OF_TOPIC: Final[Mapping[Errors, Reason]] = {
    Errors.UNKNOWN_TOPIC_OR_PARTITION: "topic_gone",
    Errors.UNKNOWN_TOPIC_ID: "topic_gone",
    Errors.INVALID_TOPIC_EXCEPTION: "topic_gone",
    Errors.TOPIC_AUTHORIZATION_FAILED: "forbidden",
}
_OF_RECORD: Final[Mapping[Errors, Reason]] = {
    Errors.MESSAGE_TOO_LARGE: "too_large",
    Errors.RECORD_LIST_TOO_LARGE: "too_large",
    Errors.INVALID_RECORD: "invalid",
    Errors.INVALID_TIMESTAMP: "invalid",
    Errors.POLICY_VIOLATION: "invalid",
    Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT: "invalid",
}


class DeliveryOutcome(NamedTuple):
    """`reason` None: it waits for as long as it takes.

    `alone`: the reason counts only where a request had no other record. `at_once`: it is not waited for.
    """

    reason: Reason | None
    detail: str
    alone: bool = False
    at_once: bool = False


def delivery_outcome_of(failure: RecordFailure, attempts: int, *, lacks_partition: bool) -> DeliveryOutcome:
    """What is to become of a record that failed for the so-manieth time.

    `lacks_partition`: the topic is known, and has no partition of the record's number.
    """
    error = explained(failure.error)
    detail = _detail(error, error.message)
    if isinstance(error, _OF_SIDECAR):
        return DeliveryOutcome(None, detail)
    # The client has waited for the topic, or the partition, for as long as it may.
    waited = failure.phase is Phase.METADATA and isinstance(failure.error, TimeoutError)
    if waited and lacks_partition:
        return DeliveryOutcome("partition_gone", detail, at_once=True)
    reason = _OF_TOPIC.get(error.error)
    if reason is not None:
        # A broker that is asked to append may not know the topic yet, or no more, while others do.
        gone = failure.phase is Phase.METADATA or not error.retriable
        return DeliveryOutcome(reason if gone else None, detail, at_once=waited)
    reason = _OF_RECORD.get(error.error)
    if reason is not None:
        return DeliveryOutcome(reason, detail, alone=True)
    if isinstance(error, SerializationError):
        return DeliveryOutcome("invalid", detail, alone=True, at_once=True)
    if error.retriable or attempts < MOST_ATTEMPTS:
        return DeliveryOutcome(None, detail)
    return DeliveryOutcome("refused", detail, alone=True)


def delivery_outcome_of_refusal(error: KafkaError | IllegalArgumentError) -> DeliveryOutcome:
    """What is to become of records of which the client takes none: one of them is at fault, and stays so."""
    said = error.message if isinstance(error, KafkaError) else str(error)
    known = _OF_RECORD.get(error.error) if isinstance(error, KafkaError) else None
    return DeliveryOutcome(known or "invalid", _detail(error, said), alone=True, at_once=True)


def _detail(error: Exception, said: str) -> str:
    """In one line, and without what a terminal or a log would obey."""
    detail = f"{type(error).__name__}: {said}"[:DETAIL_CHARACTERS]
    return "".join(c if c.isprintable() else " " for c in detail)
