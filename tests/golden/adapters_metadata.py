"""Between Java's trace of ProducerMetadata and `client_core.metadata`: an operation by its name there.

Topic ids are base64url, nodes are lists, errors are Java's class names. Responses are JSON bodies, to be read
as version 12. Within a step Java was asked time_to_next_update and then time_to_allow_update, which has side
effects.
"""

from __future__ import annotations

import base64
from random import Random
from typing import TYPE_CHECKING, Any, Final

from client_core.cluster import Node, TopicPartition
from client_core.errors import KafkaError
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.metadata_response import read_metadata_response
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.protocol.messages import metadata_response
from tests.golden.adapters import message_from_json
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from uuid import UUID

_VERSION: Final = 12
_PARTITIONS: Final = "topics_partition_leader_currentleader_currentepoch_lastseenepoch"


class TracedProducerMetadata:
    """ProducerMetadata as the trace speaks to it. `reuses`: responses are read against the snapshot."""

    def __init__(self, case: dict[str, Any], *, reuses: bool) -> None:
        config = MetadataConfig(
            case["refresh_backoff_ms"],
            case["refresh_backoff_max_ms"],
            case["metadata_max_age_ms"],
            case["metadata_max_idle_ms"],
        )
        self._reuses = reuses
        self._now_ms = case["start_now"]
        self._metadata = ProducerMetadata(config, Random(0), MockClock(now_ms=self._now_ms))

    def do(self, step: dict[str, Any]) -> dict[str, Any]:
        """Does one step; returns what the trace keeps of it, in the shape that the step has."""
        metadata = self._metadata
        kept = self._do(step["op"], step["args"])
        if "now_after" in step:
            kept |= {
                "time_to_next_update": metadata.time_to_next_update(self._now_ms),
                "time_to_allow_update": metadata.time_to_allow_update(self._now_ms),
                "now_after": self._now_ms,
            }
        if "update_version" in step:
            kept |= {
                "update_version": metadata.update_version,
                "update_requested": metadata.update_requested,
            }
        if "state" in step:
            kept["state"] = self._state()
        return kept

    def _do(self, operation: str, args: Any) -> dict[str, Any]:
        metadata = self._metadata
        match operation:
            case "bootstrap":
                metadata.bootstrap([_address(text) for text in args])
            case "advance_time":
                self._now_ms += args["ms"]
            case "add":
                metadata.add(args["topic"], args["now"])
            case "new_metadata_request_and_version":
                return {"result": self._request(args["now"])}
            case "update":
                self._update(args)
            case "failed_update":
                metadata.failed_update(args["now"])
            case "request_update":
                return {"result": metadata.request_update(args["reset_equivalent_response_backoff"])}
            case "request_update_for_topic":
                return {"result": metadata.request_update_for_topic(args["topic"])}
            case "update_last_seen_epoch_if_newer":
                topic_partition = TopicPartition(args["topic"], args["partition"])
                return {"result": metadata.update_last_seen_epoch_if_newer(topic_partition, args["epoch"])}
            case "update_partition_leadership":
                return {"result": self._update_leadership(args)}
            case "maybe_throw_exception_for_topic":
                return {"result": self._raised_for(args["topic"])}
            case unknown:
                raise AssertionError(f"unknown operation {unknown}")
        return {}

    def _request(self, now_ms: int) -> dict[str, Any]:
        request = self._metadata.new_metadata_request_and_version(now_ms)
        return {
            "request_version": request.request_version,
            "is_partial_update": request.is_partial,
            "allow_auto_topic_creation": request.builder.allow_auto_topic_creation,
            "topics": sorted(request.builder.topics or ()),
        }

    def _update(self, args: dict[str, Any]) -> None:
        message = message_from_json(metadata_response.MetadataResponse, args["response_v12"])
        known = self._metadata.cache.topics if self._reuses else {}
        response = read_metadata_response(message.encode(_VERSION), _VERSION, known)
        self._metadata.update(args["request_version"], response, args["is_partial_update"], args["now"])

    def _update_leadership(self, args: dict[str, Any]) -> list[str]:
        leaders = {
            TopicPartition(topic, partition): LeaderIdAndEpoch(leader_id, epoch)
            for topic, partition, leader_id, epoch in args["leaders"]
        }
        nodes = [Node(*node) for node in args["nodes"]]
        return sorted(str(updated) for updated in self._metadata.update_partition_leadership(leaders, nodes))

    def _raised_for(self, topic: str) -> str | None:
        try:
            self._metadata.maybe_throw_exception_for_topic(topic)
        except KafkaError as error:
            return type(error).__name__.replace("Error", "Exception")
        return None

    def _state(self) -> dict[str, Any]:
        metadata = self._metadata
        cluster = metadata.fetch()
        return {
            "update_version": metadata.update_version,
            "cluster_id": cluster.cluster_id,
            "controller_id": cluster.controller.id if cluster.controller else None,
            "nodes": sorted([node.id, node.host, node.port, node.rack] for node in cluster.nodes),
            _PARTITIONS: {topic: self._partitions(topic) for topic in sorted(cluster.topics)},
            "invalid": sorted(cluster.invalid_topics),
            "unauthorized": sorted(cluster.unauthorized_topics),
            "internal": sorted(cluster.internal_topics),
            "topic_ids": {topic: _base64url(topic_id) for topic, topic_id in cluster.topic_ids.items()},
            "update_requested": metadata.update_requested,
        }

    def _partitions(self, topic: str) -> list[list[int | None]]:
        rows: list[list[int | None]] = []
        for partition in self._metadata.cache.topics[topic].numbers:
            topic_partition = TopicPartition(topic, partition)
            leader = self._metadata.fetch().leader_for(topic_partition)
            current = self._metadata.current_leader(topic_partition)
            rows.append(
                [
                    partition,
                    leader.id if leader else None,
                    current.leader.id if current.leader else None,
                    current.epoch,
                    self._metadata.last_seen_leader_epoch(topic_partition),
                ]
            )
        return rows


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _base64url(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
