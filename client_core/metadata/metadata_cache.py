"""One immutable snapshot of the cluster, which answers look-ups.

An update builds a new snapshot and swaps it in; nothing is patched (META-21). Snapshots share the tables of
unchanged topics. Java calls it MetadataSnapshot, and before 3.8 MetadataCache. Read by any thread without a
lock; created on the I/O thread. Source: MetadataSnapshot, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.cluster import Cluster, Node
from client_core.metadata.topic_layout import NO_FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
    from uuid import UUID

    from client_core.cluster import TopicPartition
    from client_core.metadata.topic_answers import TopicAnswers
    from client_core.metadata.topic_table import TopicTable

_PARTITION_COUNT: Final = attrgetter("partition_count")
_NO_TOPICS: Final[MappingProxyType[str, TopicTable]] = MappingProxyType({})
_NO_TOPIC_IDS: Final[Mapping[str, UUID]] = MappingProxyType({})


class RefreshTime(NamedTuple):
    """When a response arrived: monotonic for ages, and wall-clock if the client has a clock."""

    now_ms: int
    wall_ms: int | None


class _TopicIds(Mapping[str, "UUID"]):
    """The topics' ids, read from the tables when asked for: most are not."""

    __slots__ = ("_other_ids", "_tables")

    def __init__(self, tables: Mapping[str, TopicTable], other_ids: Mapping[str, UUID]) -> None:
        self._tables = tables
        self._other_ids = other_ids

    def __getitem__(self, name: str) -> UUID:
        table = self._tables.get(name)
        topic_id = self._other_ids.get(name) if table is None else table.topic_id
        if topic_id is None:
            raise KeyError(name)
        return topic_id

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, table in self._tables.items() if table.topic_id is not None)
        yield from (name for name in self._other_ids if name not in self._tables)

    def __len__(self) -> int:
        return sum(1 for _ in self)


_NOT_APART: Final[MappingProxyType[str, RefreshTime]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """A response's cluster id, brokers and controller."""

    cluster_id: str | None
    nodes_by_id: Mapping[int, Node]
    controller: Node | None


@dataclass(frozen=True, slots=True)
class MetadataCache:
    """The client's view of the cluster. Look-ups return None for unknown names and ids."""

    cluster: Cluster
    topics: MappingProxyType[str, TopicTable] = field(default_factory=lambda: _NO_TOPICS)
    #: The ids of topics that have none in `topics`: with an error, without partitions, or no longer held.
    other_ids: Mapping[str, UUID] = field(default_factory=lambda: _NO_TOPIC_IDS)
    update_version: int = 0
    #: When the last full response arrived; None before the first.
    last_successful_refresh_ms: int | None = None
    #: When a response last contained each topic: one time for most, own times after partial responses.
    refreshed: RefreshTime | None = None
    refreshed_apart: MappingProxyType[str, RefreshTime] = field(default_factory=lambda: _NOT_APART)
    #: When the last response arrived, of any kind: each lists the brokers.
    answered: RefreshTime | None = None

    @staticmethod
    def empty() -> MetadataCache:
        """Returns the snapshot before bootstrap: no addresses are known."""
        return MetadataCache(Cluster.empty())

    @staticmethod
    def bootstrap(addresses: Sequence[tuple[str, int]], update_version: int = 0) -> MetadataCache:
        """Returns the snapshot before a first response: addresses as nodes -1, -2, ... (META-04, CLU-01)."""
        return MetadataCache(Cluster.bootstrap(addresses), update_version=update_version)

    # -- the next snapshot -----------------------------------------------------------------------------------

    def replaced_by(self, answer: ClusterAnswer, sorted_: TopicAnswers) -> MetadataCache:
        """Returns the snapshot of a full response: keeps nothing of this one (META-17).

        Equal tables keep their mapping too, so that nobody has to compare them one by one.
        """
        topics = self.topics if sorted_.tables == self.topics else MappingProxyType(sorted_.tables)
        other_ids = self.other_ids if sorted_.other_ids == self.other_ids else sorted_.other_ids
        unauthorized, invalid, internal = sorted_.unauthorized, sorted_.invalid, sorted_.internal
        return self._with_topics(answer, topics, other_ids, unauthorized, invalid, internal)

    def merge_with(
        self,
        answer: ClusterAnswer,
        answers: TopicAnswers,
        retain: Callable[[str], bool],
        *,
        tables_stay: bool = False,
    ) -> MetadataCache:
        """Returns the snapshot after a partial response (META-17, META-18).

        Brokers and cluster id are the response's. Its topics replace ours; those with an error lose their
        partitions. Other topics stay if `retain` returns True. `tables_stay`: it would for each topic with a
        table, so that only the response's topics need to be looked at, not all that are known.
        """
        cluster = self.cluster
        others = (cluster.unauthorized_topics, cluster.invalid_topics, cluster.internal_topics)
        known = chain(() if tables_stay else self.topics, self.other_ids, *others)
        leaving = {name for name in known if name not in answers.names and not retain(name)}
        return self._merged(answer, answers, answers.names | leaving)

    def _merged(self, answer: ClusterAnswer, answers: TopicAnswers, replaced: set[str]) -> MetadataCache:
        """Returns the snapshot with these topics `replaced` by those of the answers, which may lack some."""
        topics, gone = self.topics, [name for name in replaced - answers.tables.keys() if name in self.topics]
        apart = self.refreshed_apart
        if gone or any(topics.get(name) is not table for name, table in answers.tables.items()):
            tables = topics.copy()
            for name in gone:
                del tables[name]
            tables.update(answers.tables)
            topics = MappingProxyType(tables)
        if gone:
            apart = MappingProxyType({name: time for name, time in apart.items() if name in topics})
        other_ids = self.other_ids
        if not other_ids.keys().isdisjoint(replaced):
            other_ids = {name: topic_id for name, topic_id in other_ids.items() if name not in replaced}
        merged = self._with_topics(
            answer,
            topics,
            other_ids,
            answers.unauthorized | (self.cluster.unauthorized_topics - replaced),
            answers.invalid | (self.cluster.invalid_topics - replaced),
            answers.internal | (self.cluster.internal_topics - replaced),
        )
        return replace(merged, refreshed_apart=apart)

    def _with_topics(
        self,
        answer: ClusterAnswer,
        topics: MappingProxyType[str, TopicTable],
        other_ids: Mapping[str, UUID],
        unauthorized: Set[str],
        invalid: Set[str],
        internal: Set[str],
    ) -> MetadataCache:
        is_same = topics is self.topics and other_ids is self.other_ids
        cluster = Cluster(
            answer.cluster_id,
            answer.nodes_by_id,
            topics,
            frozenset(unauthorized),
            frozenset(invalid),
            frozenset(internal),
            answer.controller,
            self.topic_ids if is_same else _TopicIds(topics, other_ids),
        )
        return replace(self, cluster=cluster, topics=topics, other_ids=other_ids)

    def with_leaders(self, tables: Mapping[str, TopicTable], nodes: Mapping[int, Node]) -> MetadataCache:
        """Returns the same snapshot with new tables for some topics, and new nodes (META-22)."""
        topics = MappingProxyType(self.topics | dict(tables))
        ids = _TopicIds(topics, self.other_ids)
        cluster = replace(self.cluster, nodes_by_id=nodes, topic_partitions=topics, topic_ids=ids)
        return replace(self, cluster=cluster, topics=topics)

    def with_tables_of(self, earlier: MetadataCache, names: Collection[str]) -> MetadataCache:
        """Returns the same snapshot with some tables of an earlier one, which are as old as they were."""
        times = {name: time for name in names if (time := earlier.refresh_time(name)) is not None}
        return replace(
            self.with_leaders({name: earlier.topics[name] for name in names}, self.nodes_by_id),
            refreshed_apart=MappingProxyType({**self.refreshed_apart, **times}),
        )

    def with_cluster(self, answer: ClusterAnswer) -> MetadataCache:
        """Returns the same snapshot with other brokers."""
        cluster = replace(
            self.cluster,
            cluster_id=answer.cluster_id,
            nodes_by_id=answer.nodes_by_id,
            controller=answer.controller,
        )
        return replace(self, cluster=cluster)

    def refreshed_at(
        self, time: RefreshTime, update_version: int, topics: TopicAnswers | None
    ) -> MetadataCache:
        """Returns the snapshot with a refresh time. `topics`: those of a partial response; None: all."""
        if topics is None:
            return replace(
                self,
                update_version=update_version,
                last_successful_refresh_ms=time.now_ms,
                refreshed=time,
                refreshed_apart=_NOT_APART,
                answered=time,
            )
        apart = MappingProxyType(self.refreshed_apart | dict.fromkeys(topics.tables, time))
        return replace(self, update_version=update_version, refreshed_apart=apart, answered=time)

    # -- look-ups --------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        return self.cluster.cluster_id

    @property
    def nodes_by_id(self) -> Mapping[int, Node]:
        return self.cluster.nodes_by_id

    @property
    def controller(self) -> Node | None:
        return self.cluster.controller

    @property
    def is_bootstrap(self) -> bool:
        """Whether no broker has answered yet, so that the nodes are only addresses."""
        return self.cluster.is_bootstrap_configured

    @property
    def topic_ids(self) -> Mapping[str, UUID]:
        return self.cluster.topic_ids

    @property
    def topic_names(self) -> Mapping[UUID, str]:
        """The topics' names by id: a new dict each time, which takes time for each topic."""
        return {topic_id: name for name, topic_id in self.topic_ids.items()}

    def topic(self, name: str) -> TopicTable | None:
        return self.topics.get(name)

    def topic_id(self, name: str) -> UUID | None:
        return self.cluster.topic_ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Returns the name of the topic with this id. Takes time for each topic."""
        return self.topic_names.get(topic_id)

    def partition_count(self, topic: str) -> int | None:
        """Returns how many partitions the topic has; None while it is unknown."""
        table = self.topics.get(topic)
        return None if table is None else table.partition_count

    def leader_for(self, topic_partition: TopicPartition) -> Node | None:
        """Returns the partition's leader; None without one, or if its broker or the partition is unknown."""
        topic, partition = topic_partition
        table = self.topics.get(topic)
        leader_id = None if table is None else table.leader_id(partition)
        return None if leader_id is None else self.cluster.nodes_by_id.get(leader_id)

    def leader_and_epoch_for(self, topic_partition: TopicPartition) -> tuple[Node | None, int | None]:
        """Returns `leader_for`, and the leader epoch: None if it is unreliable, or the partition unknown."""
        table = self.topics.get(topic_partition.topic)
        if table is None:
            return None, None
        leader_id, leader_epoch = table.leader_id_and_epoch(topic_partition.partition)
        return None if leader_id is None else self.cluster.nodes_by_id.get(leader_id), leader_epoch

    def refreshed_ms(self, topic: str) -> int | None:
        """Returns when (now_ms) a response last contained the topic; None if it is unknown."""
        time = self.refresh_time(topic)
        return None if time is None else time.now_ms

    def lacks_partition(self, topic: str, partition: int | None, since_ms: int) -> bool:
        """Returns whether a response at `since_ms` or later contained the topic without this partition."""
        count, refreshed_ms = self.partition_count(topic), self.refreshed_ms(topic)
        if partition is None or count is None or refreshed_ms is None:
            return False
        return partition >= count and refreshed_ms >= since_ms

    @property
    def oldest(self) -> RefreshTime | None:
        """The time since which each topic, and the brokers, were in a response; None before the first."""
        if len(self.refreshed_apart) < len(self.topics):
            return self.refreshed
        return min(self.refreshed_apart.values(), default=self.answered)

    def oldest_of(self, topics: Iterable[str]) -> RefreshTime | None:
        """Returns the time since which these topics, without unknown ones, and the brokers were known."""
        times = [time for topic in topics if (time := self.refresh_time(topic)) is not None]
        return min(times, default=self.answered)

    def refresh_time(self, topic: str) -> RefreshTime | None:
        """Returns when a response last contained the topic; None if it is unknown."""
        if topic not in self.topics:
            return None
        return self.refreshed_apart.get(topic, self.refreshed)

    # -- counts ----------------------------------------------------------------------------------------------

    @property
    def partition_total(self) -> int:
        """The number of known partitions. Sums per topic, without visiting partitions."""
        return sum(map(_PARTITION_COUNT, self.topics.values()))

    @property
    def leaderless_total(self) -> int:
        """The number of known partitions without a leader."""
        return sum(
            table.leaderless_count
            for table in self.topics.values()
            if table.faults is not NO_FAULTS or table.overlay
        )
