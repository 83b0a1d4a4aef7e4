"""The offsets of partitions: at a constant stride, which is checked, or found one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.errors import SchemaError, TruncatedError
from client_core.metadata.topic_layout import (
    MOST_REPLICAS,
    LocatedPartitions,
    PartitionMetadata,
    epoch_at,
    find_faults,
    layout_of,
    leader_at,
    locate_partitions,
    pass_over_partitions,
    read_partition,
)
from client_core.protocol.primitives import FlexibleWriter, Writer
from tests.metadata.strategies import VERSIONS, Tags, write_partition
from tests.support.counted_work import python_lines
from tests.support.metadata_responses import partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.protocol.messages.metadata_response import MetadataResponsePartition

NO_TAGS: Tags = []
PARTITION_V13 = bytes.fromhex(
    "0005"  # error: LEADER_NOT_AVAILABLE
    "00000000"  # number
    "00000002"  # leader
    "0000000b"  # leader epoch
    "03 00000001 00000002"  # replicas
    "02 00000002"  # in-sync replicas
    "02 00000001"  # offline replicas
    "00"  # no tags
)
PARTITION_V1 = bytes.fromhex(
    "0000"  # error
    "00000001"  # number
    "ffffffff"  # leader: none
    "00000001 00000003"  # replicas
    "00000000"  # in-sync replicas
)


def written(partitions: Sequence[MetadataResponsePartition], version: int, fields: Tags = NO_TAGS) -> bytes:
    """The partitions of a topic, one behind the other."""
    writer: Writer = FlexibleWriter() if version >= 9 else Writer()
    for described in partitions:
        write_partition(writer, described, version, fields)
    return writer.getvalue()


def located(
    partitions: Sequence[MetadataResponsePartition], version: int = 13, fields: Tags = NO_TAGS
) -> LocatedPartitions:
    """Where they lie, with something in front and something behind."""
    in_front, behind = b"....", b"\xff" * 9
    buf = in_front + written(partitions, version, fields) + behind
    found = locate_partitions(buf, len(in_front), len(partitions), layout_of(version), len(in_front))
    assert found.end == len(buf) - len(in_front) - len(behind)
    return found


def test_one_partition_of_a_flexible_version_is_read() -> None:
    found = locate_partitions(PARTITION_V13, 0, 1, layout_of(13))
    assert found == LocatedPartitions(range(0, 34, 34), range(1), 34, 34)
    assert read_partition(PARTITION_V13, 0, layout_of(13)) == PartitionMetadata(5, 2, 11, (1, 2), (2,), (1,))
    assert leader_at(PARTITION_V13, 0) == 2
    assert epoch_at(PARTITION_V13, 0, layout_of(13)) == 11


def test_one_partition_of_an_old_version_is_read() -> None:
    assert read_partition(PARTITION_V1, 0, layout_of(1)) == PartitionMetadata(0, None, None, (3,), (), ())
    assert leader_at(PARTITION_V1, 0) is None
    assert epoch_at(PARTITION_V1, 0, layout_of(1)) is None


def test_versions_that_agree_share_a_layout() -> None:
    assert layout_of(10) is layout_of(13)
    assert len({layout_of(version) for version in VERSIONS}) == 6


@pytest.mark.parametrize("version", VERSIONS)
def test_equal_counts_make_a_stride(version: int) -> None:
    found = located([partition(p) for p in range(300)], version)
    assert found.stride > 0
    assert found.offsets == range(0, 300 * found.stride, found.stride)
    assert found.numbers == range(300)


@pytest.mark.parametrize("version", range(9, 14))
def test_offline_replicas_that_left_the_isr_keep_the_stride(version: int) -> None:
    described = [partition(p, isr=(0, 1, 2)[p % 4 :], offline=(0, 1, 2)[: p % 4]) for p in range(200)]
    assert located(described, version).stride > 0


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(partition(1, replicas=(0, 1)), id="fewer replicas"),
        pytest.param(partition(1, isr=(0,), offline=()), id="smaller isr"),
        pytest.param(partition(1, isr=(0, 1), offline=(2, 3)), id="more offline"),
        pytest.param(
            partition(1, replicas=(0, 1), isr=(0, 1), offline=(2, 3)), id="same stride, fewer replicas"
        ),
        pytest.param(partition(2), id="a gap"),
        pytest.param(partition(0), id="a number twice"),
        pytest.param(partition(257), id="a number that differs in its higher byte"),
    ],
)
def test_irregular_partitions_are_walked(odd: MetadataResponsePartition) -> None:
    found = located([partition(0), odd])
    assert found.stride == 0
    assert len(found.offsets) == len(found.numbers)


def test_walked_partitions_may_have_replicas_with_the_greatest_ids() -> None:
    for replica in (1 << 24, 2 << 24, 5 << 24, (1 << 31) - 1):
        few, many = partition(0, replicas=[replica]), partition(1, replicas=[replica, 1, replica])
        found = located([few, many, few._replace(partition_index=2)])
        sizes = [len(written([one], 13)) for one in (few, many)]
        assert list(found.offsets) == [0, sizes[0], sum(sizes)], replica


def test_walked_partitions_are_in_the_order_of_their_numbers() -> None:
    found = located([partition(2), partition(0), partition(1, replicas=(1,))])
    assert found.numbers == range(3)
    assert list(found.offsets) == [42, 84, 0]


def test_more_replicas_than_one_byte_counts_are_walked() -> None:
    many = tuple(range(200))
    assert located([partition(p, replicas=many) for p in range(3)]).stride == 0


def test_the_first_count_of_two_bytes_is_not_taken_for_one_of_one_byte() -> None:
    """The ids are such that the rest would be read one byte off, and end one byte early."""
    replicas = (*range(126), 2)
    assert located([partition(p, replicas=replicas, isr=(2,), offline=(0,)) for p in range(3)]).stride == 0


def test_three_counts_of_two_bytes_are_walked_to_their_end() -> None:
    """The ids are such that the first byte of each count, taken for all of it, ends three bytes early."""
    replicas, isr = (*range(126), 128), (*range(126), 0x8000)
    assert located([partition(0, replicas=replicas, isr=isr, offline=range(127))]).numbers == range(1)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_least_that_a_partition_takes_is_one_without_replicas(version: int) -> None:
    smallest = written([partition(0, replicas=(), isr=())], version)
    assert layout_of(version).fewest_partition_bytes == len(smallest)


def test_a_count_of_two_bytes_is_not_taken_for_one_of_one_byte() -> None:
    """The second partition would fit the stride if 0x83 were a count; it is the first byte of one."""
    regular = written([partition(0, replicas=(1,), isr=range(100), offline=range(100))], 13)
    in_sync_at = 14 + 1 + 4
    misleading = (
        regular[:5]
        + b"\x01"
        + regular[6:in_sync_at]
        + b"\x83"
        + b"\x01" * 520
        + b"\x47"
        + b"\x01" * 280
        + b"\0"
    )
    assert len(misleading) == len(regular)
    try:
        found = locate_partitions(regular + misleading + bytes(100), 0, 2, layout_of(13))
    except SchemaError:
        return
    assert found.stride == 0


def test_tags_within_a_partition_are_walked() -> None:
    found = located([partition(p) for p in range(4)], 13, [(7, b"x")])
    assert found.stride == 0
    assert found.numbers == range(4)


def test_no_partitions_lie_nowhere() -> None:
    assert locate_partitions(b"abc", 2, 0, layout_of(13)) == LocatedPartitions(range(0), range(0), 0, 2)


def test_faults_are_counted_once() -> None:
    described = [
        partition(0),
        partition(1, leader=None, error=5),
        partition(2, leader=None, error=-1),
        partition(3, epoch=None),
    ]
    buf = written(described, 13)
    faults = find_faults(buf, locate_partitions(buf, 0, 4, layout_of(13)), layout_of(13))
    assert faults.error_codes == {5, -1}
    assert faults.leaderless == 2
    assert faults.misses_epoch


def test_the_most_replicas_that_one_byte_counts_keep_the_stride() -> None:
    replicas = tuple(range(126))
    assert located([partition(p, replicas=replicas, isr=(2,)) for p in range(3)]).stride > 0
    whole, some = replicas[:125], replicas[:60]
    assert located([partition(p, isr=whole, offline=()) for p in range(3)]).stride > 0
    assert located([partition(p, isr=some, offline=replicas[60:125]) for p in range(3)]).stride > 0
    assert located([partition(p, isr=replicas, offline=()) for p in range(3)]).stride == 0


@pytest.mark.parametrize("count_at", [14, 23, 28], ids=["replicas", "in sync", "offline"])
def test_a_list_of_replicas_that_is_null_is_refused(count_at: int) -> None:
    buf = PARTITION_V13[:count_at] + b"\0" + PARTITION_V13[count_at + 1 :]
    with pytest.raises(SchemaError):
        locate_partitions(buf, 0, 1, layout_of(13))


@pytest.mark.parametrize("version", [1, 8, 13])
def test_a_partition_has_at_most_so_many_replicas(version: int) -> None:
    most = partition(0, replicas=range(MOST_REPLICAS), isr=())
    assert (located([most], version).stride > 0) == (version < 9)
    more = partition(0, replicas=range(MOST_REPLICAS + 1), isr=())
    with pytest.raises(SchemaError, match="10001 replicas of one partition, more than 10000"):
        located([more], version)


def test_partitions_fit_in_what_is_here_and_to_come() -> None:
    buf, first = b"\x01" * 100, 80
    layout = layout_of(13)
    assert layout.fewest_partition_bytes == 18
    with pytest.raises(TruncatedError):
        locate_partitions(buf, first, 2, layout, to_come=16)
    with pytest.raises(SchemaError, match="2 partitions do not fit in the 35 bytes left"):
        locate_partitions(buf, first, 2, layout, to_come=15)


def test_partitions_that_end_where_the_bytes_do_are_located() -> None:
    buf = written([partition(p) for p in range(9)], 13)
    assert locate_partitions(buf, 0, 9, layout_of(13), to_come=1).end == len(buf)


def test_partitions_that_are_not_all_here_are_not_walked() -> None:
    """Each piece of a large topic would otherwise walk all that came before it."""
    buf = written([partition(p) for p in range(500)], 13)[:-1]

    def locate() -> None:
        with pytest.raises(TruncatedError):
            locate_partitions(buf, 0, 500, layout_of(13), to_come=1)

    assert python_lines(locate) < 200


@pytest.mark.parametrize("version", [8, 13])
def test_regular_partitions_are_passed_over_at_once(version: int) -> None:
    buf = written([partition(p) for p in range(500)], version)
    layout = layout_of(version)
    pass_over_partitions(buf, 0, 500, layout)  # the columns of 500 numbers are kept from then on

    def pass_over() -> None:
        assert pass_over_partitions(buf, 0, 500, layout) == (0, len(buf))

    assert python_lines(pass_over) < 100
