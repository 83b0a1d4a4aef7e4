"""The metadata reads of REST Proxy v3: the cluster, its brokers, topics, partitions and replicas.

All of it comes from the client's own metadata and says how fresh that is, by the headers of the native API.
The list of topics is the sidecar's listing; like Confluent's it leaves internal topics out, and what the
caller may not read. Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fastapi import APIRouter, Depends, Request, Response

from client_core import MetadataCache, Node, PartitionInfo, TopicTable
from service.admission.caller import caller_of
from service.dialects.rest_proxy import look_again
from service.dialects.rest_v3.requests import no_query, require_cluster
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
from service.lookup.lookups import NO_DEMANDS, missing
from service.sidecar.sidecar import Sidecar, SidecarDep
from service.wire.asgi import HeaderPairs
from service.wire.errors import ProblemError, problem_of, refused
from service.wire.freshness import freshness_headers
from service.wire.responses import of_body, of_long

_CLUSTER: Final = "/v3/clusters/{cluster_id}"
_TOPIC: Final = f"{_CLUSTER}/topics/{{topic}}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition_id}}"

#: As many digits as the greatest int32 has.
_MAX_DIGITS: Final = 10

_OF_CLUSTER: Final = errors(400, 404, 422, 429, 503)
_OF_TOPIC: Final = errors(400, 403, 404, 422, 429, 503)


router = APIRouter(tags=["REST Proxy v3: metadata"], dependencies=[Depends(no_query)])


# -- clusters and brokers ------------------------------------------------------------------------------------


@router.get("/v3/clusters", response_model=ClusterDataList, responses=errors(400, 422, 429, 503))
async def clusters(request: Request, sidecar: SidecarDep) -> Response:
    """The one cluster there is."""
    resources, cache = await _resources(sidecar, request, None)
    url = clusters_url(request.scope)
    pieces = collection_pieces("KafkaClusterList", url, [resources.cluster(cache.controller)])
    return await _listed(sidecar, request, pieces, None)


@router.get(_CLUSTER, response_model=ClusterData, responses=_OF_CLUSTER)
async def cluster(request: Request, sidecar: SidecarDep, cluster_id: ClusterId) -> Response:
    """The cluster, if it is this one."""
    resources, cache = await _resources(sidecar, request, cluster_id)
    return _answer(sidecar, request, resources.cluster(cache.controller), None)


@router.get(f"{_CLUSTER}/brokers", response_model=BrokerDataList, responses=_OF_CLUSTER)
async def brokers(request: Request, sidecar: SidecarDep, cluster_id: ClusterId) -> Response:
    """The brokers, by their ids."""
    resources, cache = await _resources(sidecar, request, cluster_id)
    items = (resources.broker(node) for _, node in sorted(cache.nodes_by_id.items()))
    pieces = collection_pieces("KafkaBrokerList", f"{resources.url}/brokers", items)
    return await _listed(sidecar, request, pieces, None)


@router.get(f"{_CLUSTER}/brokers/{{broker_id}}", response_model=BrokerData, responses=_OF_CLUSTER)
async def broker(
    request: Request, sidecar: SidecarDep, cluster_id: ClusterId, broker_id: BrokerId
) -> Response:
    """One broker."""
    resources, cache = await _resources(sidecar, request, cluster_id)
    number = _number(broker_id)
    node = None if number is None else cache.nodes_by_id.get(number)
    if node is None:
        raise refused(404, f"there is no broker {broker_id}")
    return _answer(sidecar, request, resources.broker(node), None)


# -- topics --------------------------------------------------------------------------------------------------


@router.get(f"{_CLUSTER}/topics", response_model=TopicDataList, responses=_OF_CLUSTER)
async def topics(request: Request, sidecar: SidecarDep, cluster_id: ClusterId) -> Response:
    """All topics that the caller may read, by name; internal ones are left out."""
    resources, _ = await _resources(sidecar, request, cluster_id)
    listed = await sidecar.listing.current(NO_DEMANDS)
    rules = caller_of(request.scope).read
    found = ((name, listed.listing.topics[name]) for name in await listed.names())
    items = (
        resources.topic(TopicShape(name, topic.is_internal, topic.replication_factor, topic.partition_count))
        if not topic.is_internal and not topic.error_code and rules.allow(name)
        else None
        for name, topic in found
    )
    pieces = collection_pieces("KafkaTopicList", f"{resources.url}/topics", items)
    sidecar.table.find(b"/v1/cluster")
    freshness = freshness_headers(
        sidecar.table.version,
        listed.refreshed_ms,
        listed.refreshed_wall_ms,
        sidecar.producer.clock.now_ms(),
    )
    return of_long(request, await sidecar.slices.body(pieces), freshness)


@router.get(_TOPIC, response_model=TopicData, responses=_OF_TOPIC)
async def topic(request: Request, sidecar: SidecarDep, cluster_id: ClusterId, topic: str) -> Response:
    """One topic, an internal one too."""
    resources, table, _ = await _topic(sidecar, request, cluster_id, topic)
    return _answer(sidecar, request, resources.topic(_shape(table)), topic)


@router.get(f"{_TOPIC}/partitions", response_model=PartitionDataList, responses=_OF_TOPIC)
async def partitions(request: Request, sidecar: SidecarDep, cluster_id: ClusterId, topic: str) -> Response:
    """A topic's partitions, by their numbers."""
    resources, table, nodes = await _topic(sidecar, request, cluster_id, topic)
    items = (resources.partition(info) for info in _partitions(table, nodes))
    url = f"{resources.topic_url(topic)}/partitions"
    pieces = collection_pieces("KafkaPartitionList", url, items)
    return await _listed(sidecar, request, pieces, topic)


@router.get(_PARTITION, response_model=PartitionData, responses=_OF_TOPIC)
async def partition(
    request: Request, sidecar: SidecarDep, cluster_id: ClusterId, topic: str, partition_id: PartitionId
) -> Response:
    """One partition; its leader is null while it has none."""
    resources, info = await _partition(sidecar, request, cluster_id, topic, partition_id)
    return _answer(sidecar, request, resources.partition(info), topic)


@router.get(f"{_PARTITION}/replicas", response_model=ReplicaDataList, responses=_OF_TOPIC)
async def replicas(
    request: Request, sidecar: SidecarDep, cluster_id: ClusterId, topic: str, partition_id: PartitionId
) -> Response:
    """The copies of a partition, the preferred leader first."""
    resources, info = await _partition(sidecar, request, cluster_id, topic, partition_id)
    items = (resources.replica(info, node.id) for node in info.replicas)
    url = f"{resources.partition_url(topic, info.partition)}/replicas"
    pieces = collection_pieces("KafkaReplicaList", url, items)
    return await _listed(sidecar, request, pieces, topic)


@router.get(f"{_PARTITION}/replicas/{{broker_id}}", response_model=ReplicaData, responses=_OF_TOPIC)
async def replica(
    request: Request,
    sidecar: SidecarDep,
    cluster_id: ClusterId,
    topic: str,
    partition_id: PartitionId,
    broker_id: BrokerId,
) -> Response:
    """The copy that one broker holds."""
    resources, info = await _partition(sidecar, request, cluster_id, topic, partition_id)
    number = _number(broker_id)
    if number not in {node.id for node in info.replicas}:
        raise refused(404, f"broker {broker_id} holds no replica of partition {partition_id} of {topic}")
    assert number is not None
    return _answer(sidecar, request, resources.replica(info, number), topic)


# -- finding -------------------------------------------------------------------------------------------------


async def _resources(
    sidecar: Sidecar, request: Request, cluster_id: str | None
) -> tuple[ClusterResources, MetadataCache]:
    """The cluster's resources and the snapshot to answer from; None stands for whatever cluster it is."""
    known = await require_cluster(sidecar, cluster_id, request.receive, caller_of(request.scope))
    return ClusterResources(clusters_url(request.scope), known), sidecar.producer.cache


async def _topic(
    sidecar: Sidecar, request: Request, cluster_id: str, topic: str
) -> tuple[ClusterResources, TopicTable, Mapping[int, Node]]:
    caller = caller_of(request.scope)
    resources, _ = await _resources(sidecar, request, cluster_id)
    problem = (await sidecar.lookups.know([topic], NO_DEMANDS, request.receive, caller)).get(topic)
    if problem is not None:
        raise ProblemError(problem)
    cache = sidecar.producer.cache
    table = cache.topics.get(topic)
    if table is None:
        raise ProblemError(problem_of(missing(sidecar.producer.cache, topic, None)))
    table.use.touched = True
    return resources, table, cache.nodes_by_id


async def _partition(
    sidecar: Sidecar, request: Request, cluster_id: str, topic: str, partition_id: str
) -> tuple[ClusterResources, PartitionInfo]:
    resources, table, nodes = await _topic(sidecar, request, cluster_id, topic)
    number = _number(partition_id)
    info = None if number is None else table.partition(number, nodes)
    if info is None and number is not None:
        await look_again(sidecar, topic, request)
        resources, table, nodes = await _topic(sidecar, request, cluster_id, topic)
        info = table.partition(number, nodes)
    if info is None:
        count = table.partition_count
        raise refused(404, f"topic {topic} has no partition {partition_id}, it has {count}")
    return resources, info


def _partitions(table: TopicTable, nodes: Mapping[int, Node]) -> Iterable[PartitionInfo]:
    found = (table.partition(number, nodes) for number in table.numbers)
    return (info for info in found if info is not None)


def _shape(table: TopicTable) -> TopicShape:
    return TopicShape(table.name, table.is_internal, table.replication_factor, table.partition_count)


def _number(digits: str) -> int | None:
    """A number in a path; None for what is none, or is longer than any."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS else None


# -- answering -----------------------------------------------------------------------------------------------


def _answer(sidecar: Sidecar, request: Request, resource: Resource, topic: str | None) -> Response:
    return of_body(request, resource_body(resource), _freshness(sidecar, topic))


async def _listed(sidecar: Sidecar, request: Request, pieces: Iterable[bytes], topic: str | None) -> Response:
    """A list, as fresh as the metadata is when its making begins."""
    freshness = _freshness(sidecar, topic)
    return of_long(request, await sidecar.slices.body(pieces), freshness)


def _freshness(sidecar: Sidecar, topic: str | None) -> HeaderPairs:
    sidecar.table.find(b"/v1/cluster")
    return sidecar.table.freshness(topic, sidecar.producer.clock.now_ms())
