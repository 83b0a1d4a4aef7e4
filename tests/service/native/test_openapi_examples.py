"""Every call of the document has examples, each fits its schema, and nothing is empty."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from service.native.openapi_examples import LINKS
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import Iterator

#: `lookUpLeader`, `listTopicsV2`.
WORDS: Final = re.compile(r"[a-z]+([A-Z][a-z]+)*(V[23])?")


@cache
def document() -> dict[str, Any]:
    """Not made where tests are only collected."""
    made: dict[str, Any] = HttpApp().app.api.openapi()
    return made


def contents() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every body of the document, of requests and of answers: its place, its media type and its value."""
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            bodies = {"body": operation["requestBody"]} if "requestBody" in operation else {}
            for name, body in {**bodies, **operation["responses"]}.items():
                for media_type, content in body.get("content", {}).items():
                    yield f"{method.upper()} {path} {name} {media_type}", media_type, content


def schema_of(content: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, where there is a reference."""
    schema: dict[str, Any] = content["schema"]
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    return document()["components"]["schemas"][name] if name else schema


def examples_of(content: dict[str, Any]) -> list[object]:
    """The example beside a schema, or in it."""
    return [place["example"] for place in (content, schema_of(content)) if "example" in place]


def in_3_1(value: Any) -> Any:
    """A part of the document for a validator that does not know `nullable`."""
    if isinstance(value, list):
        return [in_3_1(each) for each in value]
    if not isinstance(value, dict):
        return value
    part = {name: in_3_1(each) for name, each in value.items() if name not in ("nullable", "example")}
    return {"anyOf": [part, {"type": "null"}]} if value.get("nullable") is True else part


def test_an_example_is_what_its_schema_says() -> None:
    looked_at = 0
    for place, media_type, content in contents():
        schema = in_3_1({**content["schema"], "components": document()["components"]})
        validator = jsonschema_rs.validator_for(schema)
        for example in examples_of(content):
            if media_type.endswith("json"):
                looked_at += 1
                assert [str(error) for error in validator.iter_errors(example)] == [], place
    assert looked_at > 100


def test_a_call_shows_what_it_takes_and_what_it_answers() -> None:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {})
            good = [answer for status, answer in operation["responses"].items() if status < "300"]
            assert good, (method, path)
            for said in [body, *(answer.get("content", {}) for answer in good)]:
                for media_type, content in said.items():
                    assert examples_of(content), (method, path, media_type)


def test_every_status_shows_its_answer_and_has_a_schema_with_a_name() -> None:
    """A route lacks one: `response_model`, `problems(…)` or the example in openapi_examples.py."""
    without_content = {"204", "304"}
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                at = (method, path, status)
                assert ("content" in answer) is (status not in without_content), at
                for content in answer.get("content", {}).values():
                    assert examples_of(content), at
                    assert has_name(content["schema"]), at
                if status >= "400" and path.startswith("/v1/"):
                    shown = answer["content"]["application/problem+json"]["example"]
                    assert shown["status"] == int(status)


def has_name(schema: dict[str, Any]) -> bool:
    """Whether no generator has to make up a name: text, bytes, a reference, or a list of such."""
    if schema.get("type") == "array":
        return has_name(schema["items"])
    return "$ref" in schema or schema.get("type") == "string"


def test_every_body_has_a_schema_with_a_name_or_takes_anything() -> None:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                schema = content["schema"]
                assert has_name(schema) or not schema.keys() - {"description", "example"}, (method, path)


def test_objects_within_a_schema_have_names_too() -> None:
    for name, schema in document()["components"]["schemas"].items():
        assert [path for path, _ in everything(schema) if path.count("properties") > 1] == [], name


def test_the_operations_have_the_names_that_clients_were_generated_with() -> None:
    """A renamed operation breaks every generated client. A new one needs a line in operations.txt."""
    found = {
        f"{operation.get('operationId')} {method.upper()} {path}"
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
    }
    listed = (Path(__file__).parent / "operations.txt").read_text(encoding="utf-8").splitlines()
    assert listed == sorted(listed)
    assert found == set(listed)
    names = [line.split()[0] for line in listed]
    assert len(set(names)) == len(names)
    assert [name for name in names if not WORDS.fullmatch(name)] == []


def test_links_lead_to_operations_and_their_parameters() -> None:
    by_id = {o["operationId"]: o for operations in document()["paths"].values() for o in operations.values()}
    links = [
        link
        for operation in by_id.values()
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert len(links) == sum(len(each) for statuses in LINKS.values() for each in statuses.values())
    for link in links:
        parameters = {parameter["name"] for parameter in by_id[link["operationId"]]["parameters"]}
        assert set(link["parameters"]) <= parameters, link


def test_no_choice_between_objects_is_left_to_generators() -> None:
    for path, value in everything(document()):
        if isinstance(value, dict) and "anyOf" in value:
            assert [option for option in value["anyOf"] if "$ref" in option] == [], path


def everything(value: Any, *path: str | int) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value of the document, with the names that lead to it."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from everything(each, *path, name)


def test_no_text_and_no_name_in_the_document_is_empty() -> None:
    empty = {
        path[1:4] if value == "" else path
        for path, value in everything(document())
        if value == "" or (isinstance(value, dict) and "" in value)
    }
    assert empty == {("/v1/topics", "get", "parameters")}  # a search that finds every topic


def test_numbers_begin_at_0_and_what_may_not_be_empty_has_one_character_or_item() -> None:
    limits: dict[object, set[object]] = {}
    for path, value in everything(document()):
        if "headers" in path or value == 0:
            continue
        if path and path[-1] in ("minimum", "minLength", "minItems"):
            limits.setdefault(path[-1], set()).add((*path[1:4:2], value) if path[-1] == "minimum" else value)
    minima = {("/v1/watch", "parameters", 250)}
    assert limits == {"minimum": minima, "minLength": {1}, "minItems": {1}}


def test_a_body_is_required_and_has_no_other_members_than_the_document_names() -> None:
    optional, open_shapes = set(), set()
    for path, value in everything(document()):
        if path[-1:] == ("requestBody",) and not value.get("required"):
            optional.add(path[1])
        if path[-1:] == ("additionalProperties",) and value is True:
            open_shapes.add(path[2])
    assert optional == {"/v1.0/publish/{pubsub}/{topic}", "/v1.0/metadata/{key}"}
    assert open_shapes == {"MetadataAnswer", "CloudEvent"}
