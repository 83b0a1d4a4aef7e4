"""The OpenAPI document: what FastAPI knows of the routes, and what holds for all. Made once, kept as bytes.

    errors     the models that the routes name
    guards     what may be answered before a route is asked: 400, 401, 403, 421, and 503 in a shutdown
    examples   of every answer and refusal (openapi_examples.py)
    topics     how a topic's name may look, with one to try
    security   a bearer token, where the sidecar was given any

A route says only what is its own. `finished` is pure; `ReadyDocument` belongs to the event loop.
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
    "401": "The sidecar wants a token, and this is none that it knows.",
    "403": "Not allowed: the page that asks is of another origin, or the topic is not among the caller's.",
    "421": "The Host is not one that the sidecar answers to.",
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


#: Where the document is served.
DOCUMENT_PATH: Final = "/openapi.json"


class ReadyDocument:
    """The document as bytes with an ETag. Event loop only.

    It is made when somebody asks first: most sidecars are never asked, and a start would take a fifth longer.
    That takes some 150 ms of CPU, so a pool thread does it: the event loop gets the interpreter each
    switch interval. All who ask meanwhile wait for the same making.
    """

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        """`make` is called on a pool thread, once; again only where it raised."""
        self._make = make
        self._ready: Ready | None = None
        self._making: asyncio.Future[Ready] | None = None

    async def answer(self, request: Request) -> Response:
        """The document, or 304 where the caller holds it."""
        if self._ready is None:
            if self._making is None:
                self._making = asyncio.get_running_loop().run_in_executor(None, self._encoded)
                self._making.add_done_callback(self._made)
            self._ready = await asyncio.shield(self._making)  # whoever asked first may leave
        return of_ready(request, self._ready)

    def _encoded(self) -> Ready:
        return Ready.of(msgspec.json.encode(self._make()))

    def _made(self, _: asyncio.Future[Ready]) -> None:
        self._making = None


def finished(
    document: dict[str, Any], error_models: Iterable[type[BaseModel]], examples: Examples
) -> dict[str, Any]:
    """The document with what holds for every operation. Changes and returns what it is given.

    `error_models` are those that the routes' error answers name, `examples` those of the dialects' answers.
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
    """An example for each JSON that has none of its route's own."""
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
    """The guards' refusals, in the form of the route's own."""
    responses = operation["responses"]
    own = next((a["content"] for s, a in sorted(responses.items()) if s >= "400" and "content" in a), None)
    for status, description in answers.items():
        if own is not None:
            content = {kind: {"schema": said["schema"]} for kind, said in own.items()}
            responses.setdefault(status, {"description": description, "content": content})
    operation["responses"] = dict(sorted(responses.items()))
