"""POST /v1/leaders: the leaders of many partitions, in order; failed items have an error.

    {"lookups": [{"topic": "orders", "partition": 3}, {"topic": "orders", "key": K, "key_format": "text"}]}

The body follows the rules of a produce body (`strict_json.py`). Raises BodyError for a malformed body or
item; a topic without a leader, or a forbidden one, gives its item an error. Plain look-ups of known topics
are answered before FastAPI, from ready bytes (`ReadyLeaders`). `parse_lookups` is pure; the rest: event loop
only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import UNSET, Raw, UnsetType

from client_core import KafkaError, MetadataCache, partition_for_key
from service.admission.admission_control import AdmissionControl
from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.lookup.answers import leader_json
from service.lookup.lookup_table import LookupTable
from service.native.schemas import LOOKUPS_BODY, MAX_LOOKUPS, LeadersAnswer, LookupQuery
from service.observe.http_metrics import HttpMetrics
from service.produce.body_threads import is_light
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import (
    BODY,
    ASGIApp,
    Body,
    HeaderPairs,
    Message,
    Receive,
    Scope,
    Send,
    answer_at_once,
    header,
    respond,
)
from service.wire.errors import Problem, ProblemError, error_item, problem_of
from service.wire.long_answers import LongBody, joined
from service.wire.media_type import check_media_type
from service.wire.payload import DECODERS, Format, status_of
from service.wire.responses import FRESH, of_long, with_etag
from service.wire.responses import problems as problem_responses
from service.wire.schemas import check_query
from service.wire.strict_json import MAX_INT32, SEARCHED_BYTES, BodyError, compact, misfit, refuse_unfit

#: Hashing keys of this total length takes 3 ms.
_LONG_KEYS_BYTES: Final = 32 * 1024
_encode: Final = msgspec.json.Encoder().encode

_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": LOOKUPS_BODY}}}}


ROUTE: Final = "/v1/leaders"
_PATH: Final = ROUTE.encode()

MAX_BODY_BYTES: Final = SEARCHED_BYTES


class LeaderLookup(NamedTuple):
    """The leader to look up: of a partition, or of a key's partition."""

    topic: str
    partition: int | None
    key: bytes | None


class _Item(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    topic: str
    partition: int | UnsetType = UNSET
    key: Raw | UnsetType = UNSET
    key_format: str = Format.TEXT.value


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    lookups: list[Raw]


_DECODER: Final = msgspec.json.Decoder(_Body)
_ITEM_DECODER: Final = msgspec.json.Decoder(_Item)
_HOMES: Final = {
    **dict.fromkeys(("max_block_ms", "max_age_ms", "min_version"), "a query parameter"),
    **dict.fromkeys(("topic", "partition", "key", "key_format"), "a member of a look-up"),
}


def parse_lookups(body: bytes) -> list[LeaderLookup]:
    """Returns the look-ups, in order. Raises BodyError with the place of the first fault."""
    if len(body) > MAX_BODY_BYTES:
        raise BodyError(413, "", f"a body of look-ups has at most {MAX_BODY_BYTES} bytes, not {len(body)}")
    text = compact(body)
    # The body is short: the second pass, which finds duplicates, costs little.
    refuse_unfit(body)
    try:
        raws = _DECODER.decode(text).lookups
    except msgspec.ValidationError as e:
        raise misfit(e, homes=_HOMES) from e
    if not 1 <= len(raws) <= MAX_LOOKUPS:
        raise BodyError(422, "lookups", f"must have 1 to {MAX_LOOKUPS} look-ups, not {len(raws)}")
    return [_parse_item(raw, f"lookups[{index}]") for index, raw in enumerate(raws)]


def _parse_item(raw: Raw, place: str) -> LeaderLookup:
    try:
        item = _ITEM_DECODER.decode(raw)
    except msgspec.ValidationError as e:
        raise misfit(e, place, homes=_HOMES) from e
    if (item.partition is UNSET) == (item.key is UNSET):
        raise BodyError(422, place, "needs either a partition or a key")
    try:
        form = Format(item.key_format)
    except ValueError as e:
        raise BodyError(422, f"{place}.key_format", "must be json, text or base64") from e
    if item.partition is not UNSET:
        if not 0 <= item.partition <= MAX_INT32:
            raise BodyError(422, f"{place}.partition", f"must be from 0 to {MAX_INT32}")
        return LeaderLookup(item.topic, item.partition, None)
    return LeaderLookup(item.topic, None, _key(item, form, place))


def _key(item: _Item, form: Format, place: str) -> bytes:
    assert item.key is not UNSET
    try:
        key = DECODERS[form](bytes(item.key))
    except ValueError as e:
        raise BodyError(status_of(e), f"{place}.key", str(e)) from e
    if key is None:
        raise BodyError(422, f"{place}.key", "a null key has no fixed partition")
    return key


class _Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]


class _PlainBody(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    lookups: Annotated[list[_Plain], msgspec.Meta(min_length=1, max_length=MAX_LOOKUPS)]


_PLAIN_DECODER: Final = msgspec.json.Decoder(_PlainBody)


def plain_lookups(body: bytes) -> list[tuple[str, int]] | None:
    """Returns the look-ups of a body in its plainest spelling, each a topic and a partition; else None.

    A body that is the encoding of what was read from it has no duplicate, and no escape.
    """
    if not is_light(body):
        return None
    try:
        read = _PLAIN_DECODER.decode(body)
        if _encode(read) != msgspec.json.format(body, indent=-1):
            return None
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None
    return [(lookup.topic, lookup.partition) for lookup in read.lookups]


class ReadyLeaders:
    """ASGI middleware: answers a POST of plain look-ups whose topics are all known. Passes others on.

    The body must have come with its head. What is passed on gets it again.
    """

    def __init__(
        self,
        app: ASGIApp,
        table: LookupTable,
        admission: AdmissionControl,
        http: HttpMetrics,
    ) -> None:
        self._app = app
        self._table = table
        self._admission = admission
        self._http = http

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope.get("raw_path") != _PATH or scope["method"] != "POST" or scope["query_string"]:
            return self._app(scope, receive, send)
        return self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        take_body: Body | None = scope.pop(BODY, None)
        body = None if take_body is None else take_body()
        if body is None:
            await self._app(scope, receive, send)
            return
        answer = self._answer(scope, body)
        if answer is None:
            await self._app(scope, _again(body, receive), send)
            return
        status, headers, content = answer
        if not answer_at_once(scope, status, headers, content):
            await respond(send, status, headers, content)
        counters = self._http.route_counters("POST", ROUTE, status)
        counters.add(perf_counter() - started, self._http.traceparent_of(scope))

    def _answer(self, scope: Scope, body: bytes) -> tuple[int, HeaderPairs, bytes] | None:
        lookups = plain_lookups(body)
        if lookups is None:
            return None
        topics = {topic for topic, _ in lookups}
        caller = caller_of(scope)
        if not all(map(caller.read.allow, topics)):
            return None
        try:
            check_media_type(header(scope, b"content-type"), header(scope, b"content-encoding"))
            with self._admission.acquire(len(body), caller):
                found = self._table.leaders(lookups)
        except ProblemError:
            return None
        if found is None:
            return None
        content = b'{"results":[%s]}' % b",".join(found)
        cache = self._table.cache  # the client may have a newer one by now
        status, headers = with_etag(
            scope, LongBody.of([content]), self._table.freshness(cache, cache.oldest_of(topics))
        )
        return status, headers, content if status == 200 else b""


def _again(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that begins with a body that was taken already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received


class LeadersRoute:
    """The handler. `body_timeout_ms` limits the wait for the body."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._producer = sidecar.producer
        self._lookups = sidecar.lookups
        self._table = sidecar.table
        self._admission = sidecar.admission
        self._body_threads = sidecar.body_threads
        self._slices = sidecar.slices
        self._body_timeout_ms = sidecar.config.max_block_ms

    def router(self) -> APIRouter:
        """Returns the route, with its OpenAPI description."""
        router = APIRouter(tags=["metadata"], dependencies=[Depends(check_query)])
        router.post(
            ROUTE,
            operation_id="lookUpLeaders",
            response_model=LeadersAnswer,
            responses=FRESH | problem_responses(400, 408, 412, 413, 415, 422, 429, 503),
            openapi_extra=_BODY,
        )(self.leaders)
        return router

    async def leaders(self, request: Request, query: Annotated[LookupQuery, Query()]) -> Response:
        """The leaders of many partitions or keys; an error for each whose topic the caller may not read."""
        check_media_type(header(request.scope, b"content-type"), header(request.scope, b"content-encoding"))
        lookups = await self._read_lookups(request)
        problems_by_topic = await self._lookups.know(
            (lookup.topic for lookup in lookups), query.demands(), request.receive, caller_of(request.scope)
        )
        cache = self._producer.cache
        pieces: Iterable[bytes] = _results(cache, lookups, problems_by_topic, self._lookups.missing)
        if sum([len(lookup.key or b"") for lookup in lookups]) > _LONG_KEYS_BYTES:
            pieces = await self._body_threads.do(partial(tuple, pieces))
        body = await self._slices.body(pieces)
        # Without topics that the caller may not read: their age would show that they exist.
        topics = {lookup.topic for lookup in lookups} - problems_by_topic.keys()
        freshness = self._table.freshness(cache, cache.oldest_of(topics))
        return of_long(request, body, freshness)

    async def _read_lookups(self, request: Request) -> list[LeaderLookup]:
        with self._admission.acquire(announced_bytes(request.scope), caller_of(request.scope)) as permit:
            body = await read_body(request.scope, request.receive, permit, self._body_timeout_ms)
        return await self._body_threads.read(parse_lookups, body)


def _results(
    cache: MetadataCache,
    lookups: Sequence[LeaderLookup],
    problems_by_topic: Mapping[str, Problem],
    missing: Callable[[str, int | None], KafkaError],
) -> Iterator[bytes]:
    """Yields the answer in pieces, one per look-up."""
    yield b'{"results":['
    yield from joined(
        _encode(_result(cache, lookup, problems_by_topic.get(lookup.topic), missing)) for lookup in lookups
    )
    yield b"]}"


def _result(
    cache: MetadataCache,
    lookup: LeaderLookup,
    problem: Problem | None,
    missing: Callable[[str, int | None], KafkaError],
) -> dict[str, Any]:
    if problem is not None:
        return error_item(problem)
    found = _leader(cache, lookup)
    return error_item(problem_of(missing(lookup.topic, lookup.partition))) if found is None else found


def _leader(cache: MetadataCache, lookup: LeaderLookup) -> dict[str, Any] | None:
    topic = cache.topics.get(lookup.topic)
    if topic is None or not topic.partition_count:
        return None
    topic.use.touched = True
    partition = lookup.partition
    if partition is None:
        assert lookup.key is not None
        partition = partition_for_key(lookup.key, topic.partition_count)
    return leader_json(topic, partition, cache.nodes_by_id)
