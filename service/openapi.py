"""The OpenAPI document as it leaves the house: what FastAPI knows of the routes, and what holds for all.

    errors     the models that the routes name
    guards     what may be answered before a route is asked: 400, 401, 403, 421, and 503 in a shutdown
    examples   of every answer and refusal (openapi_examples.py)
    topics     how a topic's name may look, with one to try
    security   a bearer token, where the sidecar was given any

A route says only what is its own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.openapi_examples import ANSWERS, BODIES, problem
from service.topic_names import MAX_LENGTH

_OF_GUARDS: Final = {
    "400": "The request is malformed: a header or parameter stands twice, or the path is none of ours.",
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


def finished(document: dict[str, Any], error_models: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """The document with what holds for every operation. Changes and returns what it is given.

    `error_models` are those that the routes' error answers name.
    """
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "serialization") for model in error_models]
    _, errors = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    document["components"]["schemas"].update(errors["$defs"])
    for method, path, operation in _operations(document):
        _add_guards(operation, _OF_GUARDS if method == "get" else _OF_GUARDS | _OF_GUARDS_WITH_BODY)
        _add_examples(method, path, operation)
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


def _add_examples(method: str, path: str, operation: dict[str, Any]) -> None:
    """An example for each JSON that has none of its route's own."""
    if (method, path) in BODIES:
        operation["requestBody"]["content"]["application/json"].setdefault("example", BODIES[method, path])
    for status, answer in operation["responses"].items():
        example = ANSWERS.get((method, path, status))
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
