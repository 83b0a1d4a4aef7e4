"""Topics, partitions and leaders: the slow paths of what lookup_table.py has ready, and look-ups by key.

Each waits as its query demands and then answers with the table's own bytes.

The cluster and its brokers. A KRaft broker names a random one as controller, so nobody is told of one.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from client_core import partition_for_key
from service.admission.caller import caller_of
from service.lookup.answers import broker_pieces
from service.lookup.lookups import Demands, missing
from service.native.schemas import (
    BrokerAnswer,
    ClusterAnswer,
    LeaderAnswer,
    LeaderQuery,
    ListQuery,
    LookupQuery,
    Partition,
    TopicAnswer,
    TopicsAnswer,
)
from service.sidecar.sidecar import Sidecar, SidecarDep
from service.wire.asgi import header_values
from service.wire.errors import ProblemError, problem_of, refused
from service.wire.freshness import freshness_headers
from service.wire.payload import bytes_of_plain
from service.wire.responses import of_long, of_prepared, problems
from service.wire.schemas import Int32

PartitionPath = Annotated[Int32, Path()]
_COMMON = problems(400, 404, 412, 422, 429, 503)


router = APIRouter(tags=["metadata"])


@router.get("/v1/cluster", response_model=ClusterAnswer, responses=problems(412, 422, 429, 503))
async def cluster(request: Request, sidecar: SidecarDep, query: Annotated[LookupQuery, Query()]) -> Response:
    """The cluster's id and its brokers."""
    await sidecar.lookups.know_cluster(query.demands(), request.receive, caller_of(request.scope))
    entry = sidecar.table.find(b"/v1/cluster")
    if entry is None:
        raise refused(503, "no broker has answered yet", retriable=True)
    return of_prepared(request, entry)


@router.get(
    "/v1/brokers/{broker_id}", response_model=BrokerAnswer, responses=problems(404, 412, 422, 429, 503)
)
async def broker(
    request: Request,
    sidecar: SidecarDep,
    broker_id: Annotated[Int32, Path()],
    query: Annotated[LookupQuery, Query()],
) -> Response:
    """A broker, and what it leads among the topics that this sidecar knows and the caller may read."""
    caller = caller_of(request.scope)
    await sidecar.lookups.know_cluster(query.demands(), request.receive, caller)
    cache = sidecar.producer.cache
    node = None if cache.is_bootstrap else cache.nodes_by_id.get(broker_id)
    if node is None:
        raise refused(404, f"there is no broker {broker_id}")
    sidecar.table.find(b"/v1/cluster")
    freshness = sidecar.table.freshness(None, sidecar.producer.clock.now_ms())
    names = await sidecar.slices.sorted(cache.topics)
    body = await sidecar.slices.body(broker_pieces(cache, node, caller.read, names))
    return of_long(request, body, freshness)


@router.get("/v1/topics", response_model=TopicsAnswer, responses=problems(422, 503))
async def topics(request: Request, sidecar: SidecarDep, query: Annotated[ListQuery, Query()]) -> Response:
    """All topics that the caller may read, from a list of its own, fetched only when somebody asks."""
    listed = await sidecar.listing.current(query.demands())
    sidecar.table.find(b"/v1/cluster")
    freshness = freshness_headers(
        sidecar.table.version,
        listed.refreshed_ms,
        listed.refreshed_wall_ms,
        sidecar.producer.clock.now_ms(),
    )
    rules = caller_of(request.scope).read
    body = await listed.body(query.prefix, internal=query.internal, rules=rules)
    return of_long(request, body, freshness)


@router.get("/v1/topics/{topic}", response_model=TopicAnswer, responses=_COMMON)
async def topic(
    request: Request, sidecar: SidecarDep, topic: str, query: Annotated[LookupQuery, Query()]
) -> Response:
    """A topic and all of its partitions."""
    await _know(sidecar, topic, query.demands(), request)
    entry = await sidecar.table.topic(topic)
    if entry is None:
        raise ProblemError(problem_of(missing(sidecar.producer.cache, topic, None)))
    return of_prepared(request, entry)


@router.get("/v1/topics/{topic}/partitions/{partition}", response_model=Partition, responses=_COMMON)
async def partition(
    request: Request,
    sidecar: SidecarDep,
    topic: str,
    partition: PartitionPath,
    query: Annotated[LookupQuery, Query()],
) -> Response:
    """One partition."""
    await _know(sidecar, topic, query.demands(), request)
    return _answer(sidecar, request, f"/v1/topics/{topic}/partitions/{partition}", topic, partition)


@router.get("/v1/topics/{topic}/leader", response_model=LeaderAnswer, responses=_COMMON)
async def leader(
    request: Request, sidecar: SidecarDep, topic: str, query: Annotated[LeaderQuery, Query()]
) -> Response:
    """The leader of a partition, given by its number or by a key (also as header Pilotfish-Key)."""
    key = _key_of(request, query)
    await _know(sidecar, topic, query.demands(), request)
    number = query.partition if key is None else _partition_of(sidecar, topic, key)
    return _answer(sidecar, request, f"/v1/topics/{topic}/leader?partition={number}", topic, number)


async def _know(sidecar: Sidecar, topic: str, demands: Demands, request: Request) -> None:
    caller = caller_of(request.scope)
    problem = (await sidecar.lookups.know([topic], demands, request.receive, caller)).get(topic)
    if problem is not None:
        raise ProblemError(problem)


def _answer(sidecar: Sidecar, request: Request, key: str, topic: str, partition: int | None) -> Response:
    entry = sidecar.table.find(key.encode())
    if entry is None:
        raise ProblemError(problem_of(missing(sidecar.producer.cache, topic, partition)))
    return of_prepared(request, entry)


def _partition_of(sidecar: Sidecar, topic: str, key: bytes) -> int:
    count = sidecar.producer.cache.partition_count(topic)
    if not count:
        raise ProblemError(problem_of(missing(sidecar.producer.cache, topic, None)))
    return partition_for_key(key, count)


def _key_of(request: Request, query: LeaderQuery) -> bytes | None:
    """The key's bytes, from query or header; None where a partition is asked for. One it must be."""
    in_header = header_values(request.scope, b"pilotfish-key")
    given = (query.partition is not None) + (query.key is not None) + len(in_header)
    if given != 1:
        raise refused(422, "needs exactly one of partition, key and the header Pilotfish-Key")
    if query.partition is not None:
        return None
    try:
        written = in_header[0].decode() if in_header else query.key
        assert written is not None
        key = bytes_of_plain(written, query.key_format)
    except UnicodeDecodeError as e:
        raise refused(400, "invalid UTF-8", place="Pilotfish-Key") from e
    except ValueError as e:
        raise refused(422, str(e), place="key") from e
    if key is None:
        raise refused(422, "a null key has no partition of its own", place="key")
    return key
