"""Whatever becomes of a cluster: a snapshot with the changes after it applied is the next snapshot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from service.watch.changes import changes_between
from service.watch.snapshot import TopicTexts, snapshot_pieces
from tests.support.event_stream import KnownCluster
from tests.support.fake_producer import FakeProducer
from tests.support.metadata_responses import node, partition, topic

if TYPE_CHECKING:
    from client_core import MetadataCache

partitions = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2, 3]),  # leader
        st.integers(0, 3),  # epoch
        st.sampled_from([(1,), (1, 2), (2, 1, 3)]),  # replicas
        st.sampled_from([1, 3]),  # how many of them are in sync
        st.sampled_from([0, 5]),  # error
    ),
    max_size=4,
)
#: A topic by what it has, and by which of the topics of its name it is.
described_topics = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.tuples(st.integers(1, 2), partitions), max_size=3
)
brokers = st.dictionaries(st.integers(1, 4), st.integers(9_000, 9_001), min_size=1)
#: What a produce answer may say in between.
hint = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3), st.integers(1, 3), st.integers(4, 9))
steps = st.lists(st.tuples(brokers, described_topics, st.none() | hint), min_size=1, max_size=4)


def snapshot_of(cache: MetadataCache) -> Any:
    pieces = snapshot_pieces(
        cache, boot="boot", number=1, texts=TopicTexts(), names=None, sees=lambda _: True, problems={}
    )
    return json.loads(b"\n".join(pieces))


def refresh(producer: FakeProducer, nodes: dict[int, int], topics: dict[str, tuple[int, Any]]) -> None:
    producer.nodes = [node(node_id, port=port) for node_id, port in nodes.items()]
    producer.set_topics(
        [
            topic(name, [numbered(n, one) for n, one in enumerate(described)], topic_id=UUID(int=which))
            for name, (which, described) in topics.items()
        ]
    )


def numbered(number: int, described: Any) -> Any:
    leader, epoch, replicas, in_sync, error = described
    isr = replicas[:in_sync]
    return partition(number, leader=leader, epoch=epoch, replicas=replicas, isr=isr, error=error)


@settings(max_examples=200)
@given(steps)
def test_a_snapshot_and_the_changes_after_it_are_the_next_snapshot(history: Any) -> None:
    producer = FakeProducer()
    refresh(producer, {1: 9_000}, {})
    known = KnownCluster(snapshot_of(producer.cache))
    for nodes, topics, named in history:
        before = producer.cache
        refresh(producer, nodes, topics)
        if named is not None and named[1] < len(topics.get(named[0], (0, []))[1]):
            producer.name_leader(*named)
        for change in changes_between(before, producer.cache, "now"):
            if change is not None:
                known.apply(change.event, json.loads(change.data))
        assert known == KnownCluster(snapshot_of(producer.cache))
