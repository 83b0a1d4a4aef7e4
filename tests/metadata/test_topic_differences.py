"""Which partitions of a topic differ from an earlier table: compared as bytes where that is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.metadata.topic_table import TopicTable
from tests.support.metadata_responses import partition, read, topic, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSIONS = [1, 8, 13]


def table(partitions: Sequence[Any], version: int = 13) -> TopicTable:
    [found] = read(3, [topic("t", partitions, topic_id=topic_id_of("t"))], version=version).topics
    assert isinstance(found, TopicTable)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "changed",
    [
        partition(1, leader=2, epoch=1),
        partition(1, leader=None, epoch=1),
        partition(1, isr=(0, 1)),
        partition(1, replicas=(2, 1, 0)),
        partition(1, error=9),
        partition(1, replicas=(0, 1)),
    ],
    ids=["leader", "no leader", "isr", "replicas", "error", "fewer replicas"],
)
def test_a_partition_that_differs_in_anything_is_found(changed: Any, version: int) -> None:
    before = table([partition(0), partition(1), partition(2)], version)
    after = table([partition(0), changed, partition(2)], version)
    assert after.differing(before, after.numbers) == [1]
    assert after.differing(after, after.numbers) == []
    assert after.differing(before, [0, 2]) == []


def test_offline_replicas_that_differ_are_found() -> None:
    before, after = table([partition(0), partition(1)]), table([partition(0, offline=(2,)), partition(1)])
    assert after.differing(before, after.numbers) == [0]


def test_partitions_that_are_new_differ() -> None:
    before, after = table([partition(0)]), table([partition(0), partition(1), partition(2)])
    assert after.differing(before, after.numbers) == [1, 2]


def test_partitions_laid_over_the_bytes_count() -> None:
    plain = table([partition(0), partition(1)])
    known = plain.metadata(1)
    assert known is not None
    named = plain.with_overlay({1: known._replace(leader_id=2, leader_epoch=7)})
    assert named.differing(plain, named.numbers) == [1]
    assert plain.differing(named, plain.numbers) == [1]
    assert named.differing(plain.with_overlay(dict(named.overlay)), named.numbers) == []
    assert plain.with_overlay({1: known}).differing(plain, plain.numbers) == []


def test_tables_of_different_versions_are_compared_by_what_they_say() -> None:
    """A broker of an older version has no epochs to rely on: that is another partition to a client."""
    older, newer = table([partition(0), partition(1)], 8), table([partition(0), partition(1, leader=2)], 13)
    assert newer.differing(older, newer.numbers) == [0, 1]
    assert table([partition(0), partition(1)], 7).differing(older, older.numbers) == []


described = st.lists(
    st.builds(
        partition,
        leader=st.sampled_from([None, 0, 1]),
        epoch=st.integers(0, 2),
        replicas=st.sampled_from([(0, 1), (1, 2), (0, 1, 2)]),
        error=st.sampled_from([0, 5]),
    ),
    min_size=1,
    max_size=8,
)


@given(described, described, st.sampled_from(VERSIONS), st.sampled_from(VERSIONS))
def test_it_is_what_comparing_all_that_is_known_says(
    before: list[Any], after: list[Any], version_before: int, version_after: int
) -> None:
    earlier = table([_numbered(p, n) for n, p in enumerate(before)], version_before)
    later = table([_numbered(p, n) for n, p in enumerate(after)], version_after)
    expected = [n for n in later.numbers if later.metadata(n) != earlier.metadata(n)]
    assert later.differing(earlier, later.numbers) == expected


def _numbered(described: Any, number: int) -> Any:
    return partition(
        number,
        leader=None if described.leader_id < 0 else described.leader_id,
        epoch=described.leader_epoch,
        replicas=described.replica_nodes,
        error=described.error_code,
    )
