"""A topic with partitions missing in a response: the others keep their numbers everywhere."""

from __future__ import annotations

from random import Random

import pytest

from client_core.cluster import Cluster, TopicPartition
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.producer.accumulator.batch_drain import DrainOrder
from client_core.producer.accumulator.partitioner import BuiltInPartitioner
from tests.support.metadata_responses import partition, read, topic

NUMBERS = (0, 2, 5)


@pytest.fixture
def cluster() -> Cluster:
    metadata = Metadata(MetadataConfig(), Random(0))
    described = [topic("orders", [partition(number, leader=number % 2) for number in NUMBERS])]
    metadata.update(0, read(2, described), False, 0)
    return metadata.fetch()


@pytest.mark.behaviour("CLU-02", "CLU-03", "CLU-04")
def test_every_partition_is_listed_by_its_number(cluster: Cluster) -> None:
    assert cluster.partition_count_for_topic("orders") == 3
    assert [info.partition for info in cluster.partitions_for_topic("orders")] == [0, 2, 5]
    assert [info.partition for info in cluster.available_partitions_for_topic("orders")] == [0, 2, 5]
    assert [info.partition for info in cluster.partitions_for_node(0)] == [0, 2]
    assert [info.partition for info in cluster.partitions_for_node(1)] == [5]
    assert cluster.partition(TopicPartition("orders", 1)) is None


def test_a_partition_that_a_stale_answer_left_out_is_listed_no_more() -> None:
    metadata = Metadata(MetadataConfig(), Random(0))
    for epochs in ((5, 5, 5), None, (6, 4, 6)):
        topics = [] if epochs is None else [topic("t", [partition(n, epoch=e) for n, e in enumerate(epochs)])]
        metadata.update(0, read(1, topics, known_topics=metadata.cache.topics), False, 0)
    assert [info.partition for info in metadata.fetch().partitions_for_topic("t")] == [0, 2]


def test_records_without_a_key_go_to_each_partition_that_is_there(cluster: Cluster) -> None:
    partitioner = BuiltInPartitioner("orders", 1, Random(3))
    chosen = set()
    for _ in range(100):
        chosen.add(partitioner.current_partition(cluster))
        partitioner.update(2, cluster, enable_switch=True)
    assert chosen == set(NUMBERS)


def test_a_drain_begins_at_each_partition_that_is_there_in_turn(cluster: Cluster) -> None:
    order = DrainOrder()
    order.use(cluster, {"orders"})
    waiting = [TopicPartition("orders", number) for number in (0, 2)]
    begun_with = []
    for _ in range(4):
        begun_with.append(order.arranged(0, waiting)[0].partition)
        order.got_round(0)
    assert begun_with == [2, 0, 2, 0]
