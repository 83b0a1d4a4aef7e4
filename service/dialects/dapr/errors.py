"""Dapr's error format: `{"errorCode": "ERR_…", "message": …, "details": […]}`.

Dapr's own errors have Dapr's codes and statuses. Brokers' refusals are 500 ERR_PUBSUB_PUBLISH_MESSAGE, as
there, or 403 ERR_PUBSUB_FORBIDDEN. `details` adds Kafka's error, `retriable` and `written`, which Dapr's
codes lack. Invalid requests (400, 413, 422), and requests never begun (408, 429, 503), keep their statuses.

Pure; any thread. Source: dapr/dapr pkg/api/errors/pubsub.go and pkg/messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from client_core import Errors
from service.wire.errors import Problem, ProblemError, Refusal


class Code(NamedTuple):
    """One of Dapr's errors: its HTTP name, its reason for `details` if any, and its status."""

    name: str
    reason: str | None
    status: int


PUBSUB_EMPTY: Final = Code("ERR_PUBSUB_EMPTY", "DAPR_PUBSUB_NAME_EMPTY", 404)
PUBSUB_NOT_FOUND: Final = Code("ERR_PUBSUB_NOT_FOUND", "DAPR_PUBSUB_NOT_FOUND", 404)
TOPIC_EMPTY: Final = Code("ERR_TOPIC_NAME_EMPTY", "DAPR_PUBSUB_TOPIC_NAME_EMPTY", 404)
METADATA: Final = Code("ERR_PUBSUB_REQUEST_METADATA", "DAPR_PUBSUB_METADATA_DESERIALIZATION", 400)
FORBIDDEN: Final = Code("ERR_PUBSUB_FORBIDDEN", "DAPR_PUBSUB_FORBIDDEN", 403)
PUBLISH: Final = Code("ERR_PUBSUB_PUBLISH_MESSAGE", "DAPR_PUBSUB_PUBLISH_MESSAGE", 500)
CLOUD_EVENT: Final = Code("ERR_PUBSUB_CLOUD_EVENTS_SER", "DAPR_PUBSUB_CLOUD_EVENT_CREATION", 500)
MISMATCH: Final = Code("ERR_PUBSUB_EVENTS_SER", "DAPR_PUBSUB_MARSHAL_ENVELOPE", 400)
ENTRIES: Final = Code("ERR_PUBSUB_EVENTS_SER", "DAPR_PUBSUB_MARSHAL_EVENTS", 400)
UNREADABLE: Final = Code("ERR_PUBSUB_EVENTS_SER", "DAPR_PUBSUB_UNMARSHAL_EVENTS", 400)
TOO_MUCH: Final = Code("ERR_PUBSUB_EVENTS_SER", "DAPR_PUBSUB_UNMARSHAL_EVENTS", 413)
NOT_READY: Final = Code("ERR_HEALTH_NOT_READY", None, 500)
OUTBOUND_NOT_READY: Final = Code("ERR_OUTBOUND_HEALTH_NOT_READY", None, 500)
OTHER_APP: Final = Code("ERR_HEALTH_APPID_NOT_MATCH", None, 500)

#: Names for refusals unknown to Dapr, or made before routing.
_BY_STATUS: Final = {
    401: "ERR_UNAUTHENTICATED",
    403: "ERR_PERMISSION_DENIED",
    404: "ERR_API_UNIMPLEMENTED",
    405: "ERR_METHOD_NOT_ALLOWED",
    408: "ERR_BODY_READ",
    413: "ERR_BODY_READ",
    429: "ERR_TOO_MANY_REQUESTS",
    500: "ERR_INTERNAL",
    503: NOT_READY.name,
}
_BAD_REQUEST: Final = "ERR_BAD_REQUEST"

_UNKNOWN_PATH: Final = "this path is not served; Dapr's publish, publish/bulk, metadata and healthz are"
_AUTHORIZATION: Final = frozenset(
    {Errors.TOPIC_AUTHORIZATION_FAILED.name, Errors.CLUSTER_AUTHORIZATION_FAILED.name}
)
#: Statuses of requests that are invalid whatever Kafka answers.
_AT_FAULT_ITSELF: Final = (400, 413, 422)

_QUERY_METADATA: Final = "query.metadata."
_MEDIA_TYPE: Final = b"application/json"
_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"


@dataclass(frozen=True, slots=True)
class DaprProblem(Problem):
    """A problem with its Dapr error code."""

    error: Code = PUBLISH
    pubsub: str = ""
    topic: str = ""


def fault(error: Code, message: str, *, pubsub: str = "", topic: str = "") -> ProblemError:
    """Returns one of Dapr's errors, to raise. Nothing was written."""
    return ProblemError(
        DaprProblem(error.status, message, written="no", error=error, pubsub=pubsub, topic=topic)
    )


def publish_problem(problem: Problem, pubsub: str, topic: str, app_id: str) -> Problem:
    """Returns a refusal of the sidecar or of Kafka as a Dapr error; a Dapr error is returned unchanged."""
    is_refusal = problem.kafka_error is None and not problem.is_of_client
    if isinstance(problem, DaprProblem) or is_refusal:
        return problem
    if problem.kafka_error in _AUTHORIZATION:
        error, status = FORBIDDEN, FORBIDDEN.status
        detail = f"topic {topic} is not allowed for app id {app_id}"
    else:
        error = PUBLISH
        status = problem.status if problem.status in _AT_FAULT_ITSELF else PUBLISH.status
        detail = f"error when publishing to topic {topic} in pubsub {pubsub}: {problem.detail}"
    return DaprProblem(
        status,
        detail,
        kafka_error=problem.kafka_error,
        code=problem.code,
        retriable=problem.retriable,
        written=problem.written,
        phase=problem.phase,
        waited_ms=problem.waited_ms,
        cause=problem.cause,
        headers=tuple(problem.all_headers()),
        is_of_client=problem.is_of_client,
        error=error,
        pubsub=pubsub,
        topic=topic,
    )


def dapr_error_format(problem: Problem) -> Refusal:
    """Returns any problem in Dapr's format; the guards and FastAPI's handlers use it too."""
    message = problem.detail
    outcomes: dict[str, object] = {}
    if isinstance(problem, DaprProblem):
        name = problem.error.name
        if problem.error.reason is not None:
            outcomes["details"] = [_error_info(problem.error.reason, problem)]
    elif problem.place is not None and problem.place.startswith(_QUERY_METADATA):
        name = METADATA.name
    else:
        name = _BY_STATUS.get(problem.status, _BAD_REQUEST)
        message = _UNKNOWN_PATH if problem.status == 404 else problem.detail
    body = msgspec.json.encode({"errorCode": name, "message": message, **outcomes})
    return Refusal(problem.status, _MEDIA_TYPE, body)


def _error_info(reason: str, problem: DaprProblem) -> dict[str, object]:
    """Returns the `details` item of each Dapr error; all its metadata values are strings."""
    metadata = {"pubsub": problem.pubsub, "topic": problem.topic}
    if problem.kafka_error is not None:
        metadata["kafka_error"] = problem.kafka_error
    if problem.kafka_error is not None or problem.is_of_client:
        metadata["retriable"] = str(problem.retriable).lower()
    if problem.written is not None:
        metadata["written"] = problem.written
    return {
        "@type": _ERROR_INFO,
        "reason": reason,
        "domain": "dapr.io",
        "metadata": {name: value for name, value in metadata.items() if value},
    }
