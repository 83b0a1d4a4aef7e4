from __future__ import annotations

from client_core.cluster import Cluster, Node, TopicPartition
from client_core.producer.accumulator.batch_drain import DrainOrder
from tests.golden.adapters_producer import Leaders, cluster_of

T = "t"


def partitions(order: list[TopicPartition]) -> list[int]:
    return [topic_partition.partition for topic_partition in order]


def of(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition(T, number) for number in numbers]


def two_topics(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> Cluster:
    nodes = {node_id: Node(node_id, "localhost", 9092) for node_id in (0, 1)}
    return Cluster("c", nodes, {"a": Leaders(a), "b": Leaders(b)})


def test_partitions_come_from_the_highest_to_the_lowest_at_first() -> None:
    order = DrainOrder()
    order.use(cluster_of([0, 0, 0, 0]), {T})
    assert partitions(order.arranged(0, of(1, 0, 3))) == [3, 1, 0]


def test_the_order_may_be_another_one() -> None:
    order = DrainOrder([2, 0, 1].index)
    order.use(cluster_of([0, 0, 0]), {T})
    assert partitions(order.arranged(0, of(0, 1, 2))) == [2, 0, 1]
    order.got_round(0)
    assert partitions(order.arranged(0, of(0, 1, 2))) == [1, 2, 0]


def test_each_round_begins_one_partition_earlier_in_the_circle() -> None:
    order = DrainOrder()
    order.use(cluster_of([0, 0, 0]), {T})
    begun_with = []
    for _ in range(4):
        begun_with.append(partitions(order.arranged(0, of(0, 1, 2)))[0])
        order.got_round(0)
    assert begun_with == [2, 0, 1, 2]


def test_partitions_without_batches_count_in_the_circle() -> None:
    order = DrainOrder()
    order.use(cluster_of([0, 0, 0, 0]), {T})
    order.got_round(0)  # the next one begins at 0
    order.got_round(0)  # and the one after it at 1
    assert partitions(order.arranged(0, of(3, 0))) == [0, 3]


def test_a_drain_that_was_stopped_goes_on_where_it_was() -> None:
    order = DrainOrder()
    order.use(cluster_of([0, 0, 0, 0]), {T})
    order.stopped(0, TopicPartition(T, 1))
    assert partitions(order.arranged(0, of(0, 1, 2, 3))) == [1, 0, 3, 2]


def test_each_node_has_a_circle_of_its_own() -> None:
    order = DrainOrder()
    order.use(cluster_of([0, 1, 0, 1]), {T})
    order.got_round(0)
    assert partitions(order.arranged(0, of(0, 2))) == [0, 2]
    assert partitions(order.arranged(1, of(1, 3))) == [3, 1]


def test_topics_stand_in_the_circle_by_name() -> None:
    order = DrainOrder()
    order.use(two_topics((0, 0), (0, 1)), {"a", "b"})
    waiting = [TopicPartition("b", 0), TopicPartition("a", 0), TopicPartition("a", 1)]
    assert [str(place) for place in order.arranged(0, waiting)] == ["a-1", "a-0", "b-0"]
    order.stopped(0, TopicPartition("b", 0))
    assert [str(place) for place in order.arranged(0, waiting)] == ["b-0", "a-1", "a-0"]


def test_a_moved_leader_moves_the_partition_to_the_other_circle() -> None:
    order = DrainOrder()
    order.use(cluster_of([0, 0, 1]), {T})
    order.stopped(0, TopicPartition(T, 0))
    order.use(cluster_of([1, 0, 1]), {T})
    assert partitions(order.arranged(0, of(1))) == [1]
    assert partitions(order.arranged(1, of(0, 2))) == [2, 0]


def test_a_topic_that_is_new_or_gone_changes_the_circle() -> None:
    order, both = DrainOrder(), two_topics((0, 0), (0, 0))
    order.use(both, {"b"})
    order.stopped(0, TopicPartition("b", 0))  # the second of two
    order.use(both, {"a", "b"})  # now the second of four: a-0
    waiting = [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert [str(place) for place in order.arranged(0, waiting)] == ["a-0", "a-1"]
    order.use(Cluster("c", both.nodes_by_id, {"b": both.topic_partitions["b"]}), {"a", "b"})
    assert [str(p) for p in order.arranged(0, [TopicPartition("b", 1), TopicPartition("b", 0)])] == [
        "b-0",
        "b-1",
    ]


def test_a_node_of_which_nothing_is_known_has_no_circle_and_is_no_error() -> None:
    order = DrainOrder()
    order.use(cluster_of([None, None]), {T})
    order.got_round(7)
    order.stopped(7, TopicPartition(T, 0))
    assert partitions(order.arranged(7, of(0, 1))) == [1, 0]
