"""REST Proxy v2's media types, for request bodies and for Accept.

    in    application/vnd.kafka.{json,binary,text}.v2+json    the format of keys and values
    out   application/vnd.kafka.v2+json                       always; Accept must allow this type or JSON

A type without a format (`application/json`, `application/vnd.kafka.v2+json`, none) is refused, as in
Confluent's proxy. Other proxies guess: one reads such a body as base64, another as JSON. A wrong guess would
write wrong data. Parameters such as charset are ignored; a body is UTF-8 or refused. Pure.
"""

from __future__ import annotations

from typing import Final

from service.wire.errors import refused
from service.wire.media_type import media_type_of, weights_of
from service.wire.payload import Format

ANSWER_TYPE: Final = "application/vnd.kafka.v2+json"

FORMATS: Final = {
    "application/vnd.kafka.json.v2+json": Format.JSON,
    "application/vnd.kafka.binary.v2+json": Format.BASE64,
    "application/vnd.kafka.text.v2+json": Format.TEXT,
}

#: Formats that need a schema from a registry.
_OF_SCHEMAS: Final = frozenset(
    f"application/vnd.kafka.{name}.v2+json" for name in ("avro", "jsonschema", "protobuf")
)

#: Names in Accept that match our answers.
_READABLE: Final = (ANSWER_TYPE, "application/vnd.kafka+json", "application/json", *FORMATS)


def format_of(content_type: bytes | None, encoding: bytes | None) -> Format:
    """Returns the format of a body's keys and values. Raises a 415 for an unsupported type."""
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise refused(415, "Content-Encoding is not supported")
    media_type = media_type_of(content_type).decode("latin-1")
    form = FORMATS.get(media_type)
    if form is not None:
        return form
    if media_type in _OF_SCHEMAS:
        detail = f"{media_type} needs a schema registry, which is not supported"
        raise refused(415, f"{detail}; the supported formats are json, binary and text")
    raise refused(415, f"Content-Type must be one of: {', '.join(FORMATS)}")


def check_accept(accept: bytes | None) -> None:
    """Raises a 406 for a caller who can't read our answers."""
    if accept is None or not accept.strip():
        return
    weights = weights_of(accept)
    if not any(_weight(name, weights) > 0 for name in _READABLE):
        raise refused(406, f"answers are {ANSWER_TYPE}; Accept must allow that, application/json or */*")


def _weight(name: str, weights: dict[str, float]) -> float:
    """Returns the weight of the most specific matching range."""
    for media_range in (name, "application/*", "*/*"):
        if media_range in weights:
            return weights[media_range]
    return 0.0
