"""Which bodies REST Proxy v2 reads, and for whom it answers."""

from __future__ import annotations

import pytest

from service.dialects.rest_v2.media_types import check_accept, format_of
from service.wire.errors import ProblemError
from service.wire.payload import Format


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        (b"application/vnd.kafka.json.v2+json", Format.JSON),
        (b"application/vnd.kafka.binary.v2+json", Format.BASE64),
        (b"application/vnd.kafka.text.v2+json", Format.TEXT),
        (b"Application/Vnd.Kafka.JSON.v2+json", Format.JSON),
        (b"application/vnd.kafka.json.v2+json; charset=utf-8", Format.JSON),
        (b'application/vnd.kafka.text.v2+json ;charset="ISO-8859-1"; x=y', Format.TEXT),
    ],
)
def test_the_type_says_how_keys_and_values_are_written(content_type: bytes, form: Format) -> None:
    assert format_of(content_type, None) is form
    assert format_of(content_type, b"identity") is form


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        b"",
        b"text/plain",
        b"application/json",
        b"application/octet-stream",
        b"application/x-www-form-urlencoded",
        b"application/vnd.kafka.v2+json",
        b"application/vnd.kafka+json",
        b"application/vnd.kafka.json.v1+json",
        b"application/vnd.kafka.json.v3+json",
        b"application/vnd.kafka.json.v2+xml",
        b"application/vnd.kafka.json.v2+json, application/vnd.kafka.json.v2+json",
        b"\xff",
    ],
)
def test_a_type_that_leaves_the_format_open_is_refused_and_not_guessed(content_type: bytes | None) -> None:
    with pytest.raises(ProblemError) as refused:
        format_of(content_type, None)
    assert refused.value.problem.status == 415
    assert "application/vnd.kafka.binary.v2+json" in refused.value.problem.detail


@pytest.mark.parametrize("name", ["avro", "jsonschema", "protobuf"])
def test_a_format_that_needs_a_registry_is_refused_in_a_plain_sentence(name: str) -> None:
    media_type = f"application/vnd.kafka.{name}.v2+json"
    with pytest.raises(ProblemError) as refused:
        format_of(f"{media_type}; charset=utf-8".encode(), None)
    assert refused.value.problem.status == 415
    assert refused.value.problem.detail == (
        f"{media_type} needs a schema registry, and this proxy knows none; "
        "its formats are json, binary and text"
    )


def test_an_encoded_body_is_refused() -> None:
    with pytest.raises(ProblemError) as refused:
        format_of(b"application/vnd.kafka.json.v2+json", b"gzip")
    assert refused.value.problem.status == 415


@pytest.mark.parametrize(
    "accept",
    [
        None,
        b"",
        b"*/*",
        b"application/*",
        b"application/json",
        b"application/json; charset=utf-8",
        b"application/vnd.kafka.v2+json",
        b"APPLICATION/VND.KAFKA.V2+JSON",
        b"application/vnd.kafka+json",
        b"application/vnd.kafka.v2+json; q=0.9, application/json; q=0.5",
        b"application/vnd.kafka.json.v2+json",
        b"application/vnd.kafka.json.v2+json, application/vnd.kafka.v2+json, application/json, */*",
        b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        b"text/plain;q=0.9 , */* ; q=0.1",
        b"application/json;q=0, */*",
        b"application/json;q=broken, application/vnd.kafka.v2+json;q=1.0",
        b"\xff/\xfe, */*",
    ],
)
def test_who_can_read_json_is_answered(accept: bytes | None) -> None:
    check_accept(accept)


@pytest.mark.parametrize(
    "accept",
    [
        b"text/plain",
        b"text/*",
        b"application/xml",
        b"application/octet-stream",
        b"application/vnd.kafka.v1+json",
        b"application/vnd.kafka.v3+json",
        b"application/vnd.kafka.avro.v2+json",
        b"*/*;q=0",
        b"application/*;q=0.0, text/html",
        b"application/json;q=nonsense",
        b",",
        b"nonsense",
    ],
)
def test_who_can_not_is_told_what_there_is(accept: bytes) -> None:
    with pytest.raises(ProblemError) as refused:
        check_accept(accept)
    assert refused.value.problem.status == 406
    assert "application/vnd.kafka.v2+json" in refused.value.problem.detail
