"""REST Proxy v3's resources as JSON: Confluent's member order, links and names.

    {"kind": "KafkaTopic", "metadata": {"self": "http://…/v3/clusters/C/topics/t",
     "resource_name": "crn:///kafka=C/topic=t"}, "cluster_id": "C", "topic_name": "t", …}

Links use the request's scheme and Host, so they work for the same caller. Some lead to paths that are not
served (configs, ACLs, consumer groups, reassignments), because clients expect these members. Pure. Source:
entities/v3 and resources/v3 of kafka-rest, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from client_core import Node, PartitionInfo
from service.wire.asgi import Scope, base_of
from service.wire.long_answers import joined

Resource = dict[str, object]

_encode = msgspec.json.Encoder().encode


class TopicShape(NamedTuple):
    """A topic's data for its resource."""

    name: str
    is_internal: bool
    replication_factor: int
    partitions_count: int


class ClusterResources:
    """The resources of one cluster, for one request."""

    def __init__(self, clusters_url: str, cluster_id: str) -> None:
        self._id = cluster_id
        self.url = f"{clusters_url}/{quote(cluster_id, safe='')}"
        self._crn = f"crn:///kafka={cluster_id}"

    def cluster(self, controller: Node | None) -> Resource:
        """Returns the cluster. A KRaft broker names a random broker as controller."""
        url = self.url
        return {
            "kind": "KafkaCluster",
            "metadata": _metadata(url, self._crn),
            "cluster_id": self._id,
            "controller": None if controller is None else _related(self.broker_url(controller.id)),
            "acls": _related(f"{url}/acls"),
            "brokers": _related(f"{url}/brokers"),
            "broker_configs": _related(f"{url}/broker-configs"),
            "consumer_groups": _related(f"{url}/consumer-groups"),
            "topics": _related(f"{url}/topics"),
            "partition_reassignments": _related(f"{url}/topics/-/partitions/-/reassignment"),
        }

    def broker(self, node: Node) -> Resource:
        url = self.broker_url(node.id)
        return {
            "kind": "KafkaBroker",
            "metadata": _metadata(url, f"{self._crn}/broker={node.id}"),
            "cluster_id": self._id,
            "broker_id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "configs": _related(f"{url}/configs"),
            "partition_replicas": _related(f"{url}/partition-replicas"),
        }

    def topic(self, topic: TopicShape) -> Resource:
        """Returns a topic. Its authorized operations are not fetched, so their list is empty."""
        url = self.topic_url(topic.name)
        return {
            "kind": "KafkaTopic",
            "metadata": _metadata(url, f"{self._crn}/topic={topic.name}"),
            "cluster_id": self._id,
            "topic_name": topic.name,
            "is_internal": topic.is_internal,
            "replication_factor": topic.replication_factor,
            "partitions_count": topic.partitions_count,
            "partitions": _related(f"{url}/partitions"),
            "configs": _related(f"{url}/configs"),
            "partition_reassignments": _related(f"{url}/partitions/-/reassignment"),
            "authorized_operations": [],
        }

    def partition(self, info: PartitionInfo) -> Resource:
        """Returns a partition; its leader is null while it has none."""
        url = self.partition_url(info.topic, info.partition)
        leader = None if info.leader is None else _related(f"{url}/replicas/{info.leader.id}")
        return {
            "kind": "KafkaPartition",
            "metadata": _metadata(url, f"{self._crn}/topic={info.topic}/partition={info.partition}"),
            "cluster_id": self._id,
            "topic_name": info.topic,
            "partition_id": info.partition,
            "leader": leader,
            "replicas": _related(f"{url}/replicas"),
            "reassignment": _related(f"{url}/reassignment"),
        }

    def replica(self, info: PartitionInfo, broker_id: int) -> Resource:
        """Returns the replica on a broker, which may be down."""
        crn = f"{self._crn}/topic={info.topic}/partition={info.partition}/replica={broker_id}"
        url = f"{self.partition_url(info.topic, info.partition)}/replicas/{broker_id}"
        return {
            "kind": "KafkaReplica",
            "metadata": _metadata(url, crn),
            "cluster_id": self._id,
            "topic_name": info.topic,
            "partition_id": info.partition,
            "broker_id": broker_id,
            "is_leader": info.leader is not None and info.leader.id == broker_id,
            "is_in_sync": any(node.id == broker_id for node in info.in_sync_replicas),
            "broker": _related(self.broker_url(broker_id)),
        }

    def broker_url(self, broker_id: int) -> str:
        return f"{self.url}/brokers/{broker_id}"

    def topic_url(self, topic: str) -> str:
        return f"{self.url}/topics/{topic}"

    def partition_url(self, topic: str, partition: int) -> str:
        return f"{self.topic_url(topic)}/partitions/{partition}"


def resource_body(resource: Resource) -> bytes:
    """Returns one resource as JSON."""
    return _encode(resource)


def collection_pieces(
    kind: str, self_url: str, items: Iterable[Resource | None], next_query: str | None = None
) -> Iterator[bytes]:
    """Yields a list of resources as JSON, in pieces; skips None. `next_query` is that of the next page."""
    next_url = None if next_query is None else f"{self_url}?{next_query}"
    head = _encode({"kind": kind, "metadata": {"self": self_url, "next": next_url}})
    yield head[:-1] + b',"data":['
    yield from joined(b"" if item is None else _encode(item) for item in items)
    yield b"]}"


def clusters_url(scope: Scope) -> str:
    """Returns the root URL of all resources, from a request's scheme and Host."""
    return f"{base_of(scope)}/v3/clusters"


def _metadata(url: str, resource_name: str) -> Resource:
    return {"self": url, "resource_name": resource_name}


def _related(url: str) -> Resource:
    return {"related": url}
