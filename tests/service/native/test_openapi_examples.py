"""Every call of the document has examples, and each example is what the schema beside it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT: dict[str, Any] = HttpApp().app.api.openapi()


def contents() -> Iterator[Any]:
    """Every body of the document: of requests and of answers."""
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            bodies = {"body": operation["requestBody"]} if "requestBody" in operation else {}
            for name, body in {**bodies, **operation["responses"]}.items():
                for media_type, content in body.get("content", {}).items():
                    name_of_all = f"{method.upper()} {path} {name} {media_type}"
                    yield pytest.param(content, media_type, id=name_of_all)


def examples_of(content: dict[str, Any]) -> list[object]:
    named = [example["value"] for example in content.get("examples", {}).values()]
    return [*named, *([content["example"]] if "example" in content else [])]


@pytest.mark.parametrize(("content", "media_type"), list(contents()))
def test_an_example_is_what_its_schema_says(content: dict[str, Any], media_type: str) -> None:
    schema = {**content.get("schema", {}), "components": DOCUMENT["components"]}
    validator = jsonschema_rs.validator_for(schema)
    for example in examples_of(content):
        if media_type.endswith("json") and "ndjson" not in media_type:
            validator.validate(example)


@pytest.mark.parametrize(
    ("method", "path"),
    [(method, path) for path, operations in DOCUMENT["paths"].items() for method in operations],
)
def test_a_call_shows_what_it_takes_and_what_it_answers(method: str, path: str) -> None:
    operation = DOCUMENT["paths"][path][method]
    body = operation.get("requestBody", {}).get("content", {})
    good = [answer for status, answer in operation["responses"].items() if status < "300"]
    assert good
    for said in [body, *(answer.get("content", {}) for answer in good)]:
        for media_type, content in said.items():
            assert examples_of(content), media_type


def test_every_refusal_of_the_native_api_shows_a_problem() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values() if path.startswith("/v1/") else ():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    shown = answer["content"]["application/problem+json"]["example"]
                    assert shown["status"] == int(status)
