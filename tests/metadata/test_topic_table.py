"""A topic of a snapshot: decoded on demand, with newer partitions laid over it."""

from __future__ import annotations

import pytest

from client_core.cluster import missing_node
from client_core.metadata.topic_layout import PartitionMetadata
from client_core.metadata.topic_table import TopicTable
from tests.support.metadata_responses import node, partition, read, topic, topic_id_of

NODES = {n: node(n) for n in range(3)}
HINT = PartitionMetadata(0, 2, 7, (0, 1, 2), (2,), ())


def table(*partitions_: object, version: int = 13) -> TopicTable:
    described = [p for p in partitions_ if isinstance(p, type(partition()))]
    [found] = read(3, [topic("t", described, topic_id=topic_id_of("t"))], version=version).topics
    assert isinstance(found, TopicTable)
    return found


@pytest.mark.behaviour("CLU-03")
def test_a_partition_is_resolved_by_the_nodes_it_is_asked_with() -> None:
    """A replica without a broker entry becomes an empty node, a leader without one nobody (CLU-03)."""
    found = table(partition(0, leader=1, epoch=5, replicas=(1, 9), isr=(1,), offline=(9,)))
    info = found.partition(0, NODES)
    assert info is not None
    assert (info.topic, info.partition, info.leader, info.leader_epoch) == ("t", 0, node(1), 5)
    assert info.replicas == (node(1), missing_node(9))
    assert info.in_sync_replicas == (node(1),)
    assert info.offline_replicas == (missing_node(9),)
    assert found.partition(0, {}) == info._replace(
        leader=None,
        replicas=(missing_node(1), missing_node(9)),
        in_sync_replicas=(missing_node(1),),
    )


@pytest.mark.parametrize("unknown", [-1, 1, 1 << 40])
def test_a_partition_that_is_not_there_is_none(unknown: int) -> None:
    found = table(partition(0))
    assert found.partition(unknown, NODES) is None
    assert found.metadata(unknown) is None
    assert found.leader_id(unknown) is None
    assert found.leader_epoch(unknown) is None


def test_an_overlay_takes_the_place_of_a_partition() -> None:
    plain = table(partition(0), partition(1, leader=None))
    found = plain.with_overlay({1: HINT})
    assert found.leader_id(1) == 2
    assert found.leader_epoch(1) == 7
    assert found.metadata(1) == HINT
    assert found.leader_id(0) == 0
    assert (plain.leaderless_count, found.leaderless_count) == (1, 0)
    assert plain.leader_id(1) is None


def test_an_overlay_can_leave_a_partition_out() -> None:
    found = table(partition(0), partition(1, leader=None), partition(2)).with_overlay({1: None})
    assert found.partition_count == 2
    assert found.numbers == (0, 2)
    assert found.raw_numbers == range(3)
    assert found.leaderless_count == 0
    assert found.partition(1, NODES) is None
    assert found.leader_id(1) is None
    assert found.leader_epoch(1) is None


def test_an_overlay_counts_a_partition_that_loses_its_leader() -> None:
    assert table(partition(0)).with_overlay({0: HINT._replace(leader_id=None)}).leaderless_count == 1


def test_overlays_replace_one_another_and_leave_the_first_as_it_was() -> None:
    first = table(partition(0), partition(1)).with_overlay({0: None})
    second = first.with_overlay({1: HINT})
    assert (first.partition_count, second.partition_count) == (1, 2)
    assert second.overlay == {1: HINT}
    assert second.raw is first.raw
    led = table(partition(0, leader=None), partition(1)).with_overlay({0: HINT})
    assert (led.leaderless_count, led.with_overlay({1: HINT}).leaderless_count) == (0, 1)


def test_an_overlay_is_over_partitions_that_are_there() -> None:
    with pytest.raises(KeyError, match="t has no partition 5"):
        table(partition(0)).with_overlay({5: HINT})


def test_a_mark_of_use_is_seen_through_every_table_of_the_topic() -> None:
    first = table(partition(0))
    second = first.with_overlay({0: None})
    second.use.touched = True
    assert first.use.touched


def test_it_shows_what_is_laid_over() -> None:
    found = table(partition(0), partition(1))
    assert repr(found) == "<TopicTable t partitions=2>"
    assert repr(found.with_overlay({1: None})) == "<TopicTable t partitions=1 overlay=[1]>"


def test_the_replication_factor_is_that_of_the_first_partition() -> None:
    assert table().replication_factor == 0
    assert table(partition(0, replicas=(0, 1)), partition(1)).replication_factor == 2


def test_the_bytes_of_regular_tables_tell_whose_leader_changed() -> None:
    old, same = table(partition(0), partition(1)), table(partition(0), partition(1, isr=(1,), offline=(0, 2)))
    assert same.changed_leaders(old) == []
    assert table(partition(0), partition(1, leader=2, epoch=4)).changed_leaders(old) == [(1, (0, 0), (2, 4))]
    assert table(partition(0)).changed_leaders(old) is None
    assert old.changed_leaders(old.with_overlay({0: HINT})) is None
    assert old.with_overlay({0: HINT}).changed_leaders(old) is None
