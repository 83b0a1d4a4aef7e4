"""Responses of FastAPI routes: prepared bytes, new bodies with an ETag, problems. Event loop only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from fastapi import Request, Response

from service.wire.asgi import HeaderPairs, Scope, header_values
from service.wire.content_coding import vary_of
from service.wire.errors import PROBLEM_TYPE, Problem, Refusal
from service.wire.freshness import CACHE_CONTROL, matches
from service.wire.long_answers import LongAnswer, LongBody
from service.wire.media_type import JSON
from service.wire.schemas import ProblemAnswer, error_answers

#: A route's problem answers, for the OpenAPI document.
problems: Final = error_answers(
    ProblemAnswer,
    {
        400: "The request is malformed; `place` says where.",
        404: "The topic or partition does not exist: the broker said so.",
        408: "The body did not arrive in time.",
        412: "`min_version` is of another process.",
        413: "The body or a record is too large.",
        415: "The media type is not served.",
        422: "The request is well-formed but invalid; `place` says where.",
        429: "Too many requests or bytes wait already; nothing was written.",
        500: "Kafka refused for a reason that a retry will not fix.",
        503: "No broker is reachable, or memory or the spool was full, or the sidecar is shutting down; "
        "nothing was sent.",
        504: "A deadline ran out after something was sent: the outcome is unknown.",
    },
    PROBLEM_TYPE.decode(),
)

#: Headers of answers, for the OpenAPI document.
HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "ETag": {
        "description": "Changes only when the answer does.",
        "schema": {"type": "string"},
        "example": '"a0fbe53491ebca3a"',
    },
    "Age": {
        "description": "Seconds since a broker last confirmed this; absent before the first time.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 17,
    },
    "Pilotfish-Metadata-Refreshed-At": {
        "description": "The time of that confirmation.",
        "schema": {"type": "string", "format": "date-time"},
        "example": "2026-01-31T09:26:53.589Z",
    },
    "Pilotfish-Metadata-Version": {
        "description": "Grows with each update; the part before the dash is of this process.",
        "schema": {"type": "string"},
        "example": "9435d106-3",
    },
    "Pilotfish-Failed-Records": {
        "description": "How many records failed.",
        "schema": {"type": "integer", "minimum": 1},
        "example": 1,
    },
    "Pilotfish-Replayed": {
        "description": "Present if the answer is that of an earlier request with the same Idempotency-Key.",
        "schema": {"type": "string", "enum": ["true"]},
        "example": "true",
    },
    "Retry-After": {
        "description": "Seconds after which to try again.",
        "schema": {"type": "integer", "minimum": 1},
        "example": 1,
    },
    "WWW-Authenticate": {
        "description": "The scheme, and why the token was refused.",
        "schema": {"type": "string"},
        "example": 'Bearer realm="pilotfish"',
    },
}


def with_headers(*names: str) -> dict[str, dict[str, Any]]:
    """Returns the `headers` of an answer in the OpenAPI document."""
    return {name: HEADERS[name] for name in names}


#: `responses` of routes whose answers come from metadata.
FRESH: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "headers": with_headers(
            "ETag", "Age", "Pilotfish-Metadata-Refreshed-At", "Pilotfish-Metadata-Version"
        )
    }
}


class Prepared(Protocol):
    """An answer with headers already built: its body in pieces, and its ETag."""

    @property
    def etag(self) -> bytes: ...
    @property
    def headers(self) -> HeaderPairs: ...
    @property
    def headers_304(self) -> HeaderPairs: ...
    @property
    def chunks(self) -> Sequence[bytes]: ...


def of_prepared(request: Request, entry: Prepared) -> Response:
    """A prepared answer, or 304 if the caller has it."""
    if _holds(request.scope, entry.etag):
        return as_is(304, entry.headers_304, b"")
    return of_chunks(entry.headers, entry.chunks)


def with_etag(
    scope: Scope, body: LongBody, freshness: HeaderPairs, media_type: bytes = JSON
) -> tuple[int, HeaderPairs]:
    """Returns status and headers of a newly built answer: 304 if the caller has it."""
    headers_304 = [(b"etag", body.etag), CACHE_CONTROL, *vary_of(body.length), *freshness]
    if _holds(scope, body.etag):
        return 304, headers_304
    return 200, [(b"content-type", media_type), _length(body.length), *headers_304]


def of_long(request: Request, body: LongBody, freshness: HeaderPairs, media_type: bytes = JSON) -> Response:
    """A newly built answer, or 304."""
    status, headers = with_etag(request.scope, body, freshness, media_type)
    return of_chunks(headers, body.chunks) if status == 200 else as_is(status, headers, b"")


def of_chunks(headers: HeaderPairs, chunks: Sequence[bytes]) -> Response:
    """Returns a response in pieces with complete headers; a single piece is sent with its head."""
    return as_is(200, headers, chunks[0]) if len(chunks) == 1 else LongAnswer(200, headers, chunks)


def of_json(body: bytes, media_type: bytes = JSON) -> Response:
    """Returns an uncacheable JSON answer: no ETag, no age."""
    return as_is(200, [*_head(media_type, len(body)), (b"cache-control", b"no-store")], body)


def of_refusal(refusal: Refusal, problem: Problem) -> Response:
    """Returns a problem in the caller's error format."""
    headers = [*_head(refusal.media_type, len(refusal.body)), *problem.all_headers(), *refusal.headers]
    return as_is(refusal.status, headers, refusal.body)


def _head(media_type: bytes, length: int) -> HeaderPairs:
    return [(b"content-type", media_type), _length(length), *vary_of(length)]


def _length(length: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % length


def as_is(status: int, headers: HeaderPairs, body: bytes) -> Response:
    """Returns a response with complete headers."""
    response = Response(status_code=status)
    response.body = body
    response.raw_headers = headers
    return response


def _holds(scope: Scope, etag: bytes) -> bool:
    return any(matches(value, etag) for value in header_values(scope, b"if-none-match"))
