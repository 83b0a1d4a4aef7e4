"""Metadata routes of REST Proxy v3: cluster, brokers, topics, partitions and replicas.

All answers come from the client's metadata, with the native API's freshness headers. The topics come from the
sidecar's listing. Like Confluent's, the list omits internal topics, and also those that the caller may not
read. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from client_core import ListedTopic, Node, PartitionInfo, TopicTable
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
from service.lookup.lookup_table import (
    Asked,
    Build,
    Built,
    Entry,
    Form,
    LookupTable,
    of_partition,
    plain_number,
    short_topic,
)
from service.lookup.lookups import NO_DEMANDS, Lookups
from service.lookup.paging import PageQuery, numbers_after
from service.wire.asgi import base_of
from service.wire.errors import ProblemError, problem_of, refused
from service.wire.freshness import freshness_headers
from service.wire.long_answers import Slices
from service.wire.responses import FRESH, of_long, of_prepared
from service.wire.schemas import check_query

#: The query of a list.
Paged = Annotated[PageQuery, Query()]

_CLUSTERS: Final = "/v3/clusters"
_CLUSTER: Final = f"{_CLUSTERS}/{{cluster_id}}"
_TOPIC: Final = f"{_CLUSTER}/topics/{{topic}}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition_id}}"

#: A list of more brokers is built in slices.
_MANY_BROKERS: Final = 200

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
        table.serve(_BUILDS, Form(has_links=True, with_brokers=True))

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
        await self._know_cluster(request, None)
        return self._ready(request, "/v3/clusters")

    async def cluster(self, request: Request, cluster_id: ClusterId) -> Response:
        """The cluster, if it is this one."""
        return self._ready(request, await self._know_cluster(request, cluster_id))

    async def brokers(self, request: Request, cluster_id: ClusterId, query: Paged) -> Response:
        """The brokers, by their ids."""
        page, path = query.page("brokers"), await self._know_cluster(request, cluster_id)
        entry = None if page is not None else self._find(request, f"{path}/brokers")
        if entry is not None:
            return of_prepared(request, entry)
        nodes = self._producer.cache.nodes_by_id
        ids, next_query = numbers_after(sorted(nodes), page)
        resources = ClusterResources(clusters_url(request.scope), cluster_id)
        pieces = _brokers_pieces(resources, {number: nodes[number] for number in ids}, next_query)
        freshness = self._table.freshness(None, self._producer.clock.now_ms())
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
        await self._know(request, cluster_id, topic)
        return self._ready(request, f"{_CLUSTERS}/{cluster_id}/topics/{topic}", topic)

    async def partitions(self, request: Request, cluster_id: ClusterId, topic: str, query: Paged) -> Response:
        """A topic's partitions, by their numbers."""
        page = query.page(f"partitions {topic}")
        table, nodes = await self._know(request, cluster_id, topic)
        path = f"{_CLUSTERS}/{cluster_id}/topics/{topic}/partitions"
        entry = None if page is not None else self._find(request, path)
        if entry is not None:
            return of_prepared(request, entry)
        numbers, next_query = numbers_after(table.numbers, page)
        resources = ClusterResources(clusters_url(request.scope), cluster_id)
        pieces = _partitions_pieces(resources, table, nodes, numbers, next_query)
        freshness = self._table.freshness(topic, self._producer.clock.now_ms())
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
        if page is None:
            return self._ready(request, f"{path}/replicas", topic)
        places, next_query = numbers_after(range(len(info.replicas)), page)
        resources = ClusterResources(clusters_url(request.scope), cluster_id)
        items = (resources.replica(info, info.replicas[at].id) for at in places)
        url = f"{resources.partition_url(topic, info.partition)}/replicas"
        pieces = collection_pieces("KafkaReplicaList", url, items, next_query)
        freshness = self._table.freshness(topic, self._producer.clock.now_ms())
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
        """The path of this cluster, once a broker has answered; None accepts any cluster id."""
        known = await self._cluster.require(cluster_id, request.receive, caller_of(request.scope))
        return f"{_CLUSTERS}/{known}"

    async def _know(
        self, request: Request, cluster_id: str, topic: str
    ) -> tuple[TopicTable, Mapping[int, Node]]:
        caller = caller_of(request.scope)
        await self._know_cluster(request, cluster_id)
        problem = (await self._lookups.know([topic], NO_DEMANDS, request.receive, caller)).get(topic)
        if problem is not None:
            raise ProblemError(problem)
        cache = self._producer.cache
        table = cache.topics.get(topic)
        if table is None:
            raise ProblemError(problem_of(self._lookups.missing(topic, None)))
        table.use.touched = True
        return table, cache.nodes_by_id

    async def _partition(
        self, request: Request, cluster_id: str, topic: str, partition_id: str
    ) -> tuple[PartitionInfo, str]:
        """A partition, and its path with a plain number."""
        table, nodes = await self._know(request, cluster_id, topic)
        number = _number(partition_id)
        info = None if number is None else table.partition(number, nodes)
        if info is None and number is not None:
            await self._partition_refresh.refresh(topic, request)
            table, nodes = await self._know(request, cluster_id, topic)
            info = table.partition(number, nodes)
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


def _resources(asked: Asked, cluster_id: str) -> ClusterResources | None:
    """The resources of the cluster, if it is this one."""
    cache = asked.cache
    if cache.is_bootstrap or cluster_id != cache.cluster_id:
        return None
    return ClusterResources(f"{asked.base}{_CLUSTERS}", cluster_id)


def _clusters_answer(asked: Asked) -> Built | None:
    cluster_id = asked.cache.cluster_id
    resources = None if cluster_id is None else _resources(asked, cluster_id)
    if resources is None:
        return None
    item = resources.cluster(asked.cache.controller)
    return Built(_joined("KafkaClusterList", f"{asked.base}{_CLUSTERS}", [item]))


def _cluster_answer(asked: Asked, cluster_id: str) -> Built | None:
    resources = _resources(asked, cluster_id)
    return None if resources is None else Built(resource_body(resources.cluster(asked.cache.controller)))


def _brokers_answer(asked: Asked, cluster_id: str) -> Built | None:
    resources, nodes = _resources(asked, cluster_id), asked.cache.nodes_by_id
    if resources is None or len(nodes) > _MANY_BROKERS:
        return None
    return Built(b"".join(_brokers_pieces(resources, nodes)))


def _broker_answer(asked: Asked, cluster_id: str, broker_id: str) -> Built | None:
    resources, number = _resources(asked, cluster_id), plain_number(broker_id)
    node = None if number is None else asked.cache.nodes_by_id.get(number)
    return None if resources is None or node is None else Built(resource_body(resources.broker(node)))


def _topic_answer(asked: Asked, cluster_id: str, topic: str) -> Built | None:
    resources, table = _resources(asked, cluster_id), asked.cache.topics.get(topic)
    if resources is None or table is None:
        return None
    shape = TopicShape(table.name, table.is_internal, table.replication_factor, table.partition_count)
    return Built(resource_body(resources.topic(shape)), table)


def _partitions_answer(asked: Asked, cluster_id: str, topic: str) -> Built | None:
    resources, table = _resources(asked, cluster_id), short_topic(asked, topic)
    if resources is None or table is None:
        return None
    return Built(
        b"".join(_partitions_pieces(resources, table, asked.cache.nodes_by_id, table.numbers)), table
    )


def _of_partition(
    asked: Asked,
    cluster_id: str,
    topic: str,
    partition_id: str,
    make: Callable[[ClusterResources, PartitionInfo], bytes | None],
) -> Built | None:
    resources = _resources(asked, cluster_id)
    if resources is None:
        return None

    def body(table: TopicTable, number: int, nodes: Mapping[int, Node]) -> bytes | None:
        info = table.partition(number, nodes)
        return None if info is None else make(resources, info)

    return of_partition(asked, topic, partition_id, body)


def _partition_answer(asked: Asked, **path: str) -> Built | None:
    return _of_partition(asked, **path, make=lambda resources, info: resource_body(resources.partition(info)))


def _replicas_answer(asked: Asked, **path: str) -> Built | None:
    def body(resources: ClusterResources, info: PartitionInfo) -> bytes:
        url = f"{resources.partition_url(info.topic, info.partition)}/replicas"
        items = (resources.replica(info, node.id) for node in info.replicas)
        return _joined("KafkaReplicaList", url, items)

    return _of_partition(asked, **path, make=body)


def _replica_answer(asked: Asked, broker_id: str, **path: str) -> Built | None:
    number = plain_number(broker_id)

    def body(resources: ClusterResources, info: PartitionInfo) -> bytes | None:
        if number is None or number not in {node.id for node in info.replicas}:
            return None
        return resource_body(resources.replica(info, number))

    return _of_partition(asked, **path, make=body)


_BUILDS: Final[Mapping[str, Build]] = {
    _CLUSTERS: _clusters_answer,
    _CLUSTER: _cluster_answer,
    f"{_CLUSTER}/brokers": _brokers_answer,
    f"{_CLUSTER}/brokers/{{broker_id}}": _broker_answer,
    _TOPIC: _topic_answer,
    f"{_TOPIC}/partitions": _partitions_answer,
    _PARTITION: _partition_answer,
    f"{_PARTITION}/replicas": _replicas_answer,
    f"{_PARTITION}/replicas/{{broker_id}}": _replica_answer,
}


def _joined(kind: str, url: str, items: Iterable[Resource]) -> bytes:
    return b"".join(collection_pieces(kind, url, items))


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


def _number(digits: str) -> int | None:
    """Returns a number in a path; None if it is invalid or too long."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS else None
