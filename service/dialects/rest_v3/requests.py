"""Shared by REST Proxy v3's routes: cluster path, empty query, charset of a body.

A body is application/json, in UTF-8 or ISO-8859-1. Source: JsonStreamMessageBodyReader, kafka-rest, which
accepts the same two charsets. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from fastapi import Query

from service.admission.caller import Caller
from service.base.producer_protocol import Producer
from service.dialects.rest_v3.errors import EMPTY_BODY, refused_with
from service.lookup.lookups import NO_DEMANDS, Lookups
from service.wire.asgi import Receive, Scope, has_body, header
from service.wire.errors import ProblemError, refused
from service.wire.schemas import NoQuery

_JSON: Final = "application/json"

#: White space between records: a body of only this is empty.
SPACE: Final = b" \t\r\n"

#: Converts received bytes to UTF-8, piece by piece.
ToUtf8 = Callable[[bytes], bytes]


class ClusterPath:
    """Checks the cluster in a path."""

    def __init__(self, producer: Producer, lookups: Lookups) -> None:
        self._producer = producer
        self._lookups = lookups

    async def require(self, cluster_id: str | None, receive: Receive, caller: Caller) -> str:
        """Returns the id of this cluster, if `cluster_id` equals it or is None.

        Waits for a first response of the brokers. Raises ProblemError: 503 if none comes, 404 for another
        cluster. `receive` must have returned the whole body, or never return anything.
        """
        await self._lookups.know_cluster(NO_DEMANDS, receive, caller)
        known = self._producer.cache.cluster_id
        if cluster_id is None and known is None:
            raise refused(503, "the brokers do not report a cluster id", retriable=True)
        if known is None or cluster_id not in (None, known):
            raise refused(404, f"Cluster {cluster_id} cannot be found.")
        return known


async def no_query(_: Annotated[NoQuery, Query()]) -> None:
    """Refuses parameters (422): ignoring one would mislead its caller."""


def utf8_reader(scope: Scope) -> ToUtf8:
    """Converts the body's pieces to UTF-8, from the charset in the head.

    Raises ProblemError: 415 for another media type or an encoded body, 400 for another charset, 422 if both
    type and body are missing.
    """
    if (header(scope, b"content-encoding") or b"identity").lower() != b"identity":
        raise refused(415, "Content-Encoding is not supported")
    said = header(scope, b"content-type")
    if said is None and not has_body(scope):
        raise empty_body()
    media_type, _, parameters = (said or b"").decode("latin-1").lower().partition(";")
    if media_type.strip() != _JSON:
        raise refused(415, f"Content-Type must be {_JSON}")
    for parameter in parameters.split(";"):
        name, _, charset = parameter.partition("=")
        if name.strip() == "charset":
            return _reader_of(charset.strip().strip('"'))
    return _as_it_is


def empty_body() -> ProblemError:
    """Confluent's error for an empty body."""
    return refused_with(422, EMPTY_BODY, "Payload error. Request body is empty. Data is required.")


def _reader_of(charset: str) -> ToUtf8:
    if charset == "utf-8":
        return _as_it_is
    if charset == "iso-8859-1":
        return _from_latin_1
    raise refused(400, "Content-Type: the charset must be UTF-8 or ISO-8859-1")


def _as_it_is(piece: bytes) -> bytes:
    return piece


def _from_latin_1(piece: bytes) -> bytes:
    """Decodes ISO-8859-1: every byte is one character, so pieces may be cut anywhere."""
    return piece if piece.isascii() else piece.decode("latin-1").encode()
