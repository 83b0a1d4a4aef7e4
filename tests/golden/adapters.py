"""Between the golden files and `client_core`: names and notations only, no knowledge of any one message.

Kafka's JSON form has camelCase names, bytes as base64 and ids as unpadded base64url; a field that is absent
has its default. Kafka's toString form (`MetadataRequestData(topics=[], ...)`) becomes the same JSON form.
"""

from __future__ import annotations

import base64
import importlib
import re
import types
from typing import Any, Final, NamedTuple, Protocol, cast, get_args, get_origin, get_type_hints
from uuid import UUID

#: Where Python had to give a field another name than Kafka's (see schema.py).
_RENAMED: Final = {"partition_index": "index"}


class Message(Protocol):
    """An instance of any generated message."""

    def encode(self, version: int) -> bytes: ...


class MessageClass(Protocol):
    """Any generated message class."""

    def decode(self, data: bytes, version: int, offset: int = 0) -> Message: ...


def message_class(name: str) -> MessageClass:
    """The class of `MetadataRequest` and the like."""
    module = importlib.import_module(f"client_core.protocol.messages.{snake_case(name)}")
    return cast("MessageClass", getattr(module, name))


def message_from_json(message: MessageClass, body: dict[str, Any]) -> Message:
    """The message of a body in Kafka's JSON form. Raises AssertionError for a name that it does not know."""
    return cast("Message", _struct(message, body))


def _struct(struct: Any, body: dict[str, Any]) -> Any:
    rest = dict(body)
    values = {}
    for name, annotation in get_type_hints(struct).items():
        for json_name in (camel_case(name), _RENAMED.get(name)):
            if json_name in rest:
                values[name] = _value(annotation, rest.pop(json_name))
    assert not rest, f"{struct.__name__} has no {', '.join(rest)}"
    return struct(**values)


def _value(annotation: Any, value: Any) -> Any:
    if isinstance(annotation, types.UnionType):
        [annotation] = [option for option in get_args(annotation) if option is not types.NoneType]
        return None if value is None else _value(annotation, value)
    if get_origin(annotation) is tuple:
        return tuple(_value(get_args(annotation)[0], element) for element in value)
    if annotation is bytes:
        return base64.b64decode(value)
    if annotation is UUID:
        return uuid_from_base64url(value)
    if issubclass(annotation, tuple):
        return _struct(annotation, value)
    assert type(value) is annotation, f"{value!r} is no {annotation.__name__}"
    return value


def uuid_from_base64url(text: str) -> UUID:
    """A Kafka id from its 22 characters without padding."""
    return UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))


def camel_case(name: str) -> str:
    """`throttle_time_ms` as `throttleTimeMs`."""
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def snake_case(name: str) -> str:
    """`ThrottleTimeMs` as `throttle_time_ms`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


#: Fields that Java keeps in sets, or in the order of its hash tables.
_UNORDERED: Final = {
    "internal",
    "invalid",
    "nodes",
    "nodes_with_connection_setup_timeout",
    "nodes_with_timed_out_requests",
    "ready_nodes",
    "result",
    "topics",
    "unauthorized",
    "unknown_leader_topics",
}


def in_order(kept: dict[str, Any]) -> dict[str, Any]:
    """What a trace's step keeps, its sets sorted: they are listed in whatever order Java's had."""
    return {name: _in_order(name, value) for name, value in kept.items()}


def _in_order(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return in_order(value)
    return sorted(value) if name in _UNORDERED and isinstance(value, list) else value


_TOKEN: Final = re.compile(r"'[^']*'|[\w-]+=|[\w-]+\(|[\w-]+|[\[\]()]")


class _Parsed(NamedTuple):
    value: Any
    rest: list[str]


def json_from_java_string(text: str) -> dict[str, Any]:
    """A message's JSON form from Java's toString."""
    parsed = _parse(_TOKEN.findall(text))
    assert not parsed.rest
    return cast("dict[str, Any]", parsed.value)


def _parse(tokens: list[str]) -> _Parsed:
    head, *rest = tokens
    if head.endswith("("):
        body: dict[str, Any] = {}
        while rest[0] != ")":
            name = rest[0].removesuffix("=")
            body[name], rest = _parse(rest[1:])
        return _Parsed(body, rest[1:])
    if head == "[":
        elements = []
        while rest[0] != "]":
            element, rest = _parse(rest)
            elements.append(element)
        return _Parsed(elements, rest[1:])
    words = {"null": None, "true": True, "false": False}
    if head in words:
        return _Parsed(words[head], rest)
    if re.fullmatch(r"-?\d+", head):
        return _Parsed(int(head), rest)
    return _Parsed(head.strip("'"), rest)
