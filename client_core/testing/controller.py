"""The fake cluster's controller: elects leaders and updates every broker.

It creates and removes topics, and elects leaders when brokers stop and return. Each decision is sent to the
brokers' caches as an UpdateMetadata. No sockets; guarded by the cluster's lock. Source: KafkaController and
PartitionStateMachine, Kafka 0.8; ReplicationControlManager, Kafka 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from client_core.testing.metadata_cache import (
    LEADER_DURING_DELETE,
    AliveBroker,
    MetadataCache,
    PartitionState,
    TopicMetadata,
    UpdateMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class FakeClusterError(AssertionError):
    """A call that is impossible in the cluster's current state, or a wait that timed out."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The topic settings that affect a produce request. Defaults are Kafka's."""

    min_insync_replicas: int = 1
    max_message_bytes: int = 1_048_588
    log_append_time: bool = False


@dataclass(slots=True)
class _Listener:
    """A broker's cache, and whether it receives updates."""

    cache: MetadataCache
    is_frozen: bool = False
    missed: list[UpdateMetadata] = field(default_factory=list)


def is_legal_name(topic: str) -> bool:
    """Returns whether Kafka accepts this topic name. Source: Topic.validate."""
    return topic not in {".", ".."} and _LEGAL_NAME.fullmatch(topic) is not None


class Controller:
    """The cluster's true state. The brokers' view of it is in their caches."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._known: dict[int, AliveBroker] = {}
        self._alive: set[int] = set()
        self._topics: dict[str, TopicMetadata] = {}
        self._configs: dict[str, TopicConfig] = {}
        self._listeners: dict[int, _Listener] = {}
        self._epoch = 1
        self._controller_id = 0

    # -- brokers ---------------------------------------------------------------------------------------------

    @property
    def broker_ids(self) -> Sequence[int]:
        """Every known broker, alive or not."""
        return sorted(self._known)

    def check_brokers(self, broker_ids: Iterable[int]) -> None:
        """Raises FakeClusterError for a broker that was never started."""
        for broker_id in broker_ids:
            if broker_id not in self._known:
                raise FakeClusterError(f"there is no broker {broker_id}: there are {self.broker_ids}")

    @property
    def alive(self) -> frozenset[int]:
        return frozenset(self._alive)

    def broker_started(
        self, broker: AliveBroker, cache: MetadataCache, *, catches_up_first: bool = False
    ) -> None:
        """Adds a broker: it receives all metadata, rejoins its ISRs, leads partitions without a leader.

        `catches_up_first`: like a real broker, it joins no further ISR until `set_isr` adds it.
        """
        self._known[broker.id] = broker
        self._alive.add(broker.id)
        self._listeners[broker.id] = _Listener(cache)
        self._controller_id = self._controller_id or broker.id
        changed = {
            name
            for name, topic in self._topics.items()
            if any(broker.id in partition.replicas for partition in topic.partitions)
        }
        for name in changed:
            self._change_partitions(
                name, lambda p: self._rejoined(p, broker.id, catches_up_first=catches_up_first)
            )
        cache.update_cache(self._update({*self._topics, *cache.topic_names}))
        self._report(changed)

    def broker_failed(self, broker_id: int) -> None:
        """Removes a broker from its ISRs and elects other leaders."""
        self.check_brokers([broker_id])
        self._alive.discard(broker_id)
        if self._controller_id == broker_id and self._alive:
            self._controller_id = min(self._alive)
            self._epoch += 1
        changed = [
            name
            for name, topic in self._topics.items()
            if any(broker_id in partition.isr for partition in topic.partitions)
        ]
        for name in changed:
            self._change_partitions(name, lambda p: self._without(p, broker_id))
        self._report(changed)

    def _rejoined(
        self, partition: PartitionState, broker_id: int, *, catches_up_first: bool
    ) -> PartitionState:
        if broker_id not in (partition.isr if catches_up_first else partition.replicas):
            return partition
        isr = tuple(sorted({*partition.isr, broker_id}))
        if partition.leader is None:
            return self._led(partition._replace(isr=isr), broker_id)
        return partition._replace(isr=isr)

    def _without(self, partition: PartitionState, broker_id: int) -> PartitionState:
        if broker_id not in partition.isr:
            return partition
        # The last in-sync replica stays: only it has every record (no unclean election).
        isr = tuple(r for r in partition.isr if r != broker_id) or partition.isr
        if partition.leader != broker_id:
            return partition._replace(isr=isr)
        heir = next((r for r in partition.replicas if r in isr and r in self._alive), None)
        return self._led(partition._replace(isr=isr), heir)

    def _led(self, partition: PartitionState, leader: int | None) -> PartitionState:
        return partition._replace(
            leader=leader, leader_epoch=partition.leader_epoch + 1, controller_epoch=self._epoch
        )

    # -- topics ----------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def known_topic(self, name: str) -> TopicMetadata:
        """Returns a topic. Raises FakeClusterError for an unknown one."""
        topic = self._topics.get(name)
        if topic is None:
            raise FakeClusterError(f"there is no topic {name}: create_topic() makes one")
        return topic

    def known_partition(self, name: str, partition: int) -> PartitionState:
        """Returns a partition's state. Raises FakeClusterError for an unknown one."""
        states = self.known_topic(name).partitions
        if not 0 <= partition < len(states):
            raise FakeClusterError(f"topic {name} has no partition {partition}: it has {len(states)}")
        return states[partition]

    def config(self, name: str) -> TopicConfig:
        return self._configs.get(name, TopicConfig())

    def set_config(self, name: str, config: TopicConfig) -> None:
        """Changes the settings of an existing topic."""
        self.known_topic(name)
        self._configs[name] = config

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        assignment: Sequence[Sequence[int]] | None = None,
        config: TopicConfig | None = None,
        leader_epoch: int = 0,
        topic_id: UUID | None = None,
    ) -> TopicMetadata:
        """Creates a topic; by default replicas rotate over the known brokers, and the first leads."""
        ids = self.broker_ids
        if not ids:
            raise FakeClusterError("the cluster does not run: call start(), or use it in a `with` block")
        if name in self._topics:
            raise FakeClusterError(f"there is a topic {name} already: delete_topic() removes it")
        if not is_legal_name(name):
            raise FakeClusterError(f"{name!r} is no name that Kafka accepts")
        if assignment is None:
            factor = min(replication_factor, len(ids))
            assignment = [[ids[(p + r) % len(ids)] for r in range(factor)] for p in range(partitions)]
        if not (assignment and all(assignment)):
            raise FakeClusterError(f"topic {name} needs partitions, and replicas of each: not {assignment}")
        self.check_brokers(broker_id for replicas in assignment for broker_id in replicas)
        states = tuple(self._new_partition(tuple(replicas), leader_epoch) for replicas in assignment)
        topic_id = topic_id or UUID(int=self._random.getrandbits(128) or 1)
        self._topics[name] = TopicMetadata(name, topic_id, name in INTERNAL_TOPICS, states)
        self._configs[name] = config or TopicConfig()
        self._report([name])
        return self._topics[name]

    def _new_partition(self, replicas: tuple[int, ...], leader_epoch: int) -> PartitionState:
        leader = next((r for r in replicas if r in self._alive), None)
        isr = tuple(r for r in replicas if r in self._alive) or replicas
        return PartitionState(leader, leader_epoch, isr, replicas, self._epoch)

    def begin_deletion(self, name: str, partition: int | None = None) -> None:
        """Makes the brokers forget a partition, or all of a topic's; `delete_topic` completes it."""
        for number, state in enumerate(self.known_topic(name).partitions):
            if partition in {None, number}:
                self._set_partition(name, number, state._replace(leader=LEADER_DURING_DELETE, isr=()))

    def delete_topic(self, name: str) -> None:
        self.known_topic(name)
        del self._topics[name]
        self._configs.pop(name, None)
        self._report([name])

    def add_partitions(self, name: str, total: int) -> None:
        """Grows a topic; the new partitions' replicas rotate as at its creation."""
        topic = self.known_topic(name)
        if total <= len(topic.partitions):
            raise FakeClusterError(f"topic {name} has {len(topic.partitions)} partitions: {total} adds none")
        ids = self.broker_ids
        factor = len(topic.partitions[0].replicas)
        new = tuple(
            self._new_partition(tuple(ids[(p + r) % len(ids)] for r in range(factor)), 0)
            for p in range(len(topic.partitions), total)
        )
        self._topics[name] = topic._replace(partitions=topic.partitions + new)
        self._report([name])

    def move_leader(
        self, topic: str, partition: int, leader: int | None, *, epoch: int | None = None
    ) -> None:
        """Sets the leader (None: no leader), with the next leader epoch or the given one."""
        state = self.known_partition(topic, partition)
        self.check_brokers(() if leader is None else (leader,))
        isr = state.isr if leader is None or leader in state.isr else tuple(sorted({*state.isr, leader}))
        replicas = state.replicas if leader is None or leader in state.replicas else (*state.replicas, leader)
        moved = PartitionState(
            leader, state.leader_epoch + 1 if epoch is None else epoch, isr, replicas, self._epoch
        )
        self._set_partition(topic, partition, moved)

    def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Sets the in-sync replicas; the leader stays."""
        state = self.known_partition(topic, partition)
        self.check_brokers(isr)
        self._set_partition(topic, partition, state._replace(isr=tuple(isr)))

    def _set_partition(self, name: str, partition: int, state: PartitionState) -> None:
        states = list(self._topics[name].partitions)
        states[partition] = state
        self._topics[name] = self._topics[name]._replace(partitions=tuple(states))
        self._report([name])

    def _change_partitions(self, name: str, change: Callable[[PartitionState], PartitionState]) -> None:
        topic = self._topics[name]
        self._topics[name] = topic._replace(partitions=tuple(change(p) for p in topic.partitions))

    # -- updates ---------------------------------------------------------------------------------------------

    def freeze(self, broker_id: int) -> None:
        """Withholds updates from a broker: it returns outdated metadata."""
        self.check_brokers([broker_id])
        self._listeners[broker_id].is_frozen = True

    def thaw(self, broker_id: int) -> None:
        """Delivers the withheld updates to a broker."""
        self.check_brokers([broker_id])
        listener = self._listeners[broker_id]
        listener.is_frozen = False
        for update in listener.missed:
            listener.cache.update_cache(update)
        listener.missed.clear()

    def _update(self, names: Iterable[str]) -> UpdateMetadata:
        alive = tuple(self._known[broker_id] for broker_id in sorted(self._alive))
        return UpdateMetadata(
            self._controller_id, self._epoch, alive, {name: self._topics.get(name) for name in names}
        )

    def _report(self, changed: Iterable[str]) -> None:
        update = self._update(changed)
        for broker_id, listener in self._listeners.items():
            if listener.is_frozen:
                listener.missed.append(update)
            elif broker_id in self._alive:
                listener.cache.update_cache(update)
