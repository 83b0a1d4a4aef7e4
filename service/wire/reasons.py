"""The reasons of refusals: the `type` of a problem, its title, and the page that describes it (RFC 9457).

A problem's reason follows from Kafka's error, from what it waited for, or from its status. Only a refusal
for which none of these is enough names its reason itself. `REASONS` is the table of them: docs/http.md and
`native/problem_pages.py` are made from it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

#: The path of the pages; `type` is this and the reason's name.
PROBLEMS_PATH: Final = "/problems"


class Reason(NamedTuple):
    """A reason that a program may tell apart. `name` never changes."""

    name: str
    title: str
    statuses: tuple[int, ...]
    meaning: str
    remedy: str

    @property
    def uri(self) -> str:
        """The `type` of its problems: relative, and served by the sidecar."""
        return f"{PROBLEMS_PATH}/{self.name}"


UNKNOWN_TOPIC: Final = Reason(
    "unknown-topic",
    "Unknown topic",
    (404,),
    "The brokers report that the topic does not exist.",
    "Create the topic, or correct its name.",
)
UNKNOWN_PARTITION: Final = Reason(
    "unknown-partition",
    "Unknown partition",
    (404,),
    "The topic exists and has no such partition.",
    "Add partitions, or choose one that `GET /v1/topics/{topic}` lists.",
)
UNKNOWN_BROKER: Final = Reason(
    "unknown-broker",
    "Unknown broker",
    (404,),
    "No broker has this id.",
    "Choose one that `GET /v1/cluster` lists.",
)
INVALID_TOPIC: Final = Reason(
    "invalid-topic",
    "Invalid topic name",
    (400,),
    "Kafka does not allow this topic name.",
    "Use at most 249 ASCII letters, digits, dots, underscores and hyphens.",
)
TOPIC_FORBIDDEN: Final = Reason(
    "topic-forbidden",
    "Topic not allowed",
    (403,),
    "The caller's token, or Kafka's ACL for the sidecar, does not allow this. The topic may not exist.",
    "Ask the operator for permission.",
)
POLICY: Final = Reason(
    "policy-violation",
    "Policy violation",
    (403,),
    "A policy of the brokers refused the records.",
    "Change the records, or the policy.",
)
TOKEN: Final = Reason(
    "token-required",
    "Token missing or unknown",
    (401,),
    "The request has no token, or one that the sidecar does not know.",
    "Send `Authorization: Bearer` with a token of the tokens file.",
)
FORBIDDEN: Final = Reason(
    "forbidden",
    "Not allowed",
    (403,),
    "A web page of another origin made the request.",
    "Add the page's origin to `allowed_origins`. If it is there, use `fetch` instead of a form.",
)
HOST: Final = Reason(
    "host-not-allowed",
    "Host not allowed",
    (421,),
    "The `Host` header does not name this sidecar.",
    "Add the host to `allowed_hosts`.",
)
MALFORMED: Final = Reason(
    "malformed-request",
    "Malformed request",
    (400, 414, 431, 501, 505),
    "The request, or its body, can't be read. `place`, if present, says where. Nothing was written.",
    "Correct the program that sends it.",
)
INVALID: Final = Reason(
    "invalid-value",
    "Invalid value",
    (422,),
    "The request can be read, but a value in it is not allowed; `place` says where. Nothing was written.",
    "Correct the value.",
)
REJECTED: Final = Reason(
    "record-rejected",
    "Record rejected",
    (422,),
    "The brokers refused a record because of its timestamp or the topic's configuration.",
    "Correct the record, such as by adding the key that a compacted topic needs.",
)
NOT_FOUND: Final = Reason(
    "not-found", "No such path", (404,), "The path does not exist.", "`/openapi.json` lists the paths."
)
METHOD: Final = Reason(
    "method-not-allowed",
    "Method not allowed",
    (405,),
    "The path does not take this method.",
    "Use a method of the `Allow` header.",
)
MEDIA_TYPE: Final = Reason(
    "media-type",
    "Media type not supported",
    (406, 415),
    "The body's media type or encoding, or the type in `Accept`, is not supported.",
    "See the documentation of the call.",
)
BODY_LATE: Final = Reason(
    "body-late",
    "Body not received in time",
    (408,),
    "The body did not arrive in time. Nothing was written.",
    "Send it again, in less time or in smaller requests.",
)
OTHER_PROCESS: Final = Reason(
    "other-process",
    "Version of another process",
    (412,),
    "`min_version` belongs to another process: another sidecar, or this one before a restart.",
    "Leave it out, and continue with the version of the answer.",
)
TOO_LARGE: Final = Reason(
    "too-large",
    "Too large",
    (413,),
    "The body, or one record, is larger than allowed. Nothing was written, unless `written` is `unknown`.",
    "Send less at once, or raise `max_body_bytes`, `max.request.size` or the topic's `max.message.bytes`.",
)
KEY_REUSED: Final = Reason(
    "idempotency-key-reused",
    "Idempotency key used for another request",
    (422,),
    "A different request was sent under this `Idempotency-Key`. Nothing was written.",
    "Take a new key for each request.",
)
OVERLOADED: Final = Reason(
    "overloaded",
    "Overloaded",
    (429,),
    "Too many requests, bytes, streams or watchers are open in this sidecar. Nothing was written.",
    "Repeat it after `Retry-After`.",
)
MANY_UNKNOWN: Final = Reason(
    "too-many-unknown-topics",
    "Too many unknown topics",
    (429,),
    "Callers looked up too many unknown topics in this second.",
    "Correct the names, or repeat it after `Retry-After`.",
)
NO_METADATA: Final = Reason(
    "no-metadata",
    "Metadata not known in time",
    (503,),
    "No broker returned the topic's metadata in time; `cause` says why. Nothing was written.",
    "Repeat it after `Retry-After`.",
)
NO_MEMORY: Final = Reason(
    "buffer-full",
    "No buffer memory in time",
    (503,),
    "`buffer.memory` was full, because the brokers acknowledge records too slowly. Nothing was written.",
    "Repeat it after `Retry-After`. `GET /v1/status` shows why the brokers are slow.",
)
NOT_DELIVERED: Final = Reason(
    "not-delivered",
    "Not delivered in time",
    (503,),
    "The records could not be sent in time; `cause` says why. Nothing was written.",
    "Repeat it after `Retry-After`.",
)
SIDECAR_REFUSED: Final = Reason(
    "sidecar-refused",
    "The brokers refuse the sidecar",
    (503,),
    "The brokers did not accept the sidecar's own credentials; `cause` says why. Nothing was written.",
    "The operator has to correct them.",
)
SHUTTING_DOWN: Final = Reason(
    "shutting-down",
    "Shutting down",
    (503,),
    "The sidecar is shutting down. Nothing was written, unless `written` is `unknown`.",
    "Repeat it after `Retry-After`, on a new connection.",
)
SPOOL: Final = Reason(
    "spool-unavailable",
    "The spool can't take records",
    (503,),
    "The spool is full, or its disk failed. `written` says whether records may be in it.",
    "Repeat it after `Retry-After`; look at the disk.",
)
UNAVAILABLE: Final = Reason(
    "unavailable",
    "Not available now",
    (503,),
    "No broker can be reached (`cause` says why), or something else is unavailable. Nothing was produced.",
    "Repeat it after `Retry-After`.",
)
UNKNOWN_OUTCOME: Final = Reason(
    "outcome-unknown",
    "Outcome unknown",
    (504,),
    "Time ran out before the outcome was known: records may be written or not. `cause` says why.",
    "Repeat it with the same `Idempotency-Key`. Without a key, a retry may write it twice.",
)
KAFKA: Final = Reason(
    "kafka-refused",
    "Refused by Kafka",
    (500,),
    "Kafka refused the request; `kafka_error` is the reason. A retry would fail, too.",
    "Look the error up; the operator may have to act.",
)
FAILED: Final = Reason(
    "sidecar-failed",
    "The sidecar failed",
    (500,),
    "A fault in the sidecar. Its log has the stack.",
    "Report it.",
)

#: Every reason, in the order of the documentation.
REASONS: Final = (
    *(UNKNOWN_TOPIC, UNKNOWN_PARTITION, UNKNOWN_BROKER, INVALID_TOPIC, TOPIC_FORBIDDEN, POLICY),
    *(TOKEN, FORBIDDEN, HOST, MALFORMED, INVALID, REJECTED, NOT_FOUND, METHOD, MEDIA_TYPE, BODY_LATE),
    *(OTHER_PROCESS, TOO_LARGE, KEY_REUSED, OVERLOADED, MANY_UNKNOWN, NO_METADATA, NO_MEMORY),
    *(NOT_DELIVERED, SIDECAR_REFUSED, SHUTTING_DOWN, SPOOL, UNAVAILABLE, UNKNOWN_OUTCOME, KAFKA, FAILED),
)

_OF_ERROR: Final[Mapping[str, Reason]] = {
    "UNKNOWN_TOPIC_OR_PARTITION": UNKNOWN_TOPIC,
    "UNKNOWN_TOPIC_ID": UNKNOWN_TOPIC,
    "INVALID_TOPIC_EXCEPTION": INVALID_TOPIC,
    "TOPIC_AUTHORIZATION_FAILED": TOPIC_FORBIDDEN,
    "CLUSTER_AUTHORIZATION_FAILED": TOPIC_FORBIDDEN,
    "POLICY_VIOLATION": POLICY,
    "INVALID_RECORD": REJECTED,
    "INVALID_TIMESTAMP": REJECTED,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": REJECTED,
    "SASL_AUTHENTICATION_FAILED": SIDECAR_REFUSED,
    "UNSUPPORTED_SASL_MECHANISM": SIDECAR_REFUSED,
    "ILLEGAL_SASL_STATE": SIDECAR_REFUSED,
}

#: Of a problem that may be retried and of which nothing was sent, by what it waited for.
_OF_PHASE: Final[Mapping[str | None, Reason]] = {
    "metadata": NO_METADATA,
    "buffer": NO_MEMORY,
    "delivery": NOT_DELIVERED,
}

#: Of a problem that says nothing more.
_OF_STATUS: Final[Mapping[int, Reason]] = {
    status: reason
    for reason in (
        *(MALFORMED, TOKEN, FORBIDDEN, NOT_FOUND, METHOD, MEDIA_TYPE, BODY_LATE, OTHER_PROCESS, TOO_LARGE),
        *(HOST, INVALID, OVERLOADED, UNKNOWN_OUTCOME),
    )
    for status in reason.statuses
}


def reason_of(status: int, kafka_error: str | None, phase: str | None) -> Reason:
    """Returns the reason of a problem that names none."""
    reason = None if kafka_error is None else _OF_ERROR.get(kafka_error)
    if reason is not None and status in reason.statuses:
        return reason
    if status == 503:
        return _OF_PHASE.get(phase, UNAVAILABLE)
    if status == 500:
        return FAILED if kafka_error is None else KAFKA
    return _OF_STATUS.get(status, MALFORMED if status < 500 else FAILED)


def problems_table() -> str:
    """Returns the table for docs/http.md."""
    lines = ["| `type` | status | meaning | what to do |", "|---|---|---|---|"]
    for reason in REASONS:
        statuses = ", ".join(map(str, reason.statuses))
        lines.append(f"| `{reason.uri}` | {statuses} | {reason.meaning} | {reason.remedy} |")
    return "\n".join(lines)
