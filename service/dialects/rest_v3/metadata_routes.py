"""REST Proxy v3's metadata routes: cluster, brokers, topics, partitions and replicas.

All answers come from the client's metadata, with the native API's freshness headers. The topics come from the
sidecar's listing. The list omits internal topics, as Confluent's does, and topics that the caller may not
read. Event loop only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel

from client_core import ListedTopic, MetadataCache, Node, PartitionInfo, TopicTable
from service.admission.caller import caller_of
from service.dialects.rest_proxy import PartitionRefresh
from service.dialects.rest_v3.requests import ClusterPath, no_query
from service.dialects.rest_v3.resources import (
    ClusterResources,
    TopicShape,
    clusters_url,
    collection_pieces,
    resource_body,
)
from service.dialects.rest_v3.schemas import (
    BrokerData,
    BrokerDataList,
    BrokerId,
    ClusterData,
    ClusterDataList,
    ClusterId,
    PartitionData,
    PartitionDataList,
    PartitionId,
    ReplicaData,
    ReplicaDataList,
    TopicData,
    TopicDataList,
    errors,
)
from service.lookup.lookup_table import (
    Asked,
    Build,
    Built,
    Entry,
    Form,
    of_partition,
    plain_number,
    short_topic,
)
from service.lookup.lookups import NO_DEMANDS
from service.lookup.paging import PageQuery, numbers_after
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import base_of
from service.wire.errors import ProblemError, problem_of, refused
from service.wire.responses import FRESH, of_long, of_prepared
from service.wire.schemas import check_query

#: The query of a list.
Paged = Annotated[PageQuery, Query()]

_CLUSTERS: Final = "/v3/clusters"
_CLUSTER: Final = f"{_CLUSTERS}/{{cluster_id}}"
_BROKERS: Final = f"{_CLUSTER}/brokers"
_BROKER: Final = f"{_BROKERS}/{{broker_id}}"
_TOPIC: Final = f"{_CLUSTER}/topics/{{topic}}"
_PARTITIONS: Final = f"{_TOPIC}/partitions"
_PARTITION: Final = f"{_PARTITIONS}/{{partition_id}}"
_REPLICAS: Final = f"{_PARTITION}/replicas"
_REPLICA: Final = f"{_REPLICAS}/{{broker_id}}"

#: A list of more brokers is built in slices.
_MANY_BROKERS: Final = 200

#: The number of digits of the greatest int32.
_MAX_DIGITS: Final = 10

_OF_CLUSTER: Final = errors(400, 404, 422, 429, 503)
_OF_TOPIC: Final = errors(400, 403, 404, 422, 429, 503)


class MetadataRoutes:
    """The handlers."""

    def __init__(self, sidecar: Sidecar, cluster: ClusterPath) -> None:
        self._producer = sidecar.producer
        self._lookups = sidecar.lookups
        self._table = sidecar.table
        self._listing = sidecar.listing
        self._slices = sidecar.slices
        self._cluster = cluster
        self._partition_refresh = PartitionRefresh(sidecar)
        self._table.serve(_BUILDS, Form(has_links=True))

    def router(self) -> APIRouter:
        """Returns the routes, with their OpenAPI descriptions."""
        router = APIRouter(
            tags=["REST Proxy v3: metadata"],
            dependencies=[Depends(check_query)],
            responses=FRESH,
        )

        def get(
            path: str,
            operation_id: str,
            handler: Callable[..., Awaitable[Response]],
            model: type[BaseModel],
            responses: dict[int | str, dict[str, Any]],
            *,
            in_pages: bool = False,
        ) -> None:
            router.get(
                path,
                operation_id=operation_id,
                dependencies=[] if in_pages else [Depends(no_query)],
                response_model=model,
                responses=responses,
            )(handler)

        get(_CLUSTERS, "listClustersV3", self.clusters, ClusterDataList, errors(400, 422, 429, 503))
        get(_CLUSTER, "getClusterV3", self.cluster, ClusterData, _OF_CLUSTER)
        get(_BROKERS, "listBrokersV3", self.brokers, BrokerDataList, _OF_CLUSTER, in_pages=True)
        get(_BROKER, "getBrokerV3", self.broker, BrokerData, _OF_CLUSTER)
        get(f"{_CLUSTER}/topics", "listTopicsV3", self.topics, TopicDataList, _OF_CLUSTER, in_pages=True)
        get(_TOPIC, "getTopicV3", self.topic, TopicData, _OF_TOPIC)
        get(_PARTITIONS, "listPartitionsV3", self.partitions, PartitionDataList, _OF_TOPIC, in_pages=True)
        get(_PARTITION, "getPartitionV3", self.partition, PartitionData, _OF_TOPIC)
        get(_REPLICAS, "listReplicasV3", self.replicas, ReplicaDataList, _OF_TOPIC, in_pages=True)
        get(_REPLICA, "getReplicaV3", self.replica, ReplicaData, _OF_TOPIC)
        return router

    # -- clusters and brokers --------------------------------------------------------------------------------

    async def clusters(self, request: Request) -> Response:
        """The one cluster there is."""
        await self._know_cluster(request, None)
        return self._ready(request, _CLUSTERS)

    async def cluster(self, request: Request, cluster_id: ClusterId) -> Response:
        """The cluster, if it is this one."""
        return self._ready(request, await self._know_cluster(request, cluster_id))

    async def brokers(self, request: Request, cluster_id: ClusterId, query: Paged) -> Response:
        """The brokers, by their ids."""
        page, path = query.page("brokers"), await self._know_cluster(request, cluster_id)
        entry = None if page is not None else self._find(request, f"{path}/brokers")
        if entry is not None:
            return of_prepared(request, entry)
        cache = self._producer.cache
        nodes = cache.nodes_by_id
        ids, next_query = numbers_after(sorted(nodes), page)
        resources = ClusterResources(clusters_url(request.scope), cluster_id)
        pieces = _brokers_pieces(resources, {number: nodes[number] for number in ids}, next_query)
        freshness = self._table.freshness(cache, cache.answered)
        return of_long(request, await self._slices.body(pieces), freshness)

    async def broker(self, request: Request, cluster_id: ClusterId, broker_id: BrokerId) -> Response:
        """One broker."""
        cluster, number = await self._know_cluster(request, cluster_id), _number(broker_id)
        entry = None if number is None else self._find(request, f"{cluster}/brokers/{number}")
        if entry is None:
            raise self._lookups.missing_broker(broker_id)
        return of_prepared(request, entry)

    # -- topics ----------------------------------------------------------------------------------------------

    async def topics(self, request: Request, cluster_id: ClusterId, query: Paged) -> Response:
        """All topics that the caller may read, by name; internal ones are left out."""
        page = query.page("v3 topics")
        await self._know_cluster(request, cluster_id)
        resources = ClusterResources(clusters_url(request.scope), cluster_id)
        listed = await self._listing.current(NO_DEMANDS)
        rules = caller_of(request.scope).read
        names, last = await listed.names(), None
        if page is not None:
            names, last = await listed.names_of(page, _is_listed, rules)
        found = ((name, listed.listing.topics[name]) for name in names)
        items = (
            resources.topic(
                TopicShape(name, topic.is_internal, topic.replication_factor, topic.partition_count)
            )
            if _is_listed(topic) and rules.allow(name)
            else None
            for name, topic in found
        )
        next_query = None if page is None or last is None else page.query(last)
        pieces = collection_pieces("KafkaTopicList", f"{resources.url}/topics", items, next_query)
        freshness = self._table.freshness(self._producer.cache, listed.refreshed)
        return of_long(request, await self._slices.body(pieces), freshness)

    async def topic(self, request: Request, cluster_id: ClusterId, topic: str) -> Response:
        """One topic, an internal one too."""
        await self._know(request, cluster_id, topic)
        return self._ready(request, f"{_CLUSTERS}/{cluster_id}/topics/{topic}", topic)

    async def partitions(self, request: Request, cluster_id: ClusterId, topic: str, query: Paged) -> Response:
        """A topic's partitions, by their numbers."""
        page = query.page(f"partitions {topic}")
        cache, table = await self._know(request, cluster_id, topic)
        path = f"{_CLUSTERS}/{cluster_id}/topics/{topic}/partitions"
        entry = None if page is not None else self._find(request, path)
        if entry is not None:
            return of_prepared(request, entry)
        numbers, next_query = numbers_after(table.numbers, page)
        resources = ClusterResources(clusters_url(request.scope), cluster_id)
        pieces = _partitions_pieces(resources, table, cache.nodes_by_id, numbers, next_query)
        freshness = self._table.freshness(cache, cache.refresh_time(topic))
        return of_long(request, await self._slices.body(pieces), freshness)

    async def partition(
        self, request: Request, cluster_id: ClusterId, topic: str, partition_id: PartitionId
    ) -> Response:
        """One partition; its leader is null while it has none."""
        _, path = await self._partition(request, cluster_id, topic, partition_id)
        return self._ready(request, path, topic)

    async def replicas(
        self, request: Request, cluster_id: ClusterId, topic: str, partition_id: PartitionId, query: Paged
    ) -> Response:
        """The copies of a partition, the preferred leader first."""
        page = query.page(f"replicas {topic} {partition_id}")
        info, path = await self._partition(request, cluster_id, topic, partition_id)
        cache = self._producer.cache
        if page is None:
            return self._ready(request, f"{path}/replicas", topic)
        places, next_query = numbers_after(range(len(info.replicas)), page)
        resources = ClusterResources(clusters_url(request.scope), cluster_id)
        pieces = _replicas_pieces(resources, info, [info.replicas[at] for at in places], next_query)
        freshness = self._table.freshness(cache, cache.refresh_time(topic))
        return of_long(request, await self._slices.body(pieces), freshness)

    async def replica(
        self,
        request: Request,
        cluster_id: ClusterId,
        topic: str,
        partition_id: PartitionId,
        broker_id: BrokerId,
    ) -> Response:
        """The copy that one broker holds."""
        info, path = await self._partition(request, cluster_id, topic, partition_id)
        number = _number(broker_id)
        if number not in {node.id for node in info.replicas}:
            raise refused(404, f"broker {broker_id} holds no replica of partition {partition_id} of {topic}")
        return self._ready(request, f"{path}/replicas/{number}", topic)

    # -- look-ups --------------------------------------------------------------------------------------------

    async def _know_cluster(self, request: Request, cluster_id: str | None) -> str:
        """Returns the path of this cluster, once a broker has answered; `cluster_id` None accepts any."""
        known = await self._cluster.require(cluster_id, request.receive, caller_of(request.scope))
        return f"{_CLUSTERS}/{known}"

    async def _know(self, request: Request, cluster_id: str, topic: str) -> tuple[MetadataCache, TopicTable]:
        await self._know_cluster(request, cluster_id)
        return await self._lookups.known(topic, NO_DEMANDS, request.receive, caller_of(request.scope))

    async def _partition(
        self, request: Request, cluster_id: str, topic: str, partition_id: str
    ) -> tuple[PartitionInfo, str]:
        """Returns a partition and its path, with the number in canonical form."""
        cache, table = await self._know(request, cluster_id, topic)
        number = _number(partition_id)
        info = None if number is None else table.partition(number, cache.nodes_by_id)
        if info is None and number is not None:
            await self._partition_refresh.refresh(topic, request)
            cache, table = await self._know(request, cluster_id, topic)
            info = table.partition(number, cache.nodes_by_id)
        if info is None:
            detail = f"topic {topic} has no partition {partition_id}, it has {table.partition_count}"
            problem = None if number is None else problem_of(self._lookups.missing(topic, number))
            if problem is not None and problem.status != 404:
                raise ProblemError(problem)
            raise refused(404, detail)
        return info, f"{_CLUSTERS}/{cluster_id}/topics/{topic}/partitions/{number}"

    def _find(self, request: Request, path: str) -> Entry | None:
        return self._table.find(path.encode(), base_of(request.scope).encode("latin-1"))

    def _ready(self, request: Request, path: str, topic: str | None = None) -> Response:
        entry = self._find(request, path)
        if entry is None:  # the metadata changed while this look-up waited
            raise ProblemError(problem_of(self._lookups.missing(topic or "", None)))
        return of_prepared(request, entry)


def _is_listed(topic: ListedTopic) -> bool:
    return not topic.is_internal and not topic.error_code


# -- ready answers -------------------------------------------------------------------------------------------


def _of_cluster(build: Callable[..., Built | None]) -> Build:
    """Returns a builder that answers for this cluster only, and passes its resources on to `build`."""

    def built(asked: Asked, cluster_id: str, **path: str) -> Built | None:
        if asked.cache.is_bootstrap or cluster_id != asked.cache.cluster_id:
            return None
        return build(asked, ClusterResources(f"{asked.base}{_CLUSTERS}", cluster_id), **path)

    return built


def _of_partition(make: Callable[..., bytes | None]) -> Build:
    """Returns a builder that passes the cluster's resources and a partition on to `make`."""

    def build(
        asked: Asked, resources: ClusterResources, topic: str, partition_id: str, **path: str
    ) -> Built | None:
        def body(table: TopicTable, number: int, nodes: Mapping[int, Node]) -> bytes | None:
            info = table.partition(number, nodes)
            return None if info is None else make(resources, info, **path)

        return of_partition(asked, topic, partition_id, body)

    return _of_cluster(build)


def _clusters_answer(asked: Asked) -> Built | None:
    cache, url = asked.cache, f"{asked.base}{_CLUSTERS}"
    if cache.is_bootstrap or cache.cluster_id is None:
        return None
    item = ClusterResources(url, cache.cluster_id).cluster(cache.controller)
    return Built(b"".join(collection_pieces("KafkaClusterList", url, [item])))


def _cluster_answer(asked: Asked, resources: ClusterResources) -> Built:
    return Built(resource_body(resources.cluster(asked.cache.controller)))


def _brokers_answer(asked: Asked, resources: ClusterResources) -> Built | None:
    nodes = asked.cache.nodes_by_id
    return None if len(nodes) > _MANY_BROKERS else Built(b"".join(_brokers_pieces(resources, nodes)))


def _broker_answer(asked: Asked, resources: ClusterResources, broker_id: str) -> Built | None:
    number = plain_number(broker_id)
    node = None if number is None else asked.cache.nodes_by_id.get(number)
    return None if node is None else Built(resource_body(resources.broker(node)))


def _topic_answer(asked: Asked, resources: ClusterResources, topic: str) -> Built | None:
    table = asked.cache.topics.get(topic)
    if table is None:
        return None
    shape = TopicShape(table.name, table.is_internal, table.replication_factor, table.partition_count)
    return Built(resource_body(resources.topic(shape)), table)


def _partitions_answer(asked: Asked, resources: ClusterResources, topic: str) -> Built | None:
    table = short_topic(asked, topic)
    if table is None:
        return None
    pieces = _partitions_pieces(resources, table, asked.cache.nodes_by_id, table.numbers)
    return Built(b"".join(pieces), table)


def _partition_body(resources: ClusterResources, info: PartitionInfo) -> bytes:
    return resource_body(resources.partition(info))


def _replicas_body(resources: ClusterResources, info: PartitionInfo) -> bytes:
    return b"".join(_replicas_pieces(resources, info, info.replicas))


def _replica_body(resources: ClusterResources, info: PartitionInfo, broker_id: str) -> bytes | None:
    number = plain_number(broker_id)
    if number is None or number not in {node.id for node in info.replicas}:
        return None
    return resource_body(resources.replica(info, number))


_BUILDS: Final[Mapping[str, Build]] = {
    _CLUSTERS: _clusters_answer,
    _CLUSTER: _of_cluster(_cluster_answer),
    _BROKERS: _of_cluster(_brokers_answer),
    _BROKER: _of_cluster(_broker_answer),
    _TOPIC: _of_cluster(_topic_answer),
    _PARTITIONS: _of_cluster(_partitions_answer),
    _PARTITION: _of_partition(_partition_body),
    _REPLICAS: _of_partition(_replicas_body),
    _REPLICA: _of_partition(_replica_body),
}


def _brokers_pieces(
    resources: ClusterResources, nodes: Mapping[int, Node], next_query: str | None = None
) -> Iterator[bytes]:
    items = (resources.broker(node) for _, node in sorted(nodes.items()))
    return collection_pieces("KafkaBrokerList", f"{resources.url}/brokers", items, next_query)


def _partitions_pieces(
    resources: ClusterResources,
    table: TopicTable,
    nodes: Mapping[int, Node],
    numbers: Iterable[int],
    next_query: str | None = None,
) -> Iterator[bytes]:
    found = (table.partition(number, nodes) for number in numbers)
    items = (resources.partition(info) for info in found if info is not None)
    url = f"{resources.topic_url(table.name)}/partitions"
    return collection_pieces("KafkaPartitionList", url, items, next_query)


def _replicas_pieces(
    resources: ClusterResources, info: PartitionInfo, nodes: Iterable[Node], next_query: str | None = None
) -> Iterator[bytes]:
    items = (resources.replica(info, node.id) for node in nodes)
    url = f"{resources.partition_url(info.topic, info.partition)}/replicas"
    return collection_pieces("KafkaReplicaList", url, items, next_query)


def _number(digits: str) -> int | None:
    """Returns a number in a path; None if it is invalid or too long."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS else None
