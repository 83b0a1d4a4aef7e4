"""Examples for the OpenAPI document, of each answer and each refusal; links between the calls.

A test validates each against its schema. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from service.wire.errors import Problem

_BROKER: Final = {"id": 1, "host": "broker-1.kafka", "port": 9092, "rack": "a"}
_LEADER: Final = {"topic": "orders", "partition": 3, "leader": _BROKER, "leader_epoch": 7}
_PARTITION: Final = {
    "partition": 3,
    "leader": _BROKER,
    "leader_epoch": 7,
    "replicas": [1, 2, 3],
    "isr": [1, 2],
    "offline_replicas": [3],
    "error": None,
}
_ID: Final = "EhwSLMtZRYGLz4eh3kXvZA"
_VERSION: Final = "5f2c9a10-42"
_FAILED: Final = {
    "error": {
        "type": "/problems/too-large",
        "kafka_error": "MESSAGE_TOO_LARGE",
        "code": 10,
        "message": "The record is 1048600 bytes when serialized, more than max.request.size (1048576).",
        "retriable": False,
        "written": "no",
    }
}
_RECEIPT: Final = {"partition": 3, "offset": 7, "timestamp": 1767258000000}
_ALL: Final = {"topic": "orders", "results": [_RECEIPT]}
_UNACKNOWLEDGED: Final = {"topic": "orders", "results": [{**_RECEIPT, "offset": None}]}
_SOME: Final = {"topic": "orders", "results": [_RECEIPT, _FAILED]}
_SOME_OF_MANY: Final = {"results": [{"topic": "orders", **_RECEIPT}, {"topic": "audit", **_FAILED}]}
_SPOOLED: Final = {
    "topic": "orders",
    "spooled": 2,
    "first_sequence": 17,
    "last_sequence": 18,
    "status": "/v1/status",
}
_FEW_REPLICAS: Final = {
    "kafka_error": "NOT_ENOUGH_REPLICAS",
    "node": 2,
    "attempts": 213,
    "since_ms": 29_870,
    "detail": "Messages are rejected since there are fewer in-sync replicas than required.",
}
_LATE_DETAIL: Final = "Records for topic orders were not acknowledged within 30000 ms."
_OFFSETS: Final = {"beginning_offset": 0, "end_offset": 8}
_TIMES: Final = {"count": 1200, "p50_ms": 4, "p99_ms": 21, "max_ms": 38}
_IDLE: Final = {"batches": 0, "records": 0, "partitions": 0, "oldest_ms": None, "cause": None}
_PHASE: Final = {"waiting": 0, "oldest_ms": None, "recent": _TIMES}
_SECONDS: Final = ("records", "failed_records", "bytes", "mean_ms", "max_ms")
_STATUS: Final[dict[str, Any]] = {
    "state": "running",
    "draining": False,
    "version": _VERSION,
    "at": "2026-01-01T09:00:00.000Z",
    "slow": [
        {
            "node": 2,
            "phase": "delivery",
            "detail": "node 2 has 5 requests in flight, the oldest for 3.2 s; 1,200 records wait for it",
            "kafka_error": "REQUEST_TIMED_OUT",
        }
    ],
    "waiting_requests": 12,
    "waiting_bytes": 3400,
    "watchers": 1,
    "loop_turns": 481516,
    "loop_age_ms": 3,
    "waiting_for_metadata": 0,
    "waiting_for_buffer": 0,
    "in_flight_batches": 5,
    "producer_id": 4711,
    "last_answer_age_ms": 12,
    "metadata": {
        "update_version": 42,
        "request_version": 1,
        "age_ms": 17000,
        "max_age_ms": 300000,
        "refresh_in_progress": False,
        "topics": 3,
        "partitions": 36,
        "last_error": None,
        "last_error_age_ms": None,
    },
    "buffer": {
        "total_bytes": 33554432,
        "available_bytes": 33472512,
        "waiters": 0,
        "batches": 5,
        "records": 1200,
        "oldest_batch_age_ms": 3200,
    },
    "nodes": [
        {
            "id": 2,
            "host": "broker-2.kafka",
            "port": 9092,
            "state": "ready",
            "in_flight_requests": 5,
            "oldest_in_flight_age_ms": 3200,
            "backoff_left_ms": 0,
            "throttle_left_ms": 0,
            "last_error": None,
            "last_error_age_ms": None,
            "cause": None,
            "produce": _TIMES,
            "other_requests": _TIMES,
            "waiting": _IDLE,
            "on_the_wire": {
                "batches": 5,
                "records": 1200,
                "partitions": 5,
                "oldest_ms": 3200,
                "cause": {
                    "kafka_error": "REQUEST_TIMED_OUT",
                    "node": 2,
                    "attempts": 0,
                    "since_ms": 3200,
                    "detail": "node 2 has not answered",
                },
            },
            "last_failure": None,
        }
    ],
    "leaderless": _IDLE,
    "phases": dict.fromkeys(("metadata", "buffer", "queue", "delivery"), _PHASE),
    "waits": [],
    "produce": {
        "requests": 31400,
        "failed_requests": 2,
        "records": 92600,
        "failed_records": 2,
        "bytes": 5350000,
        "latency": _TIMES,
        "per_second": dict.fromkeys(_SECONDS, [5] * 60),
    },
    "spool": {
        "entries": 1840,
        "bytes": 734003,
        "max_bytes": 268435456,
        "oldest_age_ms": 95000,
        "set_aside": 0,
        "damaged_files": 0,
        "last_error": "TOPIC_AUTHORIZATION_FAILED",
        "last_error_age_ms": 400,
        "refused": [
            {
                "topic": "orders",
                "records": 1840,
                "reason": "forbidden",
                "detail": "TopicAuthorizationError: Not authorized to access topics: [orders]",
                "refused_ms": 9400,
            }
        ],
    },
    "failed_requests": [
        {
            "at": "2026-01-01T08:59:58.120Z",
            "times": 3,
            "caller": "orders",
            "method": "POST",
            "route": "/v1/topics/{topic}/records",
            "topic": "orders",
            "type": "/problems/outcome-unknown",
            "status": 504,
            "detail": _LATE_DETAIL,
            "kafka_error": "REQUEST_TIMED_OUT",
            "written": "unknown",
            "phase": "delivery",
            "waited_ms": 30_000,
            "cause": _FEW_REPLICAS,
            "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        }
    ],
    "leader_changes": [
        {
            "at": "2026-01-01T08:59:00.000Z",
            "topic": "orders",
            "partition": 3,
            "old_leader": 3,
            "new_leader": 1,
            "leader_epoch": 7,
        }
    ],
}

_PARTITION_V2: Final = {
    "partition": 3,
    "leader": 1,
    "replicas": [
        {"broker": 1, "leader": True, "in_sync": True},
        {"broker": 2, "leader": False, "in_sync": True},
    ],
}
_PRODUCED_V2: Final = {
    "offsets": [{"partition": 3, "offset": 7, "error_code": None, "error": None}],
    "key_schema_id": None,
    "value_schema_id": None,
}

#: By method, path and status.
ANSWERS: Final[Mapping[tuple[str, str, str], object]] = {
    ("get", "/v1/cluster", "200"): {"cluster_id": "5L6g3nShT-eMCtK--X86sw", "brokers": [_BROKER]},
    ("get", "/v1/brokers/{broker_id}", "200"): {
        **_BROKER,
        "leads": [{"topic": "orders", "partitions": [0, 3]}],
    },
    ("get", "/v1/topics", "200"): {
        "topics": [
            {"name": "orders", "id": _ID, "internal": False, "partition_count": 12, "error": None},
        ]
    },
    ("get", "/v1/topics/{topic}", "200"): {
        "name": "orders",
        "id": _ID,
        "internal": False,
        "partitions": [_PARTITION],
    },
    ("get", "/v1/topics/{topic}/partitions/{partition}", "200"): _PARTITION,
    ("get", "/v1/topics/{topic}/leader", "200"): _LEADER,
    ("post", "/v1/leaders", "200"): {"results": [_LEADER]},
    ("post", "/v1/spool/requeue", "200"): {"requeued": 288},
    ("post", "/v1/metadata/refresh", "200"): {"version": _VERSION, "waited_ms": 12},
    ("get", "/v1/status", "200"): _STATUS,
    ("get", "/v1/watch/snapshot", "200"): {
        "version": "5f2c9a10-7",
        "metadata_version": _VERSION,
        "refreshed_at": "2026-01-01T09:00:00.000Z",
        "cluster_id": "5L6g3nShT-eMCtK--X86sw",
        "brokers": [_BROKER],
        "topics": [
            {
                "name": "orders",
                "id": _ID,
                "internal": False,
                "partitions": [{**_PARTITION, "leader": 1}],
            }
        ],
        "errors": [],
    },
    ("get", "/v1/watch/changes", "200"): {
        "version": "5f2c9a10-8",
        "reset": False,
        "changes": [
            {
                "id": "5f2c9a10-8",
                "event": "broker",
                "data": {"change": "left", "at": "2026-01-01T09:00:00.000Z", "broker": _BROKER},
            }
        ],
    },
    ("post", "/v1/topics/{topic}/records", "200"): _ALL,
    ("post", "/v1/topics/{topic}/records", "202"): _UNACKNOWLEDGED,
    ("post", "/v1/topics/{topic}/records/bytes", "200"): _ALL,
    ("post", "/v1/topics/{topic}/records/bytes", "202"): _UNACKNOWLEDGED,
    ("post", "/v1/topics/{topic}/records/spool", "202"): _SPOOLED,
    ("post", "/v1/topics/{topic}/records", "207"): _SOME,
    ("get", "/v1/topics/{topic}/partitions/{partition}/offsets", "200"): _OFFSETS,
    ("get", "/topics/{topic}/partitions/{partition}/offsets", "200"): _OFFSETS,
    ("post", "/v1/records", "200"): {"results": [{"topic": "orders", **_RECEIPT}]},
    ("post", "/v1/records", "202"): {"results": [{"topic": "orders", **_RECEIPT, "offset": None}]},
    ("post", "/v1/records", "207"): _SOME_OF_MANY,
    ("get", "/topics", "200"): ["orders", "payments"],
    ("get", "/topics/{topic}", "200"): {
        "name": "orders",
        "configs": {"cleanup.policy": "delete"},
        "partitions": [_PARTITION_V2],
    },
    ("post", "/topics/{topic}", "200"): _PRODUCED_V2,
    ("get", "/topics/{topic}/partitions", "200"): [_PARTITION_V2],
    ("get", "/topics/{topic}/partitions/{partition}", "200"): _PARTITION_V2,
    ("post", "/topics/{topic}/partitions/{partition}", "200"): _PRODUCED_V2,
    ("get", "/brokers", "200"): {"brokers": [1, 2, 3]},
    ("post", "/cloudevents/{topic}", "202"): _ALL,
    ("post", "/cloudevents/{topic}/binary", "202"): _ALL,
    ("post", "/cloudevents/{topic}/batch", "202"): _ALL,
    ("post", "/cloudevents/{topic}/batch", "207"): _SOME,
    ("get", "/v1.0/metadata", "200"): {
        "id": "pilotfish",
        "runtimeVersion": "0.1.0",
        "enabledFeatures": [],
        "actors": [],
        "components": [
            {"name": "pubsub", "type": "pubsub.kafka", "version": "v1", "capabilities": ["BULK_PUBSUB"]}
        ],
        "extended": {"colour": "blue"},
        "subscriptions": [],
        "httpEndpoints": [],
    },
}

#: By method and path.
BODIES: Final[Mapping[tuple[str, str], object]] = {
    ("post", "/v1/leaders"): {
        "lookups": [{"topic": "orders", "partition": 3}, {"topic": "payments", "key": "customer-7"}]
    },
}

_BODY: Final = "$response.body#"
_FIRST_PARTITION: Final = {"topic": f"{_BODY}/name", "partition": f"{_BODY}/partitions/0/partition"}
_FIRST_RECORD: Final = {"topic": f"{_BODY}/topic", "partition": f"{_BODY}/results/0/partition"}
_OF_RECORD: Final = {
    "leader": ("lookUpLeader", _FIRST_RECORD),
    "offsets": ("getOffsets", _FIRST_RECORD),
}


def _v3(of: str, *names: str) -> dict[str, str]:
    """The parameters of these names, from the members of an object of REST Proxy v3."""
    members = {"topic": "topic_name"}
    return {name: f"{_BODY}{of}/{members.get(name, name)}" for name in ("cluster_id", *names)}


_IN_DATA: Final = "/data/0"
_OF_PARTITION_V3: Final = ("topic", "partition_id")

#: Which operations an answer leads to: by operation and status, the target with its parameters.
LINKS: Final[Mapping[str, Mapping[str, Mapping[str, tuple[str, Mapping[str, str]]]]]] = {
    "getCluster": {"200": {"broker": ("getBroker", {"broker_id": f"{_BODY}/brokers/0/id"})}},
    "listTopics": {
        "200": {
            "next": ("listTopics", {"page_token": f"{_BODY}/next_page_token"}),
            "topic": ("getTopic", {"topic": f"{_BODY}/topics/0/name"}),
            "records": ("produceRecords", {"topic": f"{_BODY}/topics/0/name"}),
        }
    },
    "getTopic": {
        "200": {
            "partition": ("getPartition", _FIRST_PARTITION),
            "leader": ("lookUpLeader", _FIRST_PARTITION),
            "offsets": ("getOffsets", _FIRST_PARTITION),
        }
    },
    "lookUpLeader": {"200": {"broker": ("getBroker", {"broker_id": f"{_BODY}/leader/id"})}},
    "produceRecords": {"200": _OF_RECORD},
    "produceBytes": {"200": _OF_RECORD},
    "refreshMetadata": {"200": {"cluster": ("getCluster", {"min_version": f"{_BODY}/version"})}},
    "getSnapshot": {"200": {"changes": ("pollChanges", {"last_event_id": f"{_BODY}/version"})}},
    "pollChanges": {"200": {"changes": ("pollChanges", {"last_event_id": f"{_BODY}/version"})}},
    "listClustersV3": {"200": {"cluster": ("getClusterV3", _v3(_IN_DATA))}},
    "getClusterV3": {"200": {"brokers": ("listBrokersV3", _v3("")), "topics": ("listTopicsV3", _v3(""))}},
    "listBrokersV3": {"200": {"broker": ("getBrokerV3", _v3(_IN_DATA, "broker_id"))}},
    "listTopicsV3": {"200": {"topic": ("getTopicV3", _v3(_IN_DATA, "topic"))}},
    "getTopicV3": {
        "200": {
            "partitions": ("listPartitionsV3", _v3("", "topic")),
            "records": ("produceRecordsV3", _v3("", "topic")),
        }
    },
    "listPartitionsV3": {
        "200": {
            "partition": ("getPartitionV3", _v3(_IN_DATA, *_OF_PARTITION_V3)),
            "replicas": ("listReplicasV3", _v3(_IN_DATA, *_OF_PARTITION_V3)),
        }
    },
    "listReplicasV3": {"200": {"replica": ("getReplicaV3", _v3(_IN_DATA, *_OF_PARTITION_V3, "broker_id"))}},
    "produceRecordsV3": {"200": {"partition": ("getPartitionV3", _v3("", *_OF_PARTITION_V3))}},
    "listTopicsV2": {"200": {"topic": ("getTopicV2", {"topic": f"{_BODY}/0"})}},
    "getTopicV2": {
        "200": {
            "partition": ("getPartitionV2", _FIRST_PARTITION),
            "offsets": ("getOffsetsV2", _FIRST_PARTITION),
        }
    },
}

_MISSING: Final[dict[str, Any]] = {
    "kafka_error": "UNKNOWN_TOPIC_OR_PARTITION",
    "code": 3,
    "retriable": True,
}
_LATE: Final[dict[str, Any]] = {"kafka_error": "REQUEST_TIMED_OUT", "code": 7, "retriable": True}
_PROBLEMS: Final[Mapping[int, dict[str, Any]]] = {
    400: {"detail": "records[3].key: bad base64", "place": "records[3].key"},
    401: {"detail": "a token is needed: Authorization: Bearer …"},
    403: {
        "detail": "not authorized to access topic orders",
        "kafka_error": "TOPIC_AUTHORIZATION_FAILED",
        "code": 29,
    },
    404: {"detail": "Topic orders does not exist", **_MISSING, "phase": "metadata", "waited_ms": 120},
    429: {
        "detail": "67108864 bytes are waiting already (max_waiting_bytes); try again",
        "retriable": True,
        "written": "no",
    },
    503: {"detail": "No broker answered.", **_LATE, "written": "no", "phase": "metadata", "waited_ms": 60000},
    504: {
        "detail": _LATE_DETAIL,
        **_LATE,
        "written": "unknown",
        "phase": "delivery",
        "waited_ms": 30_000,
        "cause": _FEW_REPLICAS,
    },
}


def problem(status: int, description: str) -> Problem:
    """Returns a problem of that status; without its own detail it uses the description."""
    return Problem(status, **{"detail": description, **_PROBLEMS.get(status, {})})
