"""Decides whether a record that was not delivered is retried, or becomes a dead letter.

    retry                           the fault may end by itself, or when an operator repairs something that
                                    concerns the whole sidecar: no broker, no leader, too few replicas,
                                    credentials refused, idempotence not permitted, brokers of an unsupported
                                    version
    topic_gone, forbidden           applies to the whole topic; the record is not the cause
    partition_gone                  the topic has no partition of this number
    too_large, invalid              another record of the same batch may be the cause: the request is halved
                                    until the record is alone
    refused                         any other error that is not retriable, after MOST_ATTEMPTS

For all outcomes but `retry`, the record becomes a dead letter when the fault has lasted for
spool_topic_wait_ms (lanes.py). It waits that long because people may meanwhile change the topic's permissions
or limits. A record becomes a dead letter at once in two cases: the client does not accept it, so that no such
change would help; or it has already waited that long for its topic or partition.

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

#: The attempts for an error that is final, and is missing from both tables below.
MOST_ATTEMPTS: Final = 10
#: The most characters of an error's message, in the log and in each dead letter.
DETAIL_CHARACTERS: Final = 200

#: Errors of the sidecar as a whole, for any topic.
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
    """What happens to a failed record. `reason` None: it is retried without a limit.

    `alone`: the reason counts only if the request had no other record. `at_once`: without a wait.
    """

    reason: Reason | None
    detail: str
    alone: bool = False
    at_once: bool = False


def delivery_outcome_of(failure: RecordFailure, attempts: int, *, lacks_partition: bool) -> DeliveryOutcome:
    """Returns the outcome of a record that has failed `attempts` times.

    `lacks_partition`: the topic is known, and has no partition of the record's number.
    """
    error = explained(failure.error)
    detail = _detail(error, error.message)
    if isinstance(error, _OF_SIDECAR):
        return DeliveryOutcome(None, detail)
    # The client has already waited the full time for the topic or the partition.
    waited = failure.phase is Phase.METADATA and isinstance(failure.error, TimeoutError)
    if waited and lacks_partition:
        return DeliveryOutcome("partition_gone", detail, at_once=True)
    reason = _OF_TOPIC.get(error.error)
    if reason is not None:
        # A single broker may lack a topic that the others have, because it is being created or deleted.
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
    """Returns the outcome of records that the client refused: one of them can never be sent."""
    said = error.message if isinstance(error, KafkaError) else str(error)
    known = _OF_RECORD.get(error.error) if isinstance(error, KafkaError) else None
    return DeliveryOutcome(known or "invalid", _detail(error, said), alone=True, at_once=True)


def _detail(error: Exception, said: str) -> str:
    """Returns one line without control characters, which a terminal or a log might interpret."""
    detail = f"{type(error).__name__}: {said}"[:DETAIL_CHARACTERS]
    return "".join(c if c.isprintable() else " " for c in detail)
