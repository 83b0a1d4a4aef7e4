"""The media types of REST Proxy v2: what a body's type says of its records, and which answers a caller takes.

    in    application/vnd.kafka.{json,binary,text}.v2+json    how keys and values are written
    out   application/vnd.kafka.v2+json                       for whoever can read that, or JSON

A type that leaves the format open (`application/json`, `application/vnd.kafka.v2+json`, none at all) is
refused, as Confluent's proxy refuses it: one of its peers takes it for base64, another for JSON, and a guess
would write something else than was meant. Parameters such as charset are ignored; a body is UTF-8 or refused.
Pure.
"""

from __future__ import annotations

from typing import Final

from service.wire.errors import refused
from service.wire.payload import Format

ANSWER_TYPE: Final = "application/vnd.kafka.v2+json"

FORMATS: Final = {
    "application/vnd.kafka.json.v2+json": Format.JSON,
    "application/vnd.kafka.binary.v2+json": Format.BASE64,
    "application/vnd.kafka.text.v2+json": Format.TEXT,
}

#: Those whose records can only be written with a schema from a registry.
_OF_SCHEMAS: Final = frozenset(
    f"application/vnd.kafka.{name}.v2+json" for name in ("avro", "jsonschema", "protobuf")
)

#: By which names a caller may ask for what we answer.
_READABLE: Final = (ANSWER_TYPE, "application/vnd.kafka+json", "application/json", *FORMATS)


def format_of(content_type: bytes | None, encoding: bytes | None) -> Format:
    """How the keys and values of a body are written. Raises a 415 for what is not served."""
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise refused(415, "Content-Encoding is not supported")
    media_type = (content_type or b"").partition(b";")[0].strip().lower().decode("latin-1")
    form = FORMATS.get(media_type)
    if form is not None:
        return form
    if media_type in _OF_SCHEMAS:
        detail = f"{media_type} needs a schema registry, and this proxy knows none"
        raise refused(415, f"{detail}; its formats are json, binary and text")
    raise refused(415, f"Content-Type must say how keys and values are written: {', '.join(FORMATS)}")


def check_accept(accept: bytes | None) -> None:
    """Raises a 406 for a caller who can't read our answers."""
    if accept is None or not accept.strip():
        return
    weights = _weights(accept.lower().decode("latin-1"))
    if not any(_weight(name, weights) > 0 for name in _READABLE):
        raise refused(406, f"answers are {ANSWER_TYPE}; Accept must name that, application/json or */*")


def _weights(accept: str) -> dict[str, float]:
    """The media ranges of an Accept header and how much each is wanted (RFC 9110 section 12.5.1)."""
    weights: dict[str, float] = {}
    for item in accept.split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        weights[name] = next((_q(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
    return weights


def _q(text: str) -> float:
    """A weight; what is none counts as not wanted."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _weight(name: str, weights: dict[str, float]) -> float:
    """By the range that speaks of it most exactly."""
    for media_range in (name, "application/*", "*/*"):
        if media_range in weights:
            return weights[media_range]
    return 0.0
