"""Plain reference versions of the fast metadata code, without bytes, reuse or laziness.

`plain_topics` reads a response by the generated message; `PlainMetadata` applies it as Java does, with a map
of every partition and a map of every epoch. Source: Metadata, MetadataSnapshot, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from client_core.error_codes import Errors
from client_core.metadata.topic_layout import PartitionMetadata
from client_core.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from client_core.protocol.messages.metadata_response import MetadataResponse


class PlainTopic(NamedTuple):
    """A topic of a response; of two partitions with one number the later one counts."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    error_code: int
    partitions: dict[int, PartitionMetadata]


def plain_topics(message: MetadataResponse, version: int) -> list[PlainTopic]:
    """The topics of a response that have a name."""
    return [
        PlainTopic(
            topic.name,
            None if topic.topic_id == ZERO_UUID else topic.topic_id,
            topic.is_internal,
            topic.error_code,
            {
                partition.partition_index: PartitionMetadata(
                    partition.error_code,
                    partition.leader_id if partition.leader_id >= 0 else None,
                    partition.leader_epoch if version >= 9 and partition.leader_epoch >= 0 else None,
                    partition.replica_nodes,
                    partition.isr_nodes,
                    partition.offline_replicas,
                )
                for partition in topic.partitions
            },
        )
        for topic in message.topics
        if topic.name is not None
    ]


@dataclass
class PlainMetadata:
    """Java's Metadata that holds every topic. Partitions and epochs are keyed by topic and number."""

    partitions: dict[tuple[str, int], PartitionMetadata] = field(default_factory=dict)
    last_seen: dict[tuple[str, int], int] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    unauthorized: set[str] = field(default_factory=set)
    invalid: set[str] = field(default_factory=set)
    internal: set[str] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)
    needs_full_update: bool = False
    equivalent_responses: int = 0

    def update(self, message: MetadataResponse, version: int, *, is_partial: bool) -> None:
        if not is_partial:
            self.needs_full_update = False
        self.equivalent_responses += 1
        topics = plain_topics(message, version)
        ids = {topic.name: topic.topic_id for topic in topics if topic.topic_id is not None}
        believed: dict[tuple[str, int], PartitionMetadata] = {}
        for topic in topics:
            if _is_stale(topic.error_code):
                self.needs_full_update = True
            if topic.error_code == 0:
                if self._is_another(topic):  # Java keeps the epochs of partitions that it does not have
                    for key in [key for key in self.last_seen if key[0] == topic.name]:
                        if key[1] not in topic.partitions:
                            del self.last_seen[key]
                for number, partition in topic.partitions.items():
                    kept = self._judge(topic, number, partition)
                    if kept is not None:
                        believed[topic.name, number] = kept
                    if _is_stale(partition.error_code):
                        self.needs_full_update = True
        named = {topic.name for topic in topics}
        if is_partial:
            rest = {key: kept for key, kept in self.partitions.items() if key[0] not in named}
            self.topic_ids = {name: i for name, i in self.topic_ids.items() if name not in named}
            self.topic_ids |= {name: ids[name] for name, _ in believed if name in ids}
        else:
            rest, self.topic_ids = {}, ids
        self.partitions = rest | believed
        self.unauthorized = self._merged(self.unauthorized, named, is_partial, _with_error(topics, 29))
        self.invalid = self._merged(self.invalid, named, is_partial, _with_error(topics, 17))
        internal = {topic.name for topic in topics if topic.is_internal}
        self.internal = self._merged(self.internal, named, is_partial, internal)
        self.nodes = {broker.node_id for broker in message.brokers}

    @staticmethod
    def _merged(old: set[str], named: set[str], is_partial: bool, new: set[str]) -> set[str]:
        return (old - named) | new if is_partial else new

    def _is_another(self, topic: PlainTopic) -> bool:
        """Returns whether a topic was made again under its name."""
        return topic.topic_id is not None and topic.topic_id != self.topic_ids.get(topic.name)

    def _judge(
        self, topic: PlainTopic, number: int, partition: PartitionMetadata
    ) -> PartitionMetadata | None:
        key = topic.name, number
        if partition.leader_epoch is None:
            self.last_seen.pop(key, None)
            self.equivalent_responses = 0
            return partition
        seen = self.last_seen.get(key)
        id_changed = self._is_another(topic)
        if seen is None or id_changed or partition.leader_epoch > seen:
            self.equivalent_responses = 0
        if seen is None or id_changed or partition.leader_epoch >= seen:
            self.last_seen[key] = partition.leader_epoch
            return partition
        return self.partitions.get(key)

    def update_last_seen_epoch_if_newer(self, topic: str, number: int, epoch: int) -> bool:
        seen = self.last_seen.get((topic, number))
        if seen is None or epoch <= seen:
            return False
        self.last_seen[topic, number] = epoch
        self.needs_full_update = True
        return True

    def current_epoch(self, topic: str, number: int) -> int | None:
        seen, cached = self.last_seen.get((topic, number)), self.partitions.get((topic, number))
        return cached.leader_epoch if cached is not None and seen is None else seen

    def update_partition_leadership(
        self, leaders: Mapping[tuple[str, int], tuple[int | None, int | None]], nodes: Iterable[int]
    ) -> set[tuple[str, int]]:
        known = self.nodes | set(nodes)
        updated: set[tuple[str, int]] = set()
        for key, (leader_id, epoch) in leaders.items():
            current = self.current_epoch(*key)
            if leader_id is None or epoch is None or (current is not None and epoch <= current):
                continue
            if leader_id in known and key in self.partitions:
                updated.add(key)
                self.partitions[key] = self.partitions[key]._replace(leader_id=leader_id, leader_epoch=epoch)
                self.last_seen[key] = epoch
        if updated:
            self.nodes = known
        return updated


def _is_stale(error_code: int) -> bool:
    return Errors.of(error_code).refreshes_metadata


def _with_error(topics: Iterable[PlainTopic], error_code: int) -> set[str]:
    return {topic.name for topic in topics if topic.error_code == error_code}
