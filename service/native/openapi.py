"""The OpenAPI document: FastAPI's routes plus common parts, made once, kept as bytes.

    errors     the models that the routes name
    guards     their answers, given before a route runs: 400, 401, 403, 421, and 503 in a shutdown
    examples   of every answer and refusal (openapi_examples.py)
    topics     the format of a topic's name, with an example
    security   a bearer token, where the sidecar has any

A route describes only its own part. `finished` is pure; `ReadyDocument` belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from fastapi import Request, Response
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.base.topic_names import MAX_LENGTH
from service.native.openapi_examples import ANSWERS, BODIES, problem
from service.wire.responses import Ready, of_ready
from service.wire.schemas import Examples

_OF_GUARDS: Final = {
    "400": "The request is malformed: a duplicate header or parameter, or an unknown path.",
    "401": "A token is required, and none or an unknown one was given.",
    "403": "Not allowed: the page is of another origin, or the caller's token does not allow the topic.",
    "421": "The Host is not in `allowed_hosts`.",
}
_OF_GUARDS_WITH_BODY: Final = {
    "503": "The sidecar is shutting down; nothing was written.",
}

_TOPIC: Final = {
    "description": "A topic's name.",
    "schema": {
        "type": "string",
        "pattern": "^[a-zA-Z0-9._-]+$",
        "minLength": 1,
        "maxLength": MAX_LENGTH,
        "examples": ["orders"],
    },
    "example": "orders",
}


#: The document's path.
DOCUMENT_PATH: Final = "/openapi.json"


class ReadyDocument:
    """The document as bytes with an ETag. Event loop only.

    Built on first request: most sidecars get none, and a start would take a fifth longer. The build takes
    some 150 ms of CPU, so a pool thread does it: the event loop gets the interpreter each switch interval.
    Concurrent callers share one build.
    """

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        """Calls `make` once, on a pool thread; again only if it raised."""
        self._make = make
        self._ready: Ready | None = None
        self._making: asyncio.Future[Ready] | None = None

    async def answer(self, request: Request) -> Response:
        """The document, or 304 if the caller has it."""
        if self._ready is None:
            if self._making is None:
                self._making = asyncio.get_running_loop().run_in_executor(None, self._encoded)
                self._making.add_done_callback(self._made)
            self._ready = await asyncio.shield(self._making)  # the first caller may leave
        return of_ready(request, self._ready)

    def _encoded(self) -> Ready:
        return Ready.of(msgspec.json.encode(self._make()))

    def _made(self, _: asyncio.Future[Ready]) -> None:
        self._making = None


def finished(
    document: dict[str, Any], error_models: Iterable[type[BaseModel]], examples: Examples
) -> dict[str, Any]:
    """Adds the common parts to `document`, in place, and returns it.

    `error_models` are the models named by the routes' error answers; `examples` are the dialects' answers.
    """
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "serialization") for model in error_models]
    _, errors = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    document["components"]["schemas"].update(errors["$defs"])
    for method, path, operation in _operations(document):
        _add_guards(operation, _OF_GUARDS if method == "get" else _OF_GUARDS | _OF_GUARDS_WITH_BODY)
        _add_examples(method, path, operation, {**ANSWERS, **examples})
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] == "topic":
                parameter.update(_TOPIC)
    document["components"].setdefault("securitySchemes", {})["token"] = {"type": "http", "scheme": "bearer"}
    document["security"] = [{}, {"token": []}]
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method, path, operation


def _add_examples(method: str, path: str, operation: dict[str, Any], examples: Examples) -> None:
    """Adds an example to each JSON content without one."""
    if (method, path) in BODIES:
        operation["requestBody"]["content"]["application/json"].setdefault("example", BODIES[method, path])
    for status, answer in operation["responses"].items():
        example = examples.get((method, path, status))
        for media_type, content in answer.get("content", {}).items():
            if media_type == "application/problem+json":
                content.setdefault("example", problem(int(status), answer["description"]))
            elif example is not None and media_type.endswith("json"):
                content.setdefault("example", example)


def _add_guards(operation: dict[str, Any], answers: dict[str, str]) -> None:
    """Adds the guards' refusals, in the format of the route's own errors."""
    responses = operation["responses"]
    own = next((a["content"] for s, a in sorted(responses.items()) if s >= "400" and "content" in a), None)
    for status, description in answers.items():
        if own is not None:
            content = {kind: {"schema": said["schema"]} for kind, said in own.items()}
            responses.setdefault(status, {"description": description, "content": content})
    operation["responses"] = dict(sorted(responses.items()))
