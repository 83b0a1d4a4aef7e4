"""Metadata routes of REST Proxy v3: cluster, brokers, topics, partitions and replicas.

All answers come from the client's metadata, with the native API's freshness headers. The topics come from the
sidecar's listing. Like Confluent's, the list omits internal topics, and also those that the caller may not
read. Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from client_core import ListedTopic, MetadataCache, Node, PartitionInfo, TopicTable
from service.admission.caller import caller_of
from service.base.producer_protocol import Producer
from service.dialects.rest_proxy import PartitionRefresh
from service.dialects.rest_v3.requests import ClusterPath, no_query
from service.dialects.rest_v3.resources import (
    ClusterResources,
    Resource,
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
from service.lookup.listing import Listing
from service.lookup.lookup_table import LookupTable
from service.lookup.lookups import NO_DEMANDS, Lookups
from service.lookup.paging import PageQuery, numbers_after
from service.wire.asgi import HeaderPairs
from service.wire.errors import ProblemError, problem_of, refused
from service.wire.freshness import freshness_headers
from service.wire.long_answers import Slices
from service.wire.responses import FRESH, of_body, of_long
from service.wire.schemas import check_query

#: The query of a list.
Paged = Annotated[PageQuery, Query()]

_CLUSTER: Final = "/v3/clusters/{cluster_id}"
_TOPIC: Final = f"{_CLUSTER}/topics/{{topic}}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition_id}}"

#: The number of digits of the greatest int32.
_MAX_DIGITS: Final = 10

_OF_CLUSTER: Final = errors(400, 404, 422, 429, 503)
_OF_TOPIC: Final = errors(400, 403, 404, 422, 429, 503)


class MetadataRoutes:
    """The handlers."""

    def __init__(
        self,
        *,
        producer: Producer,
        lookups: Lookups,
        table: LookupTable,
        listing: Listing,
        slices: Slices,
        cluster: ClusterPath,
        partition_refresh: PartitionRefresh,
    ) -> None:
        self._producer = producer
        self._lookups = lookups
        self._table = table
        self._listing = listing
        self._slices = slices
        self._cluster = cluster
        self._partition_refresh = partition_refresh

    def router(self) -> APIRouter:
        """Returns the routes, with their OpenAPI descriptions."""
        router = APIRouter(
            tags=["REST Proxy v3: metadata"],
            dependencies=[Depends(check_query)],
            responses=FRESH,
        )
        alone = [Depends(no_query)]
        router.get(
            "/v3/clusters",
            operation_id="listClustersV3",
            dependencies=alone,
            response_model=ClusterDataList,
            responses=errors(400, 422, 429, 503),
        )(self.clusters)
        router.get(
            _CLUSTER,
            operation_id="getClusterV3",
            dependencies=alone,
            response_model=ClusterData,
            responses=_OF_CLUSTER,
        )(self.cluster)
        router.get(
            f"{_CLUSTER}/brokers",
            operation_id="listBrokersV3",
            response_model=BrokerDataList,
            responses=_OF_CLUSTER,
        )(self.brokers)
        router.get(
            f"{_CLUSTER}/brokers/{{broker_id}}",
            operation_id="getBrokerV3",
            dependencies=alone,
            response_model=BrokerData,
            responses=_OF_CLUSTER,
        )(self.broker)
        router.get(
            f"{_CLUSTER}/topics",
            operation_id="listTopicsV3",
            response_model=TopicDataList,
            responses=_OF_CLUSTER,
        )(self.topics)
        router.get(
            _TOPIC,
            operation_id="getTopicV3",
            dependencies=alone,
            response_model=TopicData,
            responses=_OF_TOPIC,
        )(self.topic)
        router.get(
            f"{_TOPIC}/partitions",
            operation_id="listPartitionsV3",
            response_model=PartitionDataList,
            responses=_OF_TOPIC,
        )(self.partitions)
        router.get(
            _PARTITION,
            operation_id="getPartitionV3",
            dependencies=alone,
            response_model=PartitionData,
            responses=_OF_TOPIC,
        )(self.partition)
        router.get(
            f"{_PARTITION}/replicas",
            operation_id="listReplicasV3",
            response_model=ReplicaDataList,
            responses=_OF_TOPIC,
        )(self.replicas)
        router.get(
            f"{_PARTITION}/replicas/{{broker_id}}",
            operation_id="getReplicaV3",
            dependencies=alone,
            response_model=ReplicaData,
            responses=_OF_TOPIC,
        )(self.replica)
        return router

    # -- clusters and brokers --------------------------------------------------------------------------------

    async def clusters(self, request: Request) -> Response:
        """The one cluster there is."""
        resources, cache = await self._resources(request, None)
        url = clusters_url(request.scope)
        pieces = collection_pieces("KafkaClusterList", url, [resources.cluster(cache.controller)])
        return await self._listed(request, pieces, None)

    async def cluster(self, request: Request, cluster_id: ClusterId) -> Response:
        """The cluster, if it is this one."""
        resources, cache = await self._resources(request, cluster_id)
        return self._answer(request, resources.cluster(cache.controller), None)

    async def brokers(self, request: Request, cluster_id: ClusterId, query: Paged) -> Response:
        """The brokers, by their ids."""
        resources, cache = await self._resources(request, cluster_id)
        ids, next_query = numbers_after(sorted(cache.nodes_by_id), query.page("brokers"))
        items = (resources.broker(cache.nodes_by_id[broker_id]) for broker_id in ids)
        pieces = collection_pieces("KafkaBrokerList", f"{resources.url}/brokers", items, next_query)
        return await self._listed(request, pieces, None)

    async def broker(self, request: Request, cluster_id: ClusterId, broker_id: BrokerId) -> Response:
        """One broker."""
        resources, cache = await self._resources(request, cluster_id)
        number = _number(broker_id)
        node = None if number is None else cache.nodes_by_id.get(number)
        if node is None:
            raise self._lookups.missing_broker(broker_id)
        return self._answer(request, resources.broker(node), None)

    # -- topics ----------------------------------------------------------------------------------------------

    async def topics(self, request: Request, cluster_id: ClusterId, query: Paged) -> Response:
        """All topics that the caller may read, by name; internal ones are left out."""
        page = query.page("v3 topics")
        resources, _ = await self._resources(request, cluster_id)
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
        self._table.find(b"/v1/cluster")
        freshness = freshness_headers(
            self._table.version,
            listed.refreshed_ms,
            listed.refreshed_wall_ms,
            self._producer.clock.now_ms(),
        )
        return of_long(request, await self._slices.body(pieces), freshness)

    async def topic(self, request: Request, cluster_id: ClusterId, topic: str) -> Response:
        """One topic, an internal one too."""
        resources, table, _ = await self._topic(request, cluster_id, topic)
        return self._answer(request, resources.topic(_shape(table)), topic)

    async def partitions(self, request: Request, cluster_id: ClusterId, topic: str, query: Paged) -> Response:
        """A topic's partitions, by their numbers."""
        page = query.page(f"partitions {topic}")
        resources, table, nodes = await self._topic(request, cluster_id, topic)
        numbers, next_query = numbers_after(table.numbers, page)
        items = (resources.partition(info) for info in _partitions(table, nodes, numbers))
        url = f"{resources.topic_url(topic)}/partitions"
        pieces = collection_pieces("KafkaPartitionList", url, items, next_query)
        return await self._listed(request, pieces, topic)

    async def partition(
        self, request: Request, cluster_id: ClusterId, topic: str, partition_id: PartitionId
    ) -> Response:
        """One partition; its leader is null while it has none."""
        resources, info = await self._partition(request, cluster_id, topic, partition_id)
        return self._answer(request, resources.partition(info), topic)

    async def replicas(
        self, request: Request, cluster_id: ClusterId, topic: str, partition_id: PartitionId, query: Paged
    ) -> Response:
        """The copies of a partition, the preferred leader first."""
        page = query.page(f"replicas {topic} {partition_id}")
        resources, info = await self._partition(request, cluster_id, topic, partition_id)
        places, next_query = numbers_after(range(len(info.replicas)), page)
        items = (resources.replica(info, info.replicas[at].id) for at in places)
        url = f"{resources.partition_url(topic, info.partition)}/replicas"
        pieces = collection_pieces("KafkaReplicaList", url, items, next_query)
        return await self._listed(request, pieces, topic)

    async def replica(
        self,
        request: Request,
        cluster_id: ClusterId,
        topic: str,
        partition_id: PartitionId,
        broker_id: BrokerId,
    ) -> Response:
        """The copy that one broker holds."""
        resources, info = await self._partition(request, cluster_id, topic, partition_id)
        number = _number(broker_id)
        if number not in {node.id for node in info.replicas}:
            raise refused(404, f"broker {broker_id} holds no replica of partition {partition_id} of {topic}")
        assert number is not None
        return self._answer(request, resources.replica(info, number), topic)

    # -- look-ups --------------------------------------------------------------------------------------------

    async def _resources(
        self, request: Request, cluster_id: str | None
    ) -> tuple[ClusterResources, MetadataCache]:
        """The cluster's resources and the snapshot to answer from; None accepts any cluster id."""
        known = await self._cluster.require(cluster_id, request.receive, caller_of(request.scope))
        return ClusterResources(clusters_url(request.scope), known), self._producer.cache

    async def _topic(
        self, request: Request, cluster_id: str, topic: str
    ) -> tuple[ClusterResources, TopicTable, Mapping[int, Node]]:
        caller = caller_of(request.scope)
        resources, _ = await self._resources(request, cluster_id)
        problem = (await self._lookups.know([topic], NO_DEMANDS, request.receive, caller)).get(topic)
        if problem is not None:
            raise ProblemError(problem)
        cache = self._producer.cache
        table = cache.topics.get(topic)
        if table is None:
            raise ProblemError(problem_of(self._lookups.missing(topic, None)))
        table.use.touched = True
        return resources, table, cache.nodes_by_id

    async def _partition(
        self, request: Request, cluster_id: str, topic: str, partition_id: str
    ) -> tuple[ClusterResources, PartitionInfo]:
        resources, table, nodes = await self._topic(request, cluster_id, topic)
        number = _number(partition_id)
        info = None if number is None else table.partition(number, nodes)
        if info is None and number is not None:
            await self._partition_refresh.refresh(topic, request)
            resources, table, nodes = await self._topic(request, cluster_id, topic)
            info = table.partition(number, nodes)
        if info is None:
            detail = f"topic {topic} has no partition {partition_id}, it has {table.partition_count}"
            problem = None if number is None else problem_of(self._lookups.missing(topic, number))
            if problem is not None and problem.status != 404:
                raise ProblemError(problem)
            raise refused(404, detail)
        return resources, info

    # -- answers ---------------------------------------------------------------------------------------------

    def _answer(self, request: Request, resource: Resource, topic: str | None) -> Response:
        return of_body(request, resource_body(resource), self._freshness(topic))

    async def _listed(self, request: Request, pieces: Iterable[bytes], topic: str | None) -> Response:
        """A list, with the freshness of the metadata at its start."""
        freshness = self._freshness(topic)
        return of_long(request, await self._slices.body(pieces), freshness)

    def _freshness(self, topic: str | None) -> HeaderPairs:
        self._table.find(b"/v1/cluster")
        return self._table.freshness(topic, self._producer.clock.now_ms())


def _is_listed(topic: ListedTopic) -> bool:
    return not topic.is_internal and not topic.error_code


def _partitions(
    table: TopicTable, nodes: Mapping[int, Node], numbers: Iterable[int]
) -> Iterable[PartitionInfo]:
    found = (table.partition(number, nodes) for number in numbers)
    return (info for info in found if info is not None)


def _shape(table: TopicTable) -> TopicShape:
    return TopicShape(table.name, table.is_internal, table.replication_factor, table.partition_count)


def _number(digits: str) -> int | None:
    """Returns a number in a path; None if it is invalid or too long."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS else None
