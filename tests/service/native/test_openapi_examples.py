"""Every call of the document has examples, each fits its schema, and nothing is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema_rs

from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT: dict[str, Any] = HttpApp().app.api.openapi()


def contents() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every body of the document, of requests and of answers: its place, its media type and its value."""
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            bodies = {"body": operation["requestBody"]} if "requestBody" in operation else {}
            for name, body in {**bodies, **operation["responses"]}.items():
                for media_type, content in body.get("content", {}).items():
                    yield f"{method.upper()} {path} {name} {media_type}", media_type, content


def examples_of(content: dict[str, Any]) -> list[object]:
    named = [example["value"] for example in content.get("examples", {}).values()]
    return [*named, *([content["example"]] if "example" in content else [])]


def test_an_example_is_what_its_schema_says() -> None:
    looked_at = 0
    for place, media_type, content in contents():
        schema = {**content.get("schema", {}), "components": DOCUMENT["components"]}
        validator = jsonschema_rs.validator_for(schema)
        for example in examples_of(content):
            if media_type.endswith("json") and "ndjson" not in media_type:
                looked_at += 1
                assert [str(error) for error in validator.iter_errors(example)] == [], place
    assert looked_at > 100


def test_a_call_shows_what_it_takes_and_what_it_answers() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {})
            good = [answer for status, answer in operation["responses"].items() if status < "300"]
            assert good, (method, path)
            for said in [body, *(answer.get("content", {}) for answer in good)]:
                for media_type, content in said.items():
                    assert examples_of(content), (method, path, media_type)


def test_every_refusal_of_the_native_api_shows_a_problem() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values() if path.startswith("/v1/") else ():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    shown = answer["content"]["application/problem+json"]["example"]
                    assert shown["status"] == int(status)


def everything(value: Any, *path: str | int) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value of the document, with the names that lead to it."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from everything(each, *path, name)


def test_no_text_and_no_name_in_the_document_is_empty() -> None:
    empty = {
        path[1:4] if value == "" else path
        for path, value in everything(DOCUMENT)
        if value == "" or (isinstance(value, dict) and "" in value)
    }
    # A search that finds every topic, and Dapr's `metadata.rawPayload=`.
    publish = [path for path in DOCUMENT["paths"] if "/publish/" in path]
    of_dapr = {(path, method, "parameters") for path in publish for method in ("post", "put")}
    assert empty == {("/v1/topics", "get", "parameters"), *of_dapr}


def test_numbers_begin_at_0_and_what_may_not_be_empty_has_one_character_or_item() -> None:
    limits: dict[object, set[object]] = {}
    for path, value in everything(DOCUMENT):
        if path and path[-1] in ("minimum", "minLength", "minItems") and value != 0:
            limits.setdefault(path[-1], set()).add((*path[1:4:2], value) if path[-1] == "minimum" else value)
    publish = {(path, "parameters", 1) for path in DOCUMENT["paths"] if "/publish/" in path}
    # How many records failed.
    records = {("/v1/topics/{topic}/records", "responses", 1), ("/v1/records", "responses", 1)}
    minima = {("/v1/watch", "parameters", 250), *records, *publish}
    assert limits == {"minimum": minima, "minLength": {1}, "minItems": {1}}


def test_a_body_is_required_and_has_no_other_members_than_the_document_names() -> None:
    optional, open_shapes = set(), set()
    for path, value in everything(DOCUMENT):
        if path[-1:] == ("requestBody",) and not value.get("required"):
            optional.add(path[1])
        if path[-1:] == ("additionalProperties",) and value is True:
            open_shapes.add(path[2])
    assert optional == {"/v1.0/publish/{pubsub}/{topic}", "/v1.0/metadata/{key}"}
    assert open_shapes == {"MetadataAnswer"}
