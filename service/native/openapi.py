"""The OpenAPI document: FastAPI's routes plus common parts, made once, kept as bytes.

    errors     the models that the routes name
    guards     their answers, given before a route runs: 400, 401, 403, 421, and 503 in a shutdown
    headers    of refusals; where an answer has an ETag, If-None-Match and 304
    links      which other operations an answer leads to (openapi_examples.py)
    examples   of every answer and refusal (openapi_examples.py)
    topics     the format of a topic's name, with an example
    names      a schema for each object with a title
    security   a bearer token, where the sidecar has any

It is OpenAPI 3.0: FastAPI writes 3.1, which some generators refuse and others warn of. A route describes only
its own part. `finished` is pure; `ReadyDocument` belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Final

import msgspec
from fastapi import Request, Response
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.native.openapi_examples import ANSWERS, BODIES, LINKS, problem
from service.wire.errors import ErrorFormat, ErrorFormats
from service.wire.long_answers import LongBody
from service.wire.responses import HEADERS, of_long
from service.wire.schemas import TOPIC_NAME, Examples

_OF_GUARDS: Final = {
    "400": "The request is malformed: a duplicate header or parameter, or an unknown path.",
    "401": "A token is required, and none or an unknown one was given.",
    "403": "Not allowed: the page is of another origin, or the caller's token does not allow the topic.",
    "421": "The Host is not in `allowed_hosts`.",
}
_OF_GUARDS_WITH_BODY: Final = {
    "503": "The sidecar is shutting down; nothing of this request was written.",
}

_TOPIC: Final = {
    "description": "A topic's name.",
    "schema": {**TOPIC_NAME, "examples": ["orders"]},
    "example": "orders",
}

#: The headers that the guards and the error formats add.
_HEADERS_OF_REFUSALS: Final = {
    "401": ("WWW-Authenticate",),
    "429": ("Retry-After",),
    "503": ("Retry-After",),
}
_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "description": "The ETag of an earlier answer: 304 if it is still the same.",
    "schema": {"type": "string"},
}
_NULL: Final = {"type": "null"}
_SCHEMAS: Final = "#/components/schemas/"
_VERSION: Final = "3.0.3"

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
        self._ready: LongBody | None = None
        self._making: asyncio.Future[LongBody] | None = None

    async def answer(self, request: Request) -> Response:
        """The document, or 304 if the caller has it."""
        if self._ready is None:
            if self._making is None:
                self._making = asyncio.get_running_loop().run_in_executor(None, self._encoded)
                self._making.add_done_callback(self._made)
            self._ready = await asyncio.shield(self._making)  # the first caller may leave
        return of_long(request, self._ready, [])

    def _encoded(self) -> LongBody:
        return LongBody.of([msgspec.json.encode(self._make())])

    def _made(self, _: asyncio.Future[LongBody]) -> None:
        self._making = None


def finished(
    document: dict[str, Any],
    error_models: Iterable[type[BaseModel]],
    examples: Examples,
    error_formats: ErrorFormats,
    open_paths: Container[str],
) -> dict[str, Any]:
    """Adds the common parts to FastAPI's `document`, and returns it as OpenAPI 3.0.

    `error_models` are the models named by the routes' error answers; `examples` are the dialects' answers;
    `error_formats` make the example of each refusal; `open_paths` need no token. Changes `document`.
    """
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "serialization") for model in error_models]
    _, errors = models_json_schema(modes, ref_template=_SCHEMAS + "{model}")
    schemas: dict[str, Any] = document["components"]["schemas"]
    schemas.update(errors["$defs"])
    for schema in schemas.values():
        _drop_titles(schema)
    for method, path, operation in _operations(document):
        _drop_unnamed_422(operation)
        _add_guards(operation, _OF_GUARDS if method == "get" else _OF_GUARDS | _OF_GUARDS_WITH_BODY)
        if path in open_paths:
            del operation["responses"]["401"]
        _add_headers(operation)
        _add_links(operation)
        _add_examples(method, path, operation, {**ANSWERS, **examples}, error_formats.of(path))
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] == "topic":
                parameter.update(_TOPIC)
        for content in operation.get("requestBody", {}).get("content", {}).values():
            # Some generators warn of an example that is beside the schema.
            content["schema"] = {**content["schema"], "example": content.pop("example")}
            content["schema"] = _named(content["schema"], schemas)
    document["components"].setdefault("securitySchemes", {})["token"] = {"type": "http", "scheme": "bearer"}
    document["security"] = [{}, {"token": []}]
    _in_3_0(document)
    document["components"]["schemas"] = _flat(document, schemas)
    document["openapi"] = _VERSION
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method, path, operation


def _drop_unnamed_422(operation: dict[str, Any]) -> None:
    """Drops the 422 that FastAPI adds to a route with any parameter, if the route does not name it itself."""
    for content in operation["responses"].get("422", {}).get("content", {}).values():
        if content["schema"].get("$ref") == _SCHEMAS + "HTTPValidationError":
            del operation["responses"]["422"]
            return


def _add_guards(operation: dict[str, Any], answers: dict[str, str]) -> None:
    """Adds the guards' refusals, in the format of the route's own errors."""
    responses = operation["responses"]
    own = next((a["content"] for s, a in sorted(responses.items()) if s >= "400" and "content" in a), None)
    for status, description in answers.items():
        if own is not None:
            content = {kind: {"schema": said["schema"]} for kind, said in own.items()}
            responses.setdefault(status, {"description": description, "content": content})


def _add_headers(operation: dict[str, Any]) -> None:
    """Adds the headers of refusals, and to an answer with an ETag the request for it and its 304."""
    responses = operation["responses"]
    for status, names in _HEADERS_OF_REFUSALS.items():
        if status in responses:
            responses[status].setdefault("headers", {}).update({name: dict(HEADERS[name]) for name in names})
    headers = responses.get("200", {}).get("headers", {})
    if "ETag" in headers:
        operation.setdefault("parameters", []).append(dict(_IF_NONE_MATCH))
        responses["304"] = {"description": "The caller has this answer already.", "headers": headers}
    operation["responses"] = dict(sorted(responses.items()))


def _add_links(operation: dict[str, Any]) -> None:
    for status, links in LINKS.get(operation.get("operationId", ""), {}).items():
        operation["responses"][status]["links"] = {
            name: {"operationId": target, "parameters": dict(parameters)}
            for name, (target, parameters) in links.items()
        }


def _add_examples(
    method: str, path: str, operation: dict[str, Any], examples: Examples, error_format: ErrorFormat
) -> None:
    """Adds an example to each content without one. Those of refusals are made as the refusals are."""
    if (method, path) in BODIES:
        operation["requestBody"]["content"]["application/json"].setdefault("example", BODIES[method, path])
    for status, answer in operation["responses"].items():
        example = examples.get((method, path, status))
        for media_type, content in answer.get("content", {}).items():
            if status >= "400":
                refusal = error_format(problem(int(status), answer["description"]))
                content.setdefault("example", msgspec.json.decode(refusal.body))
            elif example is not None and media_type.endswith("json"):
                content.setdefault("example", example)


def _named(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Moves each object with a title to the `schemas`, and returns a reference in its place.

    Generators name what has no name by where they find it, differently each.
    """
    moved: dict[str, Any] = dict(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(moved.get(key), dict):
            moved[key] = _named(moved[key], schemas)
    if "properties" in moved:
        moved["properties"] = {name: _named(each, schemas) for name, each in moved["properties"].items()}
    title = moved.pop("title", None)
    if title is None or "properties" not in moved:
        return moved
    assert schemas.setdefault(title, moved) == moved, f"two schemas have the title {title}"
    return {"$ref": _SCHEMAS + title}


def _drop_titles(schema: dict[str, Any]) -> None:
    """Drops pydantic's title of each member: it repeats the member's name."""
    for each in schema.get("properties", {}).values():
        each.pop("title", None)
    schema.pop("title", None)


# -- OpenAPI 3.0 ---------------------------------------------------------------------------------------------


def _in_3_0(document: dict[str, Any]) -> None:
    """Rewrites each schema of a 3.1 document, in place."""
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        schemas[name] = _schema_in_3_0(schema)
    for _, _, operation in _operations(document):
        answers = operation["responses"].values()
        contents = (place.get("content", {}) for place in (operation.get("requestBody", {}), *answers))
        headers = (answer.get("headers", {}) for answer in answers)
        described = (each for map_ in (*contents, *headers) for each in map_.values())
        parameters = operation.get("parameters", ())
        for holder in (*parameters, *described):
            holder["schema"] = _schema_in_3_0(holder["schema"])
        for parameter in parameters:  # pydantic's None is a parameter that is absent, not one that is null
            parameter["schema"].pop("nullable", None)


def _schema_in_3_0(said: dict[str, Any]) -> dict[str, Any]:
    """Null as `nullable`, one type, no `const`. Numbers have 64 bits, which many generators do not assume."""
    schema = dict(said)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = _schema_in_3_0(schema[key])
    if "properties" in schema:
        schema["properties"] = {name: _schema_in_3_0(each) for name, each in schema["properties"].items()}
    types = schema.get("type")
    options = [{"type": each} for each in types] if isinstance(types, list) else schema.get("anyOf")
    if options is not None:
        schema = {name: each for name, each in schema.items() if name not in ("type", "anyOf")}
        schema |= {"nullable": True} if _NULL in options else {}
        left = [_schema_in_3_0(each) for each in options if each != _NULL]
        schema |= {"anyOf": left} if len(left) > 1 else left[0]
    elif types == "null":
        schema |= {"type": "string", "nullable": True}
    if "$ref" in schema and len(schema) > 1:  # 3.0 ignores what is beside a reference
        schema["allOf"] = [{"$ref": schema.pop("$ref")}]
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "examples" in schema:
        schema["example"] = schema.pop("examples")[0]
    if schema.pop("contentEncoding", None) is not None:
        schema["format"] = "byte"
    if schema.get("type") == "integer":
        schema.setdefault("format", "int64")
    if schema.get("default", ...) is None:  # the same as no default, and no JSON type to some generators
        del schema["default"]
    return schema


def _flat(document: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Makes one schema of each choice between objects, in place; returns the schemas that are referred to.

    Generators try the objects one after the other, and some take the first even if it does not fit.
    """
    for _, holder in list(_all_of(document)):
        refs = [each["$ref"] for each in holder.get("anyOf", ()) if "$ref" in each]
        if len(refs) > 1:
            names = [ref.removeprefix(_SCHEMAS) for ref in refs]
            name = "Or".join(names)
            schemas[name] = _either([schemas[each] for each in names], " or ".join(names))
            del holder["anyOf"]
            holder["$ref"] = _SCHEMAS + name
    needed: set[str] = set()
    left = [holder for path, holder in _all_of(document) if path[:2] != ("components", "schemas")]
    while left:
        found = {each["$ref"].removeprefix(_SCHEMAS) for each in left if isinstance(each.get("$ref"), str)}
        left = [holder for name in found - needed for _, holder in _all_of(schemas[name])]
        needed |= found
    return {name: schema for name, schema in sorted(schemas.items()) if name in needed}


def _either(options: list[dict[str, Any]], description: str) -> dict[str, Any]:
    """Returns an object with the members of all; those that all have in common are required."""
    members: dict[str, Any] = {}
    for option in options:
        for name, schema in option["properties"].items():
            members[name] = _common(members[name], schema) if name in members else schema
    required = [name for name in members if all(name in each.get("required", ()) for each in options)]
    either = {"type": "object", "description": f"{description}.", "properties": members}
    return {**either, "required": required} if required else either


def _common(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema of both values."""
    common = {key: value for key, value in one.items() if other.get(key) == value}
    if "enum" in one and "enum" in other:
        common["enum"] = [*dict.fromkeys([*one["enum"], *other["enum"]])]
    return common | ({"nullable": True} if "nullable" in {*one, *other} else {})


def _all_of(value: Any, *path: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yields each object of the document with the names that lead to it, without the examples."""
    if isinstance(value, dict):
        yield path, value
        for name, each in value.items():
            if name != "example":
                yield from _all_of(each, *path, name)
    elif isinstance(value, list):
        for each in value:
            yield from _all_of(each, *path)
