"""The differences between two tables, and which of them is to be believed (META-11 to META-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.metadata.leader_epochs import LastSeenEpochs, compare
from client_core.metadata.topic_table import TopicTable
from tests.support.counted_work import python_calls, python_lines
from tests.support.metadata_responses import partition, read, topic

if TYPE_CHECKING:
    from client_core.protocol.messages.metadata_response import MetadataResponsePartition

Leadership = tuple[int | None, int | None]
#: Ids and epochs of which some differ in the last byte, some in the first.
LEADERSHIP = st.tuples(
    st.none() | st.sampled_from([0, 1, 0x7F00_0000]), st.none() | st.sampled_from([0, 1, 0x100, 0x7FFF_FFFF])
)


def table(*partitions: MetadataResponsePartition, name: str = "t") -> TopicTable:
    [found] = read(3, [topic(name, partitions)]).topics
    assert isinstance(found, TopicTable)
    return found


def leaders(*leaders_and_epochs: tuple[int | None, int | None]) -> TopicTable:
    return table(*(partition(p, leader=n, epoch=e) for p, (n, e) in enumerate(leaders_and_epochs)))


# -- comparing -----------------------------------------------------------------------------------------------


def test_equal_leadership_makes_no_changes() -> None:
    old, new = table(partition(0)), table(partition(0, isr=(0,)))
    assert compare(old, new) == (old, new, [])


def test_a_change_names_both_leaders_and_epochs() -> None:
    old, new = leaders((0, 5), (1, 5), (2, 5)), leaders((0, 5), (None, 6), (2, None))
    assert compare(old, new).changes == [(1, (1, 5), (-1, 6)), (2, (2, 5), (2, -1))]


def test_only_partitions_of_both_are_compared() -> None:
    old, new = leaders((0, 5), (1, 5)), leaders((0, 6))
    assert compare(old, new).changes == [(0, (0, 5), (0, 6))]
    assert compare(new, old).changes == [(0, (0, 6), (0, 5))]


def test_overlays_are_compared_too() -> None:
    old = leaders((0, 5), (1, 5))
    kept = old.metadata(1)
    assert kept is not None
    hinted = old.with_overlay({1: kept._replace(leader_id=2, leader_epoch=6)})
    assert compare(old, hinted).changes == [(1, (1, 5), (2, 6))]
    assert compare(old.with_overlay({1: None}), hinted).changes == []


@given(
    before=st.lists(LEADERSHIP, min_size=6, max_size=6),
    after=st.lists(LEADERSHIP, max_size=6),
    replicas=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    odd_one_out=st.none() | st.integers(0, 5),
)
def test_changes_are_those_that_reading_every_partition_finds(
    before: list[Leadership], after: list[Leadership], replicas: tuple[int, int], odd_one_out: int | None
) -> None:
    """Regular or not: a partition with more replicas than the others has the bytes at other distances."""

    def made(leaderships: list[Leadership], count: int) -> TopicTable:
        counts = [count + (number == odd_one_out) for number in range(len(leaderships))]
        return table(
            *(
                partition(number, leader=leader, epoch=epoch, replicas=range(counts[number]))
                for number, (leader, epoch) in enumerate(leaderships)
            )
        )

    old, new = made(before[: len(after)], replicas[0]), made(after, replicas[1])
    was, now = ([read_leadership(each, number) for number in range(len(after))] for each in (old, new))
    both = zip(range(len(after)), was, now, strict=True)
    assert compare(old, new).changes == [row for row in both if row[1] != row[2]]


def read_leadership(known: TopicTable, number: int) -> tuple[int, int]:
    found = known.metadata(number)
    assert found is not None
    return found.leader_and_epoch


def test_tables_of_the_same_partitions_are_compared_as_a_whole() -> None:
    """A broker that fails changes many topics at once: their partitions are not looked at one by one."""
    regular = [leaders(*[(0, epoch)] * 500) for epoch in (5, 5)]
    assert python_lines(lambda: compare(*regular)) < 100
    odd = [table(*(partition(p, replicas=range(1 + p % 2)) for p in range(500))) for _ in range(2)]
    assert python_calls(lambda: compare(*odd)) < 30


# -- believing -----------------------------------------------------------------------------------------------


@pytest.fixture
def seen() -> LastSeenEpochs:
    """The epochs 5 and 5 were seen."""
    seen = LastSeenEpochs()
    seen.accept(leaders((0, 5), (1, 5)), None, topic_id_changed=False)
    return seen


@pytest.fixture
def cached() -> TopicTable:
    return leaders((0, 5), (1, 5))


def test_the_first_table_is_progress() -> None:
    first = leaders((0, 5))
    assert LastSeenEpochs().accept(first, None, topic_id_changed=False) == (first, True)


def test_a_table_without_partitions_is_no_progress() -> None:
    empty = leaders()
    assert LastSeenEpochs().accept(empty, None, topic_id_changed=False) == (empty, False)


@pytest.mark.behaviour("META-03")
def test_greater_epochs_are_progress_and_equal_ones_are_not(seen: LastSeenEpochs, cached: TopicTable) -> None:
    moved = leaders((1, 5), (1, 5))
    assert seen.accept(moved, cached, topic_id_changed=False) == (moved, False)
    elected = leaders((1, 6), (1, 5))
    assert seen.accept(elected, moved, topic_id_changed=False) == (elected, True)
    assert seen.get("t", 0) == 6


@pytest.mark.parametrize("is_compared", [True, False])
def test_the_readers_comparison_changes_no_decision(is_compared: bool) -> None:
    for new in (
        leaders((1, 5)),
        leaders((1, 6)),
        leaders((1, 4)),
        leaders((1, None)),
        leaders((0, 5), (1, 0)),
    ):
        old = leaders((0, 5))
        seen = LastSeenEpochs()
        seen.accept(old, None, topic_id_changed=False)
        believed, progressed = seen.accept(
            new, old, topic_id_changed=False, difference=compare(old, new) if is_compared else None
        )
        epoch = new.leader_epoch(0)
        assert believed.leader_id(0) == (0 if epoch == 4 else 1 if new.partition_count == 1 else 0)
        assert progressed == (epoch == 6 or new.partition_count == 2)


@pytest.mark.behaviour("META-11")
def test_a_lesser_epoch_keeps_what_is_cached(seen: LastSeenEpochs, cached: TopicTable) -> None:
    stale = leaders((2, 4), (1, 5))
    believed, progressed = seen.accept(stale, cached, topic_id_changed=False)
    assert (believed.leader_id(0), believed.leader_epoch(0), believed.leader_id(1)) == (0, 5, 1)
    assert not progressed
    again, _ = seen.accept(leaders((2, 4), (1, 5)), believed, topic_id_changed=False)
    assert again is believed


@pytest.mark.behaviour("META-11")
def test_stale_answers_about_many_partitions_are_corrected_in_the_bytes() -> None:
    """Applied one by one, 100,000 of them would hold Metadata's lock for half a second."""
    old = leaders((0, 5), (1, 5), (2, 5), (0, 5))
    newer = leaders((1, 6), (1, 5), (0, 6), (0, 5))
    seen = LastSeenEpochs()
    seen.accept(old, None, topic_id_changed=False)
    seen.accept(newer, old, topic_id_changed=False, difference=compare(old, newer))

    stale = leaders((0, 5), (2, 5), (2, 5), (0, 7))
    believed, progressed = seen.accept(stale, newer, topic_id_changed=False, difference=compare(newer, stale))
    assert progressed
    assert not believed.overlay
    assert believed.leaders_and_epochs() == [(1, 6), (2, 5), (0, 6), (0, 7)]
    assert [seen.get("t", number) for number in range(4)] == [6, 5, 6, 7]


@pytest.mark.behaviour("META-11")
def test_a_stale_answer_about_every_partition_changes_nothing() -> None:
    newer, stale = leaders((1, 6), (2, 6)), leaders((0, 5), (0, 5))
    seen = LastSeenEpochs()
    seen.accept(newer, None, topic_id_changed=False)
    believed, progressed = seen.accept(stale, newer, topic_id_changed=False, difference=compare(newer, stale))
    assert believed is newer
    assert not progressed


@pytest.mark.behaviour("META-11", "META-22")
def test_a_leader_named_by_a_produce_answer_outlives_a_broker_behind() -> None:
    old = leaders((0, 5), (1, 5))
    kept = old.metadata(0)
    assert kept is not None
    hinted = old.with_overlay({0: kept._replace(leader_id=2, leader_epoch=6)})
    seen = LastSeenEpochs()
    seen.accept(old, None, topic_id_changed=False)
    seen.follow(hinted)
    stale = leaders((0, 5), (2, 5))
    believed, _ = seen.accept(stale, hinted, topic_id_changed=False, difference=compare(hinted, stale))
    assert believed.leaders_and_epochs() == [(2, 6), (2, 5)]
    assert believed.overlay.keys() == {0}


@pytest.mark.behaviour("META-11")
def test_a_partition_of_another_size_is_laid_over() -> None:
    newer = table(partition(0, leader=1, epoch=6, replicas=(0, 1)), partition(1, epoch=5, replicas=(0, 1)))
    stale = leaders((0, 5), (0, 5))
    seen = LastSeenEpochs()
    seen.accept(newer, None, topic_id_changed=False)
    believed, _ = seen.accept(stale, newer, topic_id_changed=False, difference=compare(newer, stale))
    assert believed.metadata(0) == newer.metadata(0)
    assert believed.overlay.keys() == {0}
    assert believed.metadata(1) == stale.metadata(1)


@pytest.mark.behaviour("META-11")
def test_a_lesser_epoch_without_a_cached_partition_leaves_it_out(seen: LastSeenEpochs) -> None:
    believed, _ = seen.accept(leaders((2, 4), (1, 5)), None, topic_id_changed=False)
    assert believed.numbers == (1,)
    assert seen.get("t", 0) == 5


@pytest.mark.behaviour("META-13")
def test_another_topic_id_ends_all_comparing(seen: LastSeenEpochs, cached: TopicTable) -> None:
    recreated = leaders((2, 0))
    assert seen.accept(recreated, cached, topic_id_changed=True) == (recreated, True)
    assert seen.get("t", 0) == 0
    assert seen.get("t", 1) is None
    grown = leaders((2, 0), (1, 0))
    assert seen.accept(grown, recreated, topic_id_changed=False) == (grown, True)


@pytest.mark.behaviour("META-12")
def test_a_missing_epoch_takes_the_seen_one_away(seen: LastSeenEpochs, cached: TopicTable) -> None:
    unsure = leaders((0, None), (1, 5))
    assert seen.accept(unsure, cached, topic_id_changed=False) == (unsure, False)
    assert seen.get("t", 0) is None


@pytest.mark.behaviour("META-14")
def test_the_last_seen_epoch_is_what_counts(seen: LastSeenEpochs, cached: TopicTable) -> None:
    seen.put("t", 0, 7)
    believed, _ = seen.accept(leaders((2, 6), (1, 5)), cached, topic_id_changed=False)
    assert believed.leader_epoch(0) == 5
    assert seen.get("t", 0) == 7
    caught_up, progressed = seen.accept(leaders((2, 7), (1, 5)), believed, topic_id_changed=False)
    assert caught_up.leader_id(0) == 2
    assert not progressed


def test_an_epoch_that_was_seen_before_any_table_is_kept() -> None:
    seen = LastSeenEpochs()
    seen.put("t", 1, 7)
    seen.accept(leaders((0, 5)), None, topic_id_changed=False)
    assert [seen.get("t", number) for number in range(2)] == [5, 7]


@pytest.mark.behaviour("META-22")
def test_a_leader_named_after_an_epoch_was_seen_sets_the_last_seen_one(
    seen: LastSeenEpochs, cached: TopicTable
) -> None:
    seen.put("t", 0, 6)
    seen.put("t", 1, 8)
    kept = cached.metadata(0)
    assert kept is not None
    seen.follow(cached.with_overlay({0: kept._replace(leader_id=2, leader_epoch=7)}))
    assert [seen.get("t", number) for number in range(2)] == [7, 8]


@pytest.mark.behaviour("META-24")
def test_topics_that_are_no_longer_held_are_forgotten(seen: LastSeenEpochs) -> None:
    seen.put("t", 0, 7)
    seen.accept(table(partition(0, epoch=3), name="other"), None, topic_id_changed=False)
    seen.retain(set(), lambda topic: topic == "other")
    assert seen.get("t", 0) is None
    assert seen.get("t", 1) is None
    assert seen.get("other", 0) == 3
