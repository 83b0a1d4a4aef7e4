"""What one broker knows of the cluster: the MetadataCache of the broker, as Kafka had it from 0.8 on.

    topic -> partition -> leader, leader epoch, controller epoch, isr, replicas; and the brokers that are
    alive

It is filled by the controller's UpdateMetadata alone, and answers Metadata requests without asking anybody.
Every broker has its own, so a test can hold one back and get a broker that still tells yesterday's leader.
Immutable values inside; the cluster's lock around. Source: MetadataCache and
KafkaApis.handleTopicMetadataRequest, Kafka 0.8; KRaftMetadataCache and KafkaApis.handleTopicMetadataRequest,
Kafka 4.3, for today's answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID


#: Whom an update names as the leader of a partition that is being deleted: brokers then forget the partition.
#: Source: LeaderAndIsr.LeaderDuringDelete, Kafka 0.8 to 3.9.
LEADER_DURING_DELETE: Final = -2


class AliveBroker(NamedTuple):
    """A broker that the controller counts as alive, and where it listens."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionState(NamedTuple):
    """A partition as the controller last decided it. `leader` None: nobody can lead it now."""

    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    controller_epoch: int = 1


class TopicMetadata(NamedTuple):
    """A topic and its partitions in the order of their numbers."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionState, ...]


class UpdateMetadata(NamedTuple):
    """What the controller tells the brokers: who is alive, and the topics that changed (None: deleted)."""

    controller_id: int
    controller_epoch: int
    alive_brokers: tuple[AliveBroker, ...]
    topics: Mapping[str, TopicMetadata | None]


def is_being_deleted(state: PartitionState) -> bool:
    """Whether the controller has begun to delete the partition."""
    return state.leader == LEADER_DURING_DELETE


class StaleControllerError(Exception):
    """The update comes from a controller that has been replaced."""


class MetadataCache:
    """The state of the cluster as one broker has been told."""

    def __init__(self) -> None:
        self._alive: dict[int, AliveBroker] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[UUID, str] = {}
        self.controller_id: int | None = None
        self.controller_epoch = 0

    def update_cache(self, update: UpdateMetadata) -> None:
        """Applies what the controller says; StaleControllerError when a newer one has spoken before."""
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
        """The living brokers in the order of their ids."""
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
        """The partitions of a topic by their numbers, without those that are being deleted."""
        found = self._topics.get(name)
        if found is None:
            return {}
        return {n: state for n, state in enumerate(found.partitions) if not is_being_deleted(state)}

    def name_of(self, topic_id: UUID) -> str | None:
        """The topic's name by its id."""
        return self._names.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        return self.partitions(topic).get(partition)
