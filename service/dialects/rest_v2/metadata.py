"""REST Proxy v2's look-ups: topics, partitions and brokers, from the client's snapshot.

An unknown topic is fetched as in native look-ups, and never created. A partition without a leader is answered
at once. Headers report the answer's freshness; with the ETag a caller can revalidate. Event loop only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from client_core import MetadataCache, TopicTable
from service.admission.caller import caller_of
from service.dialects.rest_proxy import PartitionRefresh
from service.dialects.rest_v2.answers import (
    brokers_body,
    names_pieces,
    partition_body,
    partitions_pieces,
    topic_pieces,
)
from service.dialects.rest_v2.error_codes import LOOKED_UP_TOPIC_NOT_FOUND, no_partition, partition_of_path
from service.dialects.rest_v2.media_types import ANSWER_TYPE, check_accept
from service.dialects.rest_v2.schemas import (
    BrokersV2,
    NoParameters,
    OffsetsV2,
    PartitionPath,
    PartitionV2,
    ResponseV2,
    TopicV2,
    errors,
)
from service.lookup.lookup_table import Asked, Build, Built, Form, of_partition, short_topic
from service.lookup.lookups import NO_DEMANDS
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import header
from service.wire.errors import Problem, ProblemError, problem_of, refused
from service.wire.long_answers import LongBody
from service.wire.reasons import UNKNOWN_PARTITION
from service.wire.responses import FRESH, of_json, of_long, of_prepared
from service.wire.schemas import check_query

_PARTITIONS: Final = "/topics/{topic}/partitions"
_PARTITION: Final = f"{_PARTITIONS}/{{partition}}"

_TYPE: Final = ANSWER_TYPE.encode()
_ERRORS: Final = errors(400, 403, 404, 406, 422, 429, 503)


class MetadataV2:
    """The handlers of the routes."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._producer = sidecar.producer
        self._lookups = sidecar.lookups
        self._listing = sidecar.listing
        self._configs = sidecar.configs
        self._offsets = sidecar.offsets
        self._slices = sidecar.slices
        self._partition_refresh = PartitionRefresh(sidecar)
        self._table = sidecar.table
        self._table.serve(_BUILDS, Form(_TYPE, accepts=_is_accepted))

    def router(self) -> APIRouter:
        """Returns the routes, with their OpenAPI descriptions."""
        make = partial(
            APIRouter,
            tags=["REST Proxy v2"],
            default_response_class=ResponseV2,
            dependencies=[Depends(check_query)],
        )
        router, asked = make(responses=FRESH), make()
        of_brokers, of_list = errors(406, 422, 429, 503), errors(406, 422, 503)
        for path, operation_id, handler, model, responses in (
            ("/topics", "listTopicsV2", self.list_topics, list[str], of_list),
            ("/topics/{topic}", "getTopicV2", self.get_topic, TopicV2, _ERRORS),
            (_PARTITIONS, "listPartitionsV2", self.list_partitions, list[PartitionV2], _ERRORS),
            (_PARTITION, "getPartitionV2", self.get_partition, PartitionV2, _ERRORS),
            ("/brokers", "listBrokersV2", self.list_brokers, BrokersV2, of_brokers),
        ):
            router.get(path, operation_id=operation_id, response_model=model, responses=responses)(handler)
        asked.get(  # not kept, so without the headers of freshness
            f"{_PARTITION}/offsets",
            operation_id="getOffsetsV2",
            response_model=OffsetsV2,
            responses=_ERRORS | errors(500),
        )(self.get_offsets)
        router.routes.extend(asked.routes)
        return router

    async def list_topics(self, request: Request, _: NoParameters) -> Response:
        """The names of all topics but Kafka's own."""
        check_accept(header(request.scope, b"accept"))
        listed = await self._listing.current(NO_DEMANDS)
        may_read = caller_of(request.scope).read.allow
        topics = listed.listing.topics
        names = (
            name if not topics[name].is_internal and may_read(name) else None for name in await listed.names()
        )
        body = await self._slices.body(names_pieces(names))
        freshness = self._table.freshness(self._producer.cache, listed.refreshed)
        return of_long(request, body, freshness, _TYPE)

    async def get_topic(self, request: Request, topic: str, _: NoParameters) -> Response:
        """A topic: its configs, and its partitions with leaders and replicas."""
        cache, table = await self._know(request, topic)
        configs = await self._configs.of(table)
        body = await self._slices.body(topic_pieces(table, configs, cache.nodes_by_id))
        return self._of_topic(request, cache, table, body)

    async def list_partitions(self, request: Request, topic: str, _: NoParameters) -> Response:
        """A topic's partitions, with their leaders and replicas."""
        cache, table = await self._know(request, topic)
        entry = self._table.find(f"/topics/{topic}/partitions".encode())
        if entry is not None:
            return of_prepared(request, entry)
        body = await self._slices.body(partitions_pieces(table, cache.nodes_by_id))
        return self._of_topic(request, cache, table, body)

    async def get_partition(
        self, request: Request, topic: str, partition: PartitionPath, _: NoParameters
    ) -> Response:
        """One partition, with its leader and replicas."""
        caller_of(request.scope).check_read(topic)
        number = partition_of_path(partition)
        await self._know(request, topic)
        key = f"/topics/{topic}/partitions/{number}".encode()
        entry = self._table.find(key)
        if entry is None:
            await self._partition_refresh.refresh(topic, request)
            await self._know(request, topic)
            entry = self._table.find(key)
        if entry is None:
            problem = problem_of(self._lookups.missing(topic, number))
            raise ProblemError(no_partition(problem.detail) if problem.status == 404 else problem)
        return of_prepared(request, entry)

    async def get_offsets(
        self, request: Request, topic: str, partition: PartitionPath, _: NoParameters
    ) -> Response:
        """The offsets of a partition's first and next record."""
        check_accept(header(request.scope, b"accept"))
        caller = caller_of(request.scope)
        caller.check_read(topic)
        number = partition_of_path(partition)
        table = (await self._know(request, topic))[1]
        if number >= table.partition_count:
            await self._partition_refresh.refresh(topic, request)
        try:
            found = await self._offsets.of(topic, number, request.receive, caller)
        except ProblemError as e:
            if e.problem.said_reason is UNKNOWN_PARTITION:
                raise ProblemError(no_partition(e.problem.detail)) from e
            raise ProblemError(_of_look_up(e.problem)) from e
        return of_json(msgspec.json.encode(found._asdict()), _TYPE)

    async def list_brokers(self, request: Request, _: NoParameters) -> Response:
        """The ids of the brokers."""
        check_accept(header(request.scope, b"accept"))
        await self._lookups.know_cluster(NO_DEMANDS, request.receive, caller_of(request.scope))
        entry = self._table.find(b"/brokers")
        if entry is None:
            raise refused(503, "no broker has answered yet", retriable=True)
        return of_prepared(request, entry)

    async def _know(self, request: Request, name: str) -> tuple[MetadataCache, TopicTable]:
        """A snapshot, and the topic in it once known. Raises ProblemError."""
        check_accept(header(request.scope, b"accept"))
        caller = caller_of(request.scope)
        caller.check_read(name)
        try:
            return await self._lookups.known(name, NO_DEMANDS, request.receive, caller)
        except ProblemError as e:
            raise ProblemError(_of_look_up(e.problem)) from e

    def _of_topic(
        self, request: Request, cache: MetadataCache, topic: TopicTable, body: LongBody
    ) -> Response:
        freshness = self._table.freshness(cache, cache.refresh_time(topic.name))
        return of_long(request, body, freshness, _TYPE)


@lru_cache(maxsize=64)  # callers use a few
def _is_accepted(accept: bytes) -> bool:
    try:
        check_accept(accept)
    except ProblemError:
        return False
    return True


def _brokers(asked: Asked) -> Built | None:
    return None if asked.cache.is_bootstrap else Built(brokers_body(asked.cache))


def _partitions(asked: Asked, topic: str) -> Built | None:
    table = short_topic(asked, topic)
    if table is None:
        return None
    return Built(b"".join(partitions_pieces(table, asked.cache.nodes_by_id)), table)


def _partition(asked: Asked, topic: str, partition: str) -> Built | None:
    return of_partition(asked, topic, partition, partition_body)


_BUILDS: Final[Mapping[str, Build]] = {
    "/brokers": _brokers,
    "/topics/{topic}/partitions": _partitions,
    "/topics/{topic}/partitions/{partition}": _partition,
}


def _of_look_up(problem: Problem) -> Problem:
    return replace(problem, dialect_code=LOOKED_UP_TOPIC_NOT_FOUND) if problem.status == 404 else problem
