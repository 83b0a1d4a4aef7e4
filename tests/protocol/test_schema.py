"""Kafka's message definitions: their notation, and what is refused because no message here uses it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from client_core.protocol.message_code import module_text
from client_core.protocol.schema import (
    DefinitionError,
    MessageDefinition,
    Versions,
    parse_definition,
    snake_case,
)


def _message(*fields: dict[str, Any], **attributes: Any) -> MessageDefinition:
    message = {
        "apiKey": 3,
        "type": "request",
        "name": "PilotRequest",
        "validVersions": "0-4",
        "flexibleVersions": "3+",
        "fields": list(fields),
    }
    return parse_definition(json.dumps({**message, **attributes}))


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3", (3, 3)), ("3+", (3, 9)), ("3-5", (3, 5)), ("0-20", (0, 9)), ("none", (1, 0))],
)
def test_versions_are_read_and_clipped(text: str, versions: tuple[int, int]) -> None:
    assert Versions.parse(text, newest=9) == Versions(*versions)


@pytest.mark.parametrize("text", ["", "x", "3-", "-1", "3+4"])
def test_a_range_of_another_notation_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="versions"):
        Versions.parse(text, newest=9)


def test_comments_are_passed_over_but_not_inside_of_text() -> None:
    text = """// license
{
  // "apiKey": 1,
  "apiKey": 3, "name": "P", "validVersions": "0", "flexibleVersions": "none",
  "fields": [
    // A comment with "quotes".
    { "name": "A", "type": "int8", "versions": "0+", "about": "see https://kafka.apache.org" }
  ]
}
"""
    assert [field.name for field in parse_definition(text).struct.fields] == ["a"]


def test_a_last_version_that_is_unstable_is_left_out_with_its_fields() -> None:
    message = _message(
        {"name": "Old", "type": "int8", "versions": "0+"},
        {"name": "New", "type": "int8", "versions": "4+"},
        latestVersionUnstable=True,
    )
    assert message.versions == Versions(0, 3)
    assert [field.name for field in message.struct.fields] == ["old"]


def test_versions_of_a_field_lie_within_those_of_what_is_around_it() -> None:
    inner = {"name": "Id", "type": "int32", "versions": "0+"}
    message = _message({"name": "Nodes", "type": "[]Node", "versions": "2+", "fields": [inner]})
    struct = message.struct.fields[0].type.struct
    assert struct is not None
    assert struct.versions == struct.fields[0].versions == Versions(2, 4)


@pytest.mark.parametrize(
    ("name", "snake"),
    [("ThrottleTimeMs", "throttle_time_ms"), ("timeoutMs", "timeout_ms"), ("IsrNodes", "isr_nodes")],
)
def test_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake


@pytest.mark.parametrize(
    ("field", "fault"),
    [
        ({"type": "int8", "versions": "0+", "zeroCopy": True}, "zeroCopy"),
        ({"type": "float64", "versions": "0+"}, "type float64"),
        ({"type": "string", "versions": "0+", "default": "x"}, "default 'x'"),
        ({"type": "int8", "versions": "0+", "tag": 0, "taggedVersions": "3+"}, "tagged in some"),
        ({"type": "int8", "versions": "0+", "tag": 0, "taggedVersions": "0+"}, "tagged in some"),
        ({"type": 8, "versions": "0+"}, "type 8"),
    ],
)
def test_definitions_that_the_generator_does_not_know_are_refused_and_not_guessed(
    field: dict[str, Any], fault: str
) -> None:
    with pytest.raises(DefinitionError, match=fault):
        module_text(_message({"name": "Strange", **field}), "0")


def test_a_module_reads_in_the_order_of_the_wire() -> None:
    """The text of a whole small module's reading and writing, as a reviewer sees it."""
    message = _message(
        {"name": "TimeoutMs", "type": "int32", "versions": "0+"},
        {"name": "Acks", "type": "int16", "versions": "0+", "default": "-1"},
        {"name": "Strict", "type": "bool", "versions": "2-3"},
        {"name": "Topic", "type": "string", "versions": "0+", "nullableVersions": "1+", "ignorable": True},
    )
    text = module_text(message, "0")
    functions = text[text.index("def _read_pilot_request") :]
    assert (
        functions
        == """\
def _read_pilot_request(reader: Reader, version: int) -> PilotRequest:
    timeout_ms, acks = reader.unpack(_IH)
    strict = reader.boolean() if 2 <= version <= 3 else False
    topic = reader.nullable_string() if version >= 1 else reader.string()
    reader.skip_tags()
    return PilotRequest(timeout_ms, acks, strict, topic)


def _write_pilot_request(writer: Writer, version: int, message: PilotRequest) -> None:
    writer.pack(_IH, message.timeout_ms, message.acks)
    if 2 <= version <= 3:
        writer.boolean(message.strict)
    elif message.strict is not False:
        raise cannot_carry("PilotRequest", version, "strict")
    if message.topic is None and version < 1:
        raise cannot_carry_null("PilotRequest", version, "topic")
    writer.nullable_string(message.topic)
    writer.tags()
"""
    )
