"""Parses Kafka's message definitions: `common/message/*.json` in the kafka-clients jar.

The JSON has `//` comments on lines of their own. Versions are clipped: a message's to the valid ones, without
an unstable last one; a field's to those of its struct. `message_code.py` generates code from the result.
Called by `generate.py`, never at run time. Source: MessageSpec, FieldSpec, Versions of Kafka's generator,
4.3.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COMMENT_LINE: Final = re.compile(r"^\s*//.*$", re.MULTILINE)
_VERSIONS: Final = re.compile(r"(?P<first>\d+)(?:(?P<open>\+)|-(?P<last>\d+))?")
_FOLDER_IN_JAR: Final = "common/message"
_NO_VERSION_IS_NEWER: Final = 32_767  # an int16

#: JSON values: the border between Kafka's files and the values below.
Json = dict[str, "Json"] | list["Json"] | str | int | bool | None
JsonObject = dict[str, Json]


class DefinitionError(Exception):
    """A message definition uses something that this generator does not know."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends inclusive; empty when `first` is above `last`."""

    first: int
    last: int

    @staticmethod
    def parse(text: str, newest: int) -> Versions:
        """Parses `3`, `3+`, `3-9` or `none`; an open end stops at `newest`."""
        if text == "none":
            return Versions(1, 0)
        found = _VERSIONS.fullmatch(text)
        if found is None:
            raise DefinitionError(f"versions {text!r}")
        first = int(found["first"])
        last = newest if found["open"] else int(found["last"] or first)
        return Versions(first, min(last, newest))

    def __bool__(self) -> bool:
        return self.first <= self.last

    def __and__(self, other: Versions) -> Versions:
        return Versions(max(self.first, other.first), min(self.last, other.last))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class FieldType:
    """`string`, `int32`, ... or the name of a struct; `is_array` for an array of it."""

    name: str
    is_array: bool
    struct: StructDefinition | None


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """A field of a struct, its versions clipped to those of the message."""

    json_name: str  # Kafka's JSON name: throttleTimeMs
    name: str  # the Python name: throttle_time_ms
    type: FieldType
    versions: Versions
    nullable: Versions
    default: str | None  # as written in the definition; "null" is null
    ignorable: bool
    tag: int | None


@dataclass(frozen=True, slots=True)
class StructDefinition:
    """A struct, the versions that have it, and its fields in wire order."""

    name: str
    versions: Versions
    fields: tuple[FieldDefinition, ...]


@dataclass(frozen=True, slots=True)
class MessageDefinition:
    """A request or a response."""

    struct: StructDefinition
    api_key: int
    versions: Versions
    flexible: Versions

    @property
    def name(self) -> str:
        return self.struct.name

    def structs(self) -> Iterator[StructDefinition]:
        """Yields every struct of the message, inner ones first, the message itself last."""
        yield from _inside_out(self.struct)


def _inside_out(struct: StructDefinition) -> Iterator[StructDefinition]:
    for field in struct.fields:
        if field.type.struct is not None:
            yield from _inside_out(field.type.struct)
    yield struct


def read_definitions(jar: Path, api: str) -> tuple[MessageDefinition, MessageDefinition]:
    """Returns the request and the response of an API such as `Metadata`. Raises KeyError if the jar has none.

    Only the request's definition marks its last version unstable, so the response's versions follow it.
    """
    with zipfile.ZipFile(jar) as archive:
        request, response = (
            archive.read(f"{_FOLDER_IN_JAR}/{api}{kind}.json").decode() for kind in ("Request", "Response")
        )
    asked = parse_definition(request)
    return asked, parse_definition(response, newest=asked.versions.last)


def parse_definition(text: str, newest: int | None = None) -> MessageDefinition:
    """Returns a message definition from its JSON text. Raises DefinitionError for unknown features."""
    message = _object(json.loads(_COMMENT_LINE.sub("", text)))
    newest = _NO_VERSION_IS_NEWER if newest is None else newest
    versions = Versions.parse(_text(message, "validVersions"), newest)
    if message.get("latestVersionUnstable"):
        versions = Versions(versions.first, versions.last - 1)
    flexible = Versions.parse(_text(message, "flexibleVersions"), versions.last) & versions
    fields = _fields(message, versions, flexible)
    api_key = message["apiKey"]
    if not isinstance(api_key, int):
        raise DefinitionError(f"apiKey {api_key!r}")
    struct = StructDefinition(_text(message, "name"), versions, fields)
    return MessageDefinition(struct, api_key, versions, flexible)


def _fields(owner: JsonObject, owner_versions: Versions, flexible: Versions) -> tuple[FieldDefinition, ...]:
    members = owner["fields"]
    if not isinstance(members, list):
        raise DefinitionError(f"fields {members!r}")
    fields = (_field(_object(member), owner_versions, flexible) for member in members)
    return tuple(field for field in fields if field.versions)


def _field(member: JsonObject, owner_versions: Versions, flexible: Versions) -> FieldDefinition:
    name = _text(member, "name")
    if member.keys() - _KNOWN_ATTRIBUTES:
        raise DefinitionError(f"{name}: {', '.join(sorted(member.keys() - _KNOWN_ATTRIBUTES))}")
    versions = Versions.parse(_text(member, "versions"), owner_versions.last) & owner_versions
    tag = member.get("tag")
    if tag is not None:
        tagged = Versions.parse(_text(member, "taggedVersions"), owner_versions.last)
        if not isinstance(tag, int) or tagged & owner_versions != versions or versions & flexible != versions:
            raise DefinitionError(f"{name}: tagged in some of its versions only")
    default = member.get("default")
    return FieldDefinition(
        json_name=name[0].lower() + name[1:],
        name=_RENAMED.get(name, snake_case(name)),
        type=_type(member, versions, flexible),
        versions=versions,
        nullable=Versions.parse(_text(member, "nullableVersions", "none"), versions.last) & versions,
        default=None if default is None else str(default),
        ignorable=member.get("ignorable") is True,
        tag=tag,
    )


#: about, entityType and mapKey do not affect the bytes.
_KNOWN_ATTRIBUTES: Final = frozenset(
    {
        *("name", "type", "versions", "nullableVersions", "tag", "taggedVersions", "default", "ignorable"),
        *("about", "entityType", "mapKey", "fields"),
    }
)


#: A NamedTuple can't have a field `index`: tuples have a method of that name.
_RENAMED: Final = {"Index": "partition_index"}


def _type(member: JsonObject, versions: Versions, flexible: Versions) -> FieldType:
    text = _text(member, "type")
    name = text.removeprefix("[]")
    has_fields = "fields" in member
    struct = StructDefinition(name, versions, _fields(member, versions, flexible)) if has_fields else None
    return FieldType(name, is_array=text != name, struct=struct)


def snake_case(name: str) -> str:
    """Returns `throttle_time_ms` for `ThrottleTimeMs` and `throttleTimeMs`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise DefinitionError(f"an object expected, not {value!r}")
    return value


def _text(owner: JsonObject, attribute: str, absent: str | None = None) -> str:
    value = owner.get(attribute, absent)
    if not isinstance(value, str):
        raise DefinitionError(f"{owner.get('name')}: {attribute} {value!r}")
    return value
