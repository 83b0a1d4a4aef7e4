"""Registers FastAPI's error handlers: each error becomes a Problem, in its path's error format.

The handlers are coroutines: Starlette would run plain functions on pool threads. Event loop only.
"""

from __future__ import annotations

import logging
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from client_core import Written
from service.admission.admission_control import RetryAfter
from service.admission.failed_requests import FailedRequests
from service.admission.guards import BodyTooLargeError
from service.observe.http_metrics import OTHER
from service.wire.asgi import HeaderPairs, Scope
from service.wire.errors import (
    WHOLE_BODY,
    ErrorFormats,
    Problem,
    ProblemError,
    problem_of_body,
    problem_of_bug,
)
from service.wire.responses import of_refusal
from service.wire.strict_json import BodyError
from service.wire.waiting import CALLER_GONE, CallerGoneError

_log: Final = logging.getLogger(__name__)

#: Messages that replace pydantic's, by pydantic's error type.
_FAULTS: Final = {"extra_forbidden": "is not a query parameter of this request; /openapi.json lists them"}

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST_SHOWN: Final = 200


def answer_errors(
    api: FastAPI, error_formats: ErrorFormats, retry_after: RetryAfter, failed: FailedRequests
) -> None:
    """Registers handlers that answer the API's errors in these formats, and keep them in `failed`."""

    def answered(request: Request, problem: Problem) -> Response:
        problem = retry_after.on(problem)
        route = getattr(request.scope.get("route"), "path", OTHER)
        failed.add(request.scope, route, request.path_params.get("topic"), problem)
        return of_refusal(error_formats.of(request.url.path)(problem), problem)

    async def on_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return answered(request, error.problem)

    async def on_body(request: Request, error: Exception) -> Response:
        assert isinstance(error, BodyError)
        return answered(request, problem_of_body(error))

    async def on_caller_gone(_: Request, error: Exception) -> Response:
        return Response(status_code=CALLER_GONE)

    async def on_invalid(request: Request, error: Exception) -> Response:
        """Answers 422 for an invalid parameter, with its place."""
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        fault = _FAULTS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
        return answered(request, Problem(422, f"{place}: {fault}", place=place, written=_written(request)))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers: HeaderPairs = [(n.lower().encode(), v.encode()) for n, v in (error.headers or {}).items()]
        detail, place = str(error.detail), None
        if isinstance(error, BodyTooLargeError):
            place = WHOLE_BODY
        elif error.status_code == 405:
            methods = _methods_of(api, request.scope)
            headers, place = [(b"allow", methods)], "method"
            detail = f"{request.method} is not possible for this path; use {methods.decode()}"
        elif error.status_code == 404:
            place = "path"
            detail = f"there is no path {request.scope['path'][:_LONGEST_SHOWN]}"
        problem = Problem(
            error.status_code, detail, place=place, written=_written(request), headers=tuple(headers)
        )
        return answered(request, problem)

    async def on_bug(request: Request, error: Exception) -> Response:
        _log.error("a request failed with an unexpected exception", exc_info=error)
        return answered(request, problem_of_bug())

    api.add_exception_handler(ProblemError, on_problem)
    api.add_exception_handler(BodyError, on_body)
    api.add_exception_handler(CallerGoneError, on_caller_gone)
    api.add_exception_handler(RequestValidationError, on_invalid)
    api.add_exception_handler(HTTPException, on_http)
    api.add_exception_handler(Exception, on_bug)


def _written(request: Request) -> str | None:
    """Returns the `written` of a request that no handler has begun to serve."""
    return None if request.method in _READING else Written.NO.value


def _methods_of(api: FastAPI, scope: Scope) -> bytes:
    """Returns the methods of all routes for a path. The router's Allow has only the first route's."""
    methods: set[str] = set()
    for route in api.routes:
        if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    if "GET" in methods:
        methods.add("HEAD")  # the guards answer HEAD for every path with a GET
    return ", ".join(sorted(methods)).encode()
