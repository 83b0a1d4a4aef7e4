"""Examples of `/v3` for the OpenAPI document. The answers' own code builds them. Pure."""

from __future__ import annotations

from typing import Final

from client_core import Node, PartitionInfo
from service.dialects.rest_v3.resources import ClusterResources, Resource, TopicShape

_CLUSTER: Final = "/v3/clusters/{cluster_id}"
_TOPIC: Final = _CLUSTER + "/topics/{topic}"
_PARTITION: Final = _TOPIC + "/partitions/{partition_id}"

_REPORT: Final = {
    "cluster_id": "5L6g3nShT-eMCtK--X86sw",
    "topic_name": "orders",
    "partition_id": 3,
    "offset": 7,
    "timestamp": "2026-01-01T09:00:00Z",
    "key": {"type": "STRING", "size": 10},
    "value": {"type": "JSON", "size": 14},
}


def answers() -> dict[tuple[str, str, str], object]:
    """Returns the examples by method, path and status."""
    url = "http://127.0.0.1:8085/v3/clusters"
    resources = ClusterResources(url, "5L6g3nShT-eMCtK--X86sw")
    nodes = tuple(Node(n, f"broker-{n}.kafka", 9092, None) for n in (1, 2, 3))
    partition = PartitionInfo("orders", 3, nodes[0], 7, nodes, nodes, ())
    cluster = resources.cluster(nodes[0])
    broker = resources.broker(nodes[0])
    topic = resources.topic(TopicShape("orders", False, 3, 12))
    part = resources.partition(partition)
    replica = resources.replica(partition, 1)
    of = resources.url
    return {
        ("get", "/v3/clusters", "200"): _listed("KafkaClusterList", url, cluster),
        ("get", _CLUSTER, "200"): cluster,
        ("get", f"{_CLUSTER}/brokers", "200"): _listed("KafkaBrokerList", f"{of}/brokers", broker),
        ("get", f"{_CLUSTER}/brokers/{{broker_id}}", "200"): broker,
        ("get", f"{_CLUSTER}/topics", "200"): _listed("KafkaTopicList", f"{of}/topics", topic),
        ("get", _TOPIC, "200"): topic,
        ("get", f"{_TOPIC}/partitions", "200"): _listed(
            "KafkaPartitionList", f"{of}/topics/orders/partitions", part
        ),
        ("get", _PARTITION, "200"): part,
        ("get", f"{_PARTITION}/replicas", "200"): _listed(
            "KafkaReplicaList", f"{of}/topics/orders/partitions/3/replicas", replica
        ),
        ("get", f"{_PARTITION}/replicas/{{broker_id}}", "200"): replica,
        ("post", f"{_TOPIC}/records", "200"): {"error_code": 200, **_REPORT},
        ("post", f"{_TOPIC}/records:batch", "207"): {
            "successes": [{"id": "1", **_REPORT}],
            "failures": [{"id": "2", "error_code": 40402, "message": "topic orders has no partition 99"}],
        },
    }


def _listed(kind: str, url: str, resource: Resource) -> Resource:
    return {"kind": kind, "metadata": {"self": url, "next": None}, "data": [resource]}
