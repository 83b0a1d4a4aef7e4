"""The paths of publish and bulk publish, complete and incomplete.

Dapr's topics may have slashes, so the topic is the rest of the path. Kafka's may not, and such a request gets
an error that says so. `bulk` is therefore no pubsub name under /v1.0: a bulk path without a topic would
publish an event to a topic with the pubsub's name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import APIRouter, Depends, Request, Response

from service.dialects.dapr import errors
from service.dialects.dapr.publishing import Publishing
from service.dialects.dapr.schemas import BULK_REQUEST, PUBLISH_REQUEST, BulkFailure, DaprError, dapr_errors
from service.wire.schemas import check_query

_METHODS: Final = ["POST", "PUT"]
_ERRORS: Final = dapr_errors(400, 403, 404, 408, 413, 415, 422, 429, 500, 503)
#: No 422: an event that Kafka refuses is one of the failedEntries.
_BULK_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    **{status: answer for status, answer in _ERRORS.items() if status != 422},
    500: {
        "model": BulkFailure | DaprError,
        "description": "Not delivered: all events, or the failedEntries.",
    },
}

Serve = Callable[[Request, str, str], Awaitable[Response]]


def add_publish(router: APIRouter, publishing: Publishing) -> None:
    """Adds the routes. Bulk comes first: a topic's name could look like its path."""
    for version, alpha in (("/v1.0", ""), ("/v1.0-alpha1", "Alpha")):
        _add(
            router,
            "Publish bulk",
            f"publishDaprEvents{alpha}",
            f"{version}/publish/bulk",
            publishing.publish_bulk,
            BULK_REQUEST,
            _BULK_ERRORS,
        )
    _add(
        router,
        "Publish",
        "publishDaprEvent",
        "/v1.0/publish",
        publishing.publish,
        PUBLISH_REQUEST,
        _ERRORS,
    )


def _add(
    router: APIRouter,
    summary: str,
    operation_id: str,
    path: str,
    serve: Serve,
    request_body: dict[str, Any],
    responses: dict[int | str, dict[str, Any]],
) -> None:
    """Adds the complete path and its incomplete forms."""
    checked = [Depends(check_query)]
    whole = path + "/{pubsub}/{topic:path}"
    # One route for both methods, so that a 405 names both; the document needs one per method.
    router.add_api_route(whole, serve, methods=_METHODS, include_in_schema=False, dependencies=checked)
    for method in _METHODS:
        router.add_api_route(
            whole,
            serve,
            methods=[method],
            dependencies=checked,
            status_code=204,
            responses=responses,
            openapi_extra=request_body,
            summary=summary,
            description=serve.__doc__,
            operation_id=operation_id if method == "POST" else f"{operation_id}ByPut",
        )
    router.add_api_route(path + "/{pubsub}", _no_topic, methods=_METHODS, include_in_schema=False)
    router.add_api_route(path + "/{rest:path}", _no_pubsub, methods=_METHODS, include_in_schema=False)
    router.add_api_route(path, _no_pubsub, methods=_METHODS, include_in_schema=False)


async def _no_topic(pubsub: str) -> Response:
    raise errors.fault(errors.TOPIC_EMPTY, f"topic is empty in pubsub {pubsub}", pubsub=pubsub)


async def _no_pubsub() -> Response:
    raise errors.fault(errors.PUBSUB_EMPTY, "pubsub name is empty")
