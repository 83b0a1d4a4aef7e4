"""Many leaders in one request: answered in order, an error per item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response

from client_core import MetadataCache, partition_for_key
from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.lookup.answers import leader_json
from service.lookup.lookups import missing
from service.lookup.lookups_codec import LeaderLookup, parse_lookups
from service.native.schemas import LOOKUPS_BODY, LeadersAnswer, LookupQuery
from service.sidecar.sidecar import Sidecar, SidecarDep
from service.wire.asgi import header
from service.wire.errors import Problem, ProblemError, error_item, problem_of, problem_of_body
from service.wire.long_answers import joined
from service.wire.media_type import check_media_type
from service.wire.responses import of_long
from service.wire.responses import problems as problem_responses
from service.wire.strict_json import BodyError

router = APIRouter(tags=["metadata"])

#: A hash of keys that are so long together takes 3 ms.
_LONG_KEYS_BYTES: Final = 32 * 1024
_encode: Final = msgspec.json.Encoder().encode

_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": LOOKUPS_BODY}}}}


@router.post(
    "/v1/leaders",
    response_model=LeadersAnswer,
    responses=problem_responses(400, 408, 412, 413, 415, 422, 429, 503),
    openapi_extra=_BODY,
)
async def leaders(request: Request, sidecar: SidecarDep, query: Annotated[LookupQuery, Query()]) -> Response:
    """The leaders of many partitions or keys; an error for each whose topic the caller may not read."""
    check_media_type(header(request.scope, b"content-type"), header(request.scope, b"content-encoding"))
    lookups = await _read_lookups(request, sidecar)
    problems_by_topic = await sidecar.lookups.know(
        (lookup.topic for lookup in lookups), query.demands(), request.receive, caller_of(request.scope)
    )
    cache = sidecar.producer.cache
    pieces: Iterable[bytes] = _results(sidecar, cache, lookups, problems_by_topic)
    if sum([len(lookup.key or b"") for lookup in lookups]) > _LONG_KEYS_BYTES:
        pieces = await sidecar.aside.do(partial(tuple, pieces))
    body = await sidecar.slices.body(pieces)
    sidecar.table.find(b"/v1/cluster")
    freshness = sidecar.table.freshness(None, sidecar.producer.clock.now_ms())
    return of_long(request, body, freshness)


def _results(
    sidecar: Sidecar,
    cache: MetadataCache,
    lookups: Sequence[LeaderLookup],
    problems_by_topic: Mapping[str, Problem],
) -> Iterator[bytes]:
    """The answer in pieces, one for each look-up."""
    yield b'{"results":['
    yield from joined(
        _encode(_result(sidecar, cache, lookup, problems_by_topic.get(lookup.topic))) for lookup in lookups
    )
    yield b"]}"


def _result(
    sidecar: Sidecar, cache: MetadataCache, lookup: LeaderLookup, problem: Problem | None
) -> dict[str, Any]:
    if problem is not None:
        return error_item(problem)
    found = _leader(cache, lookup)
    return error_item(problem_of(missing(cache, lookup.topic, lookup.partition))) if found is None else found


async def _read_lookups(request: Request, sidecar: Sidecar) -> list[LeaderLookup]:
    with sidecar.room.enter(announced_bytes(request.scope), caller_of(request.scope)) as place:
        body = await read_body(request.scope, request.receive, place, sidecar.config.max_block_ms)
    try:
        return await sidecar.aside.read(parse_lookups, body)
    except BodyError as e:
        raise ProblemError(problem_of_body(e)) from e


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
