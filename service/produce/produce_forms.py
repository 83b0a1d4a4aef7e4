"""The forms in which one request may bring records: JSON with many, or the bytes of one.

What the head alone tells is understood first, and refused before a byte of the body is read. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from client_core import ProducerRecord
from service.produce.octet_stream import PARAMETERS, record_without_value
from service.produce.produce_query import DELIVERY, is_spooled, parameters, times_of
from service.produce.producing import Times
from service.produce.records_codec import parse_records
from service.wire.asgi import Scope, header
from service.wire.errors import refused
from service.wire.json_items import BodyLimits
from service.wire.media_type import (
    JSON,
    NDJSON,
    OCTET_STREAM,
    check_encoding,
    check_media_type,
    media_type_of,
)

_FORMS: Final = b", ".join((JSON, NDJSON, OCTET_STREAM)).decode()


class Form(NamedTuple):
    """How the body of one request is read.

    `parse` gives the records, and raises BodyError; on any thread. `meaning` is what else makes it
    this request and no other, but for its times. `spooled`: they go to the spool.
    """

    times: Times
    parse: Callable[[bytes], list[ProducerRecord]]
    meaning: bytes
    spooled: bool = False


def form_of(topic: str, scope: Scope, defaults: Times, limits: BodyLimits) -> Form:
    """The form that the head says. Raises ProblemError."""
    content_type = header(scope, b"content-type")
    encoding = header(scope, b"content-encoding")
    query: bytes = scope["query_string"]
    if content_type != JSON:
        media_type = media_type_of(content_type)
        if media_type == OCTET_STREAM:
            check_encoding(encoding)
            return _octet_stream(topic, scope, defaults)
        if media_type != JSON:
            raise refused(415, f"Content-Type must be one of {_FORMS}")
    check_media_type(content_type, encoding)
    given = parameters(query, (DELIVERY,)) if query else {}
    times = times_of(given, defaults) if given else defaults
    form = Form(times, lambda body: parse_records(topic, body, limits), JSON)
    return _to_the_spool(form) if is_spooled(given) else form


def _octet_stream(topic: str, scope: Scope, defaults: Times) -> Form:
    given = parameters(scope["query_string"], (DELIVERY, *PARAMETERS))
    record = record_without_value(topic, scope, given)
    meaning = b"%s %r" % (OCTET_STREAM, record)
    form = Form(times_of(given, defaults), lambda body: [record._replace(value=body)], meaning)
    return _to_the_spool(form) if is_spooled(given) else form


def _to_the_spool(form: Form) -> Form:
    return form._replace(meaning=form.meaning + b" to the spool", spooled=True)
