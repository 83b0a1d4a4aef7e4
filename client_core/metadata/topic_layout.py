"""How a topic's partitions lie in a Metadata response, by version: where each begins, proved before use.

One partition, fields in their order (`epoch` from version 7, `offline` from 5; in versions 1-8 the counts are
int32 and there are no tags):

    int16 error, int32 number, int32 leader, [int32 epoch], n replicas, n in-sync, [n offline], tags
    where n x = uvarint n + 1, int32 * n

Partitions of one topic mostly have equally many replicas, so they lie at a fixed stride: strided slices show
in C that every count agrees and that the numbers run 0, 1, 2, ... While a broker is down the in-sync and
offline counts vary, but what one loses the other gains and the stride stays: shown by masks. Everything else
is walked. Pure; called on the I/O thread by the reader of responses, and on any thread by whoever looks a
partition up.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import IllegalArgumentError, SchemaError
from client_core.protocol.primitives import FlexibleReader, Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHAT: Final = "MetadataResponse"
OLDEST_VERSION: Final = 1
LATEST_VERSION: Final = 13

_INT32: Final = struct.Struct(">i")
_ERROR_NUMBER_LEADER: Final = struct.Struct(">hii")
_LEADER_AND_EPOCH: Final = struct.Struct(">ii")
_LEADER_AT: Final = 6
_EPOCH_AT: Final = 10
#: More replicas than this take a count of two bytes in the flexible form: walked, not proved.
_HIGHEST_PROVABLE_COUNT: Final = 120
_ZEROS: Final = bytes(256)
_ASCII: Final = bytes(range(128))
#: Partitions per call into C where the call does more than copy: 4,096 take about 0.3 ms.
_PIECE: Final = 4096


class PartitionMetadata(NamedTuple):
    """One partition as the response has it: node ids, not nodes. None: no leader, or no epoch to rely on."""

    error_code: int
    leader_id: int | None
    leader_epoch: int | None
    replica_ids: tuple[int, ...]
    in_sync_replica_ids: tuple[int, ...]
    offline_replica_ids: tuple[int, ...]


class LocatedPartitions(NamedTuple):
    """Where each partition of a topic begins: `offsets[i]` is that of partition `numbers[i]`, ascending.

    Both are ranges where the layout is regular. `end` is the offset behind the last partition; `stride` is 0
    where the partitions had to be walked.
    """

    offsets: Sequence[int]
    numbers: Sequence[int]
    stride: int
    end: int

    def moved(self, by: int) -> LocatedPartitions:
        """The same partitions when `by` bytes in front of them are cut off."""
        if isinstance(self.offsets, range):
            offsets: Sequence[int] = range(self.offsets.start - by, self.offsets.stop - by, self.offsets.step)
        else:
            offsets = array("I", [offset - by for offset in self.offsets])
        return LocatedPartitions(offsets, self.numbers, self.stride, self.end - by)


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """What a version's topics are made of. Versions that agree on it share one object.

    Epochs count only where they are reliable: before version 9 a broker may send a stale one during a
    reassignment (META-11). Source: MetadataResponse.hasReliableLeaderEpochs, Kafka 4.3.
    """

    has_offline_replicas: bool
    has_leader_epoch: bool
    has_authorized_operations: bool
    is_flexible: bool
    has_topic_id: bool

    @property
    def has_reliable_epochs(self) -> bool:
        return self.is_flexible

    @property
    def head_bytes(self) -> int:
        """Error, number, leader and epoch: what precedes the replicas."""
        return 14 if self.has_leader_epoch else 10

    @property
    def replica_lists(self) -> int:
        return 3 if self.has_offline_replicas else 2

    @property
    def count_bytes(self) -> int:
        """What the count of a short list takes."""
        return 1 if self.is_flexible else 4

    @property
    def fewest_partition_bytes(self) -> int:
        return self.head_bytes + self.replica_lists * self.count_bytes + self.is_flexible

    @property
    def fewest_topic_bytes(self) -> int:
        """A topic without name and partitions: what bounds the number of topics by the bytes left."""
        lengths = 1 + 1 + 1 if self.is_flexible else 2 + 4
        return 2 + lengths + 16 * self.has_topic_id + 1 + 4 * self.has_authorized_operations

    def reader(self, buf: bytes, at: int) -> Reader:
        """A cursor of this form at an offset."""
        return FlexibleReader(buf, at, _WHAT) if self.is_flexible else Reader(buf, at, _WHAT)


def layout_of(version: int) -> TopicLayout:
    """The layout of a Metadata response's topics at a version.

    Raises IllegalArgumentError for a version that this client does not ask for.
    """
    if not OLDEST_VERSION <= version <= LATEST_VERSION:
        raise IllegalArgumentError(f"Metadata version {version} is not spoken here")
    return _layout(version >= 5, version >= 7, version >= 8, version >= 9, version >= 10)


@lru_cache(maxsize=8)
def _layout(offline: bool, epoch: bool, operations: bool, flexible: bool, topic_id: bool) -> TopicLayout:
    return TopicLayout(offline, epoch, operations, flexible, topic_id)


# -- finding -------------------------------------------------------------------------------------------------


def locate_partitions(buf: bytes, first: int, count: int, layout: TopicLayout) -> LocatedPartitions:
    """Where `count` partitions lie from `first` on. Raises SchemaError if they are malformed."""
    if count * layout.fewest_partition_bytes > len(buf) - first:
        raise SchemaError(f"{_WHAT}: {count} partitions do not fit in the {len(buf) - first} bytes left")
    if count == 0:
        return LocatedPartitions(range(0), range(0), 0, first)
    stride = _stride_of(buf, first, count, layout)
    if stride is not None:
        end = first + count * stride
        return LocatedPartitions(range(first, end, stride), range(count), stride, end)
    return _walk(buf, first, count, layout)


def _stride_of(buf: bytes, first: int, count: int, layout: TopicLayout) -> int | None:
    """The distance at which all partitions provably lie; None if they don't, or if it can't be shown."""
    lists = []
    at = layout.head_bytes
    for _ in range(layout.replica_lists):
        length = _short_count(buf, first + at, layout)
        if length is None:
            return None
        lists.append((at, length))
        at += layout.count_bytes + 4 * length
    stride = at + layout.is_flexible
    end = first + count * stride
    if end > len(buf) or not _numbers_run(buf, first, end, stride, count):
        return None
    replicas, *others = lists
    if not _lists_agree(buf, first, end, stride, count, [replicas], layout):
        return None
    if layout.is_flexible and buf[first + stride - 1 : end : stride] != bytes(count):
        return None  # tags: nobody sends any, yet they are allowed
    if _lists_agree(buf, first, end, stride, count, others, layout):
        return stride
    if layout.is_flexible and _lists_compensate(buf, first, end, stride, count, replicas):
        return stride
    return None


def _short_count(buf: bytes, at: int, layout: TopicLayout) -> int | None:
    """A list's length if it is a provable one; None for null, long or missing."""
    encoded = buf[at : at + layout.count_bytes]
    if len(encoded) < layout.count_bytes:
        return None
    length = encoded[0] - 1 if layout.is_flexible else int.from_bytes(encoded, "big", signed=True)
    return length if 0 <= length <= _HIGHEST_PROVABLE_COUNT else None


def _numbers_run(buf: bytes, first: int, end: int, stride: int, count: int) -> bool:
    """Whether the partition numbers are 0, 1, 2, ... in this order."""
    return all(
        buf[first + 2 + k : end : stride] == expected for k, expected in enumerate(_number_columns(count))
    )


@lru_cache(maxsize=32)
def _number_columns(count: int) -> tuple[bytes, bytes, bytes, bytes]:
    """The four bytes of the numbers 0 to count - 1, one column for each byte, most significant first."""

    def column(run: int) -> bytes:
        """Byte values 0, 1, 2, ..., each `run` times."""
        return b"".join(bytes((value & 0xFF,)) * run for value in range(count // run + 1))[:count]

    ones = (bytes(range(256)) * (count // 256 + 1))[:count]
    return column(1 << 24), column(1 << 16), column(1 << 8), ones


def _lists_agree(
    buf: bytes,
    first: int,
    end: int,
    stride: int,
    count: int,
    lists: list[tuple[int, int]],
    layout: TopicLayout,
) -> bool:
    """Whether every partition has the same lengths at the same places as the first one."""
    for at, _ in lists:
        for k in range(layout.count_bytes):
            at_k = first + at + k
            if buf[at_k:end:stride] != buf[at_k : at_k + 1] * count:
                return False
    return True


def _lists_compensate(
    buf: bytes, first: int, end: int, stride: int, count: int, replicas: tuple[int, int]
) -> bool:
    """Whether in-sync and offline replicas add up to the same in every partition, however divided."""
    replicas_at, replica_count = replicas
    in_sync_at = replicas_at + 1 + 4 * replica_count
    together = (stride - in_sync_at - 3) // 4
    if together > _HIGHEST_PROVABLE_COUNT:
        return False
    in_sync_column = buf[first + in_sync_at : end : stride]
    for encoded in set(in_sync_column):
        in_sync = encoded - 1
        if not 0 <= in_sync <= together:
            return False
        offline_column = buf[first + in_sync_at + 1 + 4 * in_sync : end : stride]
        expected = bytes((together - in_sync + 1,)) * count
        mask = in_sync_column.translate(_ZEROS[:encoded] + b"\xff" + _ZEROS[encoded + 1 :])
        if (_as_int(offline_column) ^ _as_int(expected)) & _as_int(mask):
            return False
    return True


def _as_int(column: bytes) -> int:
    return int.from_bytes(column, "little")


def _walk(buf: bytes, first: int, count: int, layout: TopicLayout) -> LocatedPartitions:
    """The partitions one after the other; of two with the same number the later one counts."""
    found: dict[int, int] = {}
    at = first
    for _ in range(count):
        behind = _skip_partition(buf, at, layout)
        found[_INT32.unpack_from(buf, at + 2)[0]] = at
        at = behind
    numbers = sorted(found)
    if numbers[0] < 0:
        raise SchemaError(f"{_WHAT}: partition number {numbers[0]} is negative")
    is_dense = numbers[-1] == len(numbers) - 1
    offsets = array("I", [found[number] for number in numbers])
    return LocatedPartitions(offsets, range(len(numbers)) if is_dense else tuple(numbers), 0, at)


def _skip_partition(buf: bytes, start: int, layout: TopicLayout) -> int:
    """The offset behind the partition that begins at `start`."""
    at = start + layout.head_bytes
    if layout.is_flexible:
        try:
            for _ in range(layout.replica_lists):
                encoded = buf[at]
                if not 0 < encoded < 0x80:
                    return _skip_unusual_partition(buf, start, layout)
                at += 4 * encoded - 3  # the count's byte, and encoded - 1 replicas
            if buf[at] == 0:
                return at + 1
        except IndexError:
            pass  # the reader says what is wrong
    return _skip_unusual_partition(buf, start, layout)


def _skip_unusual_partition(buf: bytes, start: int, layout: TopicLayout) -> int:
    reader = layout.reader(buf, start)
    reader.take(layout.head_bytes)
    for _ in range(layout.replica_lists):
        reader.take(4 * reader.array_length(4))
    reader.skip_tags()
    return reader.pos


# -- reading -------------------------------------------------------------------------------------------------


def read_partition(buf: bytes, at: int, layout: TopicLayout) -> PartitionMetadata:
    """The partition at a located offset."""
    error_code, _, leader_id = _ERROR_NUMBER_LEADER.unpack_from(buf, at)
    leader_epoch = _INT32.unpack_from(buf, at + _EPOCH_AT)[0] if layout.has_reliable_epochs else -1
    reader = layout.reader(buf, at + layout.head_bytes)
    return PartitionMetadata(
        error_code,
        leader_id if leader_id >= 0 else None,
        leader_epoch if leader_epoch >= 0 else None,
        replica_ids=reader.int32_array(),
        in_sync_replica_ids=reader.int32_array(),
        offline_replica_ids=reader.int32_array() if layout.has_offline_replicas else (),
    )


def leader_at(buf: bytes, at: int) -> int | None:
    """The leader id of the partition at a located offset."""
    leader_id: int = _INT32.unpack_from(buf, at + _LEADER_AT)[0]
    return leader_id if leader_id >= 0 else None


def epoch_at(buf: bytes, at: int, layout: TopicLayout) -> int | None:
    """The leader epoch of the partition at a located offset, if it has one to rely on (META-11)."""
    if not layout.has_reliable_epochs:
        return None
    leader_epoch: int = _INT32.unpack_from(buf, at + _EPOCH_AT)[0]
    return leader_epoch if leader_epoch >= 0 else None


def leaders_and_epochs(buf: bytes, located: LocatedPartitions, layout: TopicLayout) -> list[tuple[int, ...]]:
    """Leader id and leader epoch of each partition in order, negative for none: to compare as a whole."""
    offsets = located.offsets
    if not layout.has_reliable_epochs:
        return [(_INT32.unpack_from(buf, offset + _LEADER_AT)[0], -1) for offset in offsets]
    if not located.stride:
        return [_LEADER_AND_EPOCH.unpack_from(buf, offset + _LEADER_AT) for offset in offsets]
    record = struct.Struct(f">{_LEADER_AT}xii{located.stride - _LEADER_AT - _LEADER_AND_EPOCH.size}x")
    view = memoryview(buf)
    found: list[tuple[int, ...]] = []
    for piece in range(0, len(offsets), _PIECE):
        of_piece = offsets[piece : piece + _PIECE]
        found.extend(record.iter_unpack(view[of_piece[0] : of_piece[-1] + located.stride]))
    return found


class PartitionFaults(NamedTuple):
    """What is wrong with a topic's partitions, counted once when the topic is read.

    `error_codes` are the distinct codes but 0; `misses_epoch`: a partition has no epoch to rely on.
    """

    error_codes: frozenset[int]
    leaderless: int
    misses_epoch: bool


def find_faults(buf: bytes, located: LocatedPartitions, layout: TopicLayout) -> PartitionFaults:
    """The faults of a topic: a few slices when it has none."""
    high, low, leader = (_byte_column(buf, located, at) for at in (0, 1, _LEADER_AT))
    codes: frozenset[int] = frozenset()
    none = bytes(len(high))
    if high != none or low != none:
        pairs = set(zip(high, low, strict=True)) - {(0, 0)}
        codes = frozenset(int.from_bytes(pair, "big", signed=True) for pair in pairs)
    if layout.has_reliable_epochs:
        misses_epoch = not _byte_column(buf, located, _EPOCH_AT).isascii()
    else:
        misses_epoch = len(located.offsets) > 0
    # The first byte of a negative int32 is above 0x7F.
    return PartitionFaults(codes, len(leader.translate(None, _ASCII)), misses_epoch)


def _byte_column(buf: bytes, located: LocatedPartitions, at: int) -> bytes:
    """The byte at a place within each partition."""
    if located.stride:
        return buf[located.offsets[0] + at : located.end : located.stride]
    return bytes([buf[offset + at] for offset in located.offsets])
