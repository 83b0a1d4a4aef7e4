"""Metadata, lazy as it is, against a plain restatement of Java's rules, whatever happens."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from client_core.cluster import TopicPartition
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_response import read_metadata_response
from client_core.protocol.messages import metadata_response as wire
from client_core.protocol.primitives import ZERO_UUID
from tests.metadata.plain_metadata import PlainMetadata
from tests.support.metadata_responses import metadata_message, node, partition, topic

if TYPE_CHECKING:
    from client_core.metadata.topic_layout import PartitionMetadata

TOPICS = ("a", "b")
PARTITIONS = range(4)
BACKOFF_MS = 100
#: So long after the last refresh that no doubling is capped, so soon that nothing expires.
CONFIG = MetadataConfig(BACKOFF_MS, BACKOFF_MS << 60, max_age_ms=1 << 90)

topics_ = st.sampled_from(TOPICS)
numbers = st.sampled_from(PARTITIONS)
epochs = st.integers(-1, 4)
node_ids = st.integers(-1, 3)


class Unjittered(Random):
    """Backoffs without jitter, so that the count of equivalent responses shows in them."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@st.composite
def described_topics(draw: st.DrawFn) -> list[wire.MetadataResponseTopic]:
    """Few values, so that epochs, ids and layouts collide often."""
    described = []
    for name in draw(st.lists(topics_, unique=True)):
        count = draw(st.integers(0, len(PARTITIONS)))
        regular = draw(st.booleans())
        partitions = [
            partition(
                number,
                leader=draw(node_ids),
                epoch=draw(epochs),
                isr=(0, 1, 2) if regular else draw(st.sampled_from([(0, 1, 2), (0, 1)])),
                error=draw(st.sampled_from([0, 0, 0, 5, 9])),
            )
            for number in range(count)
        ]
        described.append(
            topic(
                name,
                draw(st.permutations(partitions)) if not regular else partitions,
                topic_id=draw(st.sampled_from([ZERO_UUID, UUID(int=1), UUID(int=2)])),
                is_internal=draw(st.booleans()),
                error=draw(st.sampled_from([0, 0, 0, 0, 3, 5, 17, 29])),
            )
        )
    return described


class MetadataFollowsJava(RuleBasedStateMachine):
    """Each rule does the same to both."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = Metadata(CONFIG, Unjittered(0))
        self.plain = PlainMetadata()
        self.now_ms = 0
        self.last: tuple[wire.MetadataResponse, int] | None = None

    @rule(
        described=described_topics(),
        version=st.sampled_from([8, 9, 13, 13, 13]),
        nodes=st.sets(st.integers(0, 3), min_size=1),
        is_partial=st.booleans(),
    )
    def update(
        self,
        described: list[wire.MetadataResponseTopic],
        version: int,
        nodes: set[int],
        is_partial: bool,
    ) -> None:
        self.apply(metadata_message([node(n) for n in nodes], described), version, is_partial)

    @rule(is_partial=st.booleans())
    def update_with_the_last_response_again(self, is_partial: bool) -> None:
        if self.last is not None:
            self.apply(*self.last, is_partial)

    def apply(self, message: wire.MetadataResponse, version: int, is_partial: bool) -> None:
        self.last = message, version
        body = message.encode(version)
        decoded = wire.MetadataResponse.decode(body, version)
        self.plain.update(decoded, version, is_partial=is_partial)
        response = read_metadata_response(body, version, self.metadata.cache.topics)
        self.metadata.update(0, response, is_partial, self.now_ms)

    @rule(name=topics_, number=numbers, epoch=st.integers(0, 5))
    def update_last_seen_epoch(self, name: str, number: int, epoch: int) -> None:
        assert self.metadata.update_last_seen_epoch_if_newer(
            TopicPartition(name, number), epoch
        ) == self.plain.update_last_seen_epoch_if_newer(name, number, epoch)

    @rule(
        leaders=st.dictionaries(
            st.tuples(topics_, numbers),
            st.tuples(st.integers(0, 5) | st.none(), st.integers(0, 5) | st.none()),
            min_size=1,
        ),
        nodes=st.sets(st.integers(3, 5)),
    )
    def name_leaders(
        self, leaders: dict[tuple[str, int], tuple[int | None, int | None]], nodes: set[int]
    ) -> None:
        version = self.metadata.update_version
        updated = self.metadata.update_partition_leadership(
            {TopicPartition(*key): LeaderIdAndEpoch(*named) for key, named in leaders.items()},
            [node(n) for n in nodes],
        )
        assert updated == self.plain.update_partition_leadership(leaders, nodes)
        assert self.metadata.update_version == version

    @rule()
    def bootstrap(self) -> None:
        self.metadata.bootstrap([("boot", 9092)])
        seen = self.plain.last_seen
        self.plain = PlainMetadata(
            last_seen=seen,
            nodes={-1},
            needs_full_update=True,
            equivalent_responses=self.plain.equivalent_responses,
        )

    @invariant()
    def partitions_are_the_same(self) -> None:
        cache = self.metadata.cache
        found: dict[tuple[str, int], PartitionMetadata | None] = {
            (name, number): table.metadata(number)
            for name, table in cache.topics.items()
            for number in table.numbers
        }
        assert found == self.plain.partitions
        for name in TOPICS:
            count = sum(1 for key in self.plain.partitions if key[0] == name)
            assert cache.partition_count(name) == (count or None)
        leaderless = sum(p.leader_id is None for p in self.plain.partitions.values())
        assert cache.leaderless_total == leaderless
        assert cache.partition_total == len(self.plain.partitions)

    @invariant()
    def epochs_and_leaders_are_the_same(self) -> None:
        for name in TOPICS:
            for number in PARTITIONS:
                topic_partition = TopicPartition(name, number)
                seen = self.plain.last_seen.get(topic_partition)
                assert self.metadata.last_seen_leader_epoch(topic_partition) == seen
                cached = self.plain.partitions.get(topic_partition)
                leader, epoch = self.metadata.current_leader(topic_partition)
                if cached is None or seen not in (None, cached.leader_epoch):
                    assert (leader, epoch) == (None, seen)
                else:
                    assert epoch == cached.leader_epoch
                    known = cached.leader_id if cached.leader_id in self.plain.nodes else None
                    assert (leader.id if leader else None) == known

    @invariant()
    def topic_sets_are_the_same(self) -> None:
        cluster = self.metadata.fetch()
        assert dict(cluster.topic_ids) == self.plain.topic_ids
        assert {self.metadata.cache.topic_name(i) for i in cluster.topic_ids.values()} <= set(
            cluster.topic_ids
        )
        assert cluster.unauthorized_topics == self.plain.unauthorized
        assert cluster.invalid_topics == self.plain.invalid
        assert cluster.internal_topics == self.plain.internal
        assert {n.id for n in cluster.nodes} == self.plain.nodes

    @invariant()
    def the_need_to_refresh_is_the_same(self) -> None:
        assert self.metadata.update_requested == self.plain.needs_full_update
        if self.metadata.last_successful_refresh_ms is not None:
            doublings = max(self.plain.equivalent_responses - 1, 0)
            assert self.metadata.time_to_allow_update(self.now_ms) == BACKOFF_MS << doublings


TestMetadataFollowsJava = MetadataFollowsJava.TestCase
TestMetadataFollowsJava.settings = settings(max_examples=150, stateful_step_count=25)
