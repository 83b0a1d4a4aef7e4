"""One broker's view of the cluster: Kafka's MetadataCache, which exists since 0.8.

    topic -> partition -> leader, leader epoch, controller epoch, isr, replicas; and the brokers that are
    alive

Only the controller's UpdateMetadata fills it; it serves Metadata requests alone. Every broker has its own, so
a test can withhold updates and get a broker that returns an outdated leader. The values are immutable; the
cluster's lock guards the cache. Source: MetadataCache and KafkaApis.handleTopicMetadataRequest, Kafka 0.8;
KRaftMetadataCache and KafkaApis.handleTopicMetadataRequest, Kafka 4.3, for current responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID


#: The leader in an update for a partition that is being deleted: brokers then forget the partition.
#: Source: LeaderAndIsr.LeaderDuringDelete, Kafka 0.8 to 3.9.
LEADER_DURING_DELETE: Final = -2


class AliveBroker(NamedTuple):
    """A broker that the controller considers alive, and its address."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionState(NamedTuple):
    """A partition's state by the controller's last decision. `leader` None: it has none now."""

    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    controller_epoch: int = 1


class TopicMetadata(NamedTuple):
    """A topic and its partitions, by number."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionState, ...]


class UpdateMetadata(NamedTuple):
    """The controller's update to the brokers: alive brokers, and changed topics (None: deleted)."""

    controller_id: int
    controller_epoch: int
    alive_brokers: tuple[AliveBroker, ...]
    topics: Mapping[str, TopicMetadata | None]


def is_being_deleted(state: PartitionState) -> bool:
    """Returns whether the controller is deleting the partition."""
    return state.leader == LEADER_DURING_DELETE


class StaleControllerError(Exception):
    """The update is from a replaced controller."""


class MetadataCache:
    """The cluster's state by the updates to one broker."""

    def __init__(self) -> None:
        self._alive: dict[int, AliveBroker] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[UUID, str] = {}
        self.controller_id: int | None = None
        self.controller_epoch = 0

    def update_cache(self, update: UpdateMetadata) -> None:
        """Applies an update. Raises StaleControllerError if a newer controller sent one before."""
        if update.controller_epoch < self.controller_epoch:
            raise StaleControllerError(
                f"controller epoch {update.controller_epoch} is older than {self.controller_epoch}"
            )
        self.controller_epoch = update.controller_epoch
        self.controller_id = update.controller_id
        self._alive = {broker.id: broker for broker in update.alive_brokers}
        for name, topic in update.topics.items():
            before = self._topics.pop(name, None)
            if before is not None:
                self._names.pop(before.topic_id, None)
            if topic is not None and not all(map(is_being_deleted, topic.partitions)):
                self._topics[name] = topic
                self._names[topic.topic_id] = name

    @property
    def alive_brokers(self) -> Sequence[AliveBroker]:
        """The alive brokers, by id."""
        return [self._alive[broker_id] for broker_id in sorted(self._alive)]

    def alive_broker(self, broker_id: int) -> AliveBroker | None:
        return self._alive.get(broker_id)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._alive

    @property
    def topic_names(self) -> Sequence[str]:
        """All topics, by name."""
        return sorted(self._topics)

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def partitions(self, name: str) -> Mapping[int, PartitionState]:
        """Returns the partitions of a topic by number, without those being deleted."""
        found = self._topics.get(name)
        if found is None:
            return {}
        return {n: state for n, state in enumerate(found.partitions) if not is_being_deleted(state)}

    def name_of(self, topic_id: UUID) -> str | None:
        """Returns the topic's name by its id."""
        return self._names.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        return self.partitions(topic).get(partition)
