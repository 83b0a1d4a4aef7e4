"""Routes that look up the cluster, brokers, topics, partitions and leaders.

They answer what `lookup_table.py` has not prepared, and look-ups by key. Look-ups wait for the age or version
that their query demands. Most then answer with bytes from the table; the offsets come from the partition's
leader. No controller is reported: a KRaft broker names a random broker as controller. Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from client_core import MetadataCache, RefreshTime, TopicTable, partition_for_key
from service.admission.caller import Caller, caller_of
from service.lookup.ages import MOST_TOPICS
from service.lookup.answers import broker_pieces
from service.lookup.lookups import Demands
from service.native.schemas import (
    BrokerAnswer,
    ClusterAnswer,
    LeaderAnswer,
    LeaderQuery,
    ListQuery,
    LookupQuery,
    OffsetsAnswer,
    Partition,
    TopicAnswer,
    TopicsAnswer,
)
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import header_values
from service.wire.errors import ProblemError, problem_of, refused
from service.wire.payload import bytes_of_plain
from service.wire.responses import FRESH, of_json, of_long, of_prepared, problems
from service.wire.schemas import Int32, WaitQuery, check_query

PartitionPath = Annotated[Int32, Path()]
_KEY_HEADER = {
    "name": "Pilotfish-Key",
    "in": "header",
    "description": "The key, if it must not appear in logs.",
    "schema": {"type": "string"},
}
_COMMON = problems(400, 404, 412, 422, 429, 503)


class MetadataRoutes:
    """The handlers."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._producer = sidecar.producer
        self._lookups = sidecar.lookups
        self._table = sidecar.table
        self._listing = sidecar.listing
        self._offsets = sidecar.offsets
        self._slices = sidecar.slices

    def router(self) -> APIRouter:
        """Returns the routes, with their OpenAPI descriptions."""
        router = APIRouter(tags=["metadata"], dependencies=[Depends(check_query)], responses=FRESH)
        router.get(
            "/v1/cluster",
            operation_id="getCluster",
            response_model=ClusterAnswer,
            responses=problems(412, 422, 429, 503),
        )(self.cluster)
        router.get(
            "/v1/brokers/{broker_id}",
            operation_id="getBroker",
            response_model=BrokerAnswer,
            responses=problems(404, 412, 422, 429, 503),
        )(self.broker)
        router.get(
            "/v1/topics",
            operation_id="listTopics",
            response_model=TopicsAnswer,
            responses=problems(422, 503),
        )(self.topics)
        router.get(
            "/v1/topics/{topic}", operation_id="getTopic", response_model=TopicAnswer, responses=_COMMON
        )(self.topic)
        router.get(
            "/v1/topics/{topic}/partitions/{partition}",
            operation_id="getPartition",
            response_model=Partition,
            responses=_COMMON,
        )(self.partition)
        router.get(
            "/v1/topics/{topic}/leader",
            operation_id="lookUpLeader",
            response_model=LeaderAnswer,
            responses=_COMMON,
            openapi_extra={"parameters": [_KEY_HEADER]},
        )(self.leader)
        # Offsets are not cached, so their answer has no freshness headers.
        asked = APIRouter(tags=["metadata"], dependencies=[Depends(check_query)])
        asked.get(
            "/v1/topics/{topic}/partitions/{partition}/offsets",
            operation_id="getOffsets",
            response_model=OffsetsAnswer,
            responses=problems(400, 404, 422, 429, 500, 503),
        )(self.offsets)
        router.routes.extend(asked.routes)
        return router

    async def cluster(self, request: Request, query: Annotated[LookupQuery, Query()]) -> Response:
        """The cluster's id and its brokers."""
        await self._lookups.know_cluster(query.demands(), request.receive, caller_of(request.scope))
        entry = self._table.find(b"/v1/cluster")
        if entry is None:
            raise refused(503, "no broker has answered yet", retriable=True)
        return of_prepared(request, entry)

    async def broker(
        self,
        request: Request,
        broker_id: Annotated[Int32, Path()],
        query: Annotated[LookupQuery, Query()],
    ) -> Response:
        """A broker, and what it leads among the topics that this sidecar knows and the caller may read."""
        caller, demands, cache = caller_of(request.scope), query.demands(), self._producer.cache
        known = islice(cache.topics, MOST_TOPICS)  # more would take long
        topics = [name for name in known if caller.read.allow(name)]
        oldest = (
            None if demands.max_age_ms is None else await self._oldest(cache, tuple(cache.topics), caller)
        )
        await self._lookups.know_cluster(demands, request.receive, caller, topics, oldest)
        cache = self._producer.cache
        node = None if cache.is_bootstrap else cache.nodes_by_id.get(broker_id)
        if node is None:
            raise self._lookups.missing_broker(broker_id)
        names = await self._slices.sorted(cache.topics)
        freshness = self._table.freshness(cache, await self._oldest(cache, names, caller))
        body = await self._slices.body(broker_pieces(cache, node, caller.read, names))
        return of_long(request, body, freshness)

    async def _oldest(self, cache: MetadataCache, names: Iterable[str], caller: Caller) -> RefreshTime | None:
        """Returns the time since which the brokers and all topics that the caller may read were known."""
        if caller.may_read_all:
            return cache.oldest
        times: list[RefreshTime] = []

        def take(name: str) -> None:
            time = cache.refresh_time(name) if caller.read.allow(name) else None
            if time is not None:
                times.append(time)

        await self._slices.each(names, take)
        return min(times, default=cache.answered)

    async def topics(self, request: Request, query: Annotated[ListQuery, Query()]) -> Response:
        """All topics that the caller may read.

        They come from a separate list of topics, which is fetched only when somebody asks for it.
        """
        page = query.page(f"topics {query.internal} {query.prefix}")
        listed = await self._listing.current(query.demands())
        freshness = self._table.freshness(self._producer.cache, listed.refreshed)
        rules = caller_of(request.scope).read
        if page is None:
            body = await listed.body(query.prefix, internal=query.internal, rules=rules)
        else:
            body = await listed.page(query.prefix, page, internal=query.internal, rules=rules)
        return of_long(request, body, freshness)

    async def topic(self, request: Request, topic: str, query: Annotated[LookupQuery, Query()]) -> Response:
        """A topic and all of its partitions."""
        await self._know(topic, query.demands(), request)
        entry = await self._table.topic(topic)
        if entry is None:
            raise ProblemError(problem_of(self._lookups.missing(topic, None)))
        return of_prepared(request, entry)

    async def partition(
        self,
        request: Request,
        topic: str,
        partition: PartitionPath,
        query: Annotated[LookupQuery, Query()],
    ) -> Response:
        """One partition."""
        await self._know(topic, query.demands(), request)
        return self._answer(request, f"/v1/topics/{topic}/partitions/{partition}", topic, partition)

    async def offsets(
        self, request: Request, topic: str, partition: PartitionPath, query: Annotated[WaitQuery, Query()]
    ) -> Response:
        """The offsets of a partition's first and next record, as its leader says now."""
        caller = caller_of(request.scope)
        found = await self._offsets.of(topic, partition, request.receive, caller, query.max_block_ms)
        return of_json(msgspec.json.encode(found._asdict()))

    async def leader(self, request: Request, topic: str, query: Annotated[LeaderQuery, Query()]) -> Response:
        """The leader of a partition, given by its number or by a key (also as header Pilotfish-Key)."""
        key = _key_of(request, query)
        table = await self._know(topic, query.demands(), request)
        number = query.partition if key is None else partition_for_key(key, max(table.partition_count, 1))
        return self._answer(request, f"/v1/topics/{topic}/leader?partition={number}", topic, number)

    async def _know(self, topic: str, demands: Demands, request: Request) -> TopicTable:
        caller = caller_of(request.scope)
        _, table = await self._lookups.known(topic, demands, request.receive, caller)
        return table

    def _answer(self, request: Request, key: str, topic: str, partition: int | None) -> Response:
        entry = self._table.find(key.encode())
        if entry is None:
            raise ProblemError(problem_of(self._lookups.missing(topic, partition)))
        return of_prepared(request, entry)


def _key_of(request: Request, query: LeaderQuery) -> bytes | None:
    """Returns the key's bytes, from the query or the header; None if a partition number is given.

    Raises ProblemError unless exactly one of partition, key and header is given.
    """
    in_header = header_values(request.scope, b"pilotfish-key")
    if len(in_header) > 1:
        raise refused(400, "is given twice", place="Pilotfish-Key")
    given = (query.partition is not None) + (query.key is not None) + len(in_header)
    if given != 1:
        raise refused(422, "needs exactly one of partition, key and the header Pilotfish-Key", place="query")
    if query.partition is not None:
        return None
    place = "Pilotfish-Key" if in_header else "query.key"
    try:
        written = in_header[0].decode() if in_header else query.key
        assert written is not None
        key = bytes_of_plain(written, query.key_format)
    except UnicodeDecodeError as e:
        raise refused(400, "invalid UTF-8", place="Pilotfish-Key") from e
    except ValueError as e:
        raise refused(422, str(e), place=place) from e
    if key is None:
        raise refused(422, "a null key has no fixed partition", place=place)
    return key
