"""Finds partitions in a Metadata response's bytes, checked before use.

One partition, fields in order (`epoch` from version 7, `offline` from 5; in versions 1-8 the counts are
int32, without tags):

    int16 error, int32 number, int32 leader, [int32 epoch], n replicas, n in-sync, [n offline], tags
    where n x = uvarint n + 1, int32 * n

Partitions of one topic mostly have the same number of replicas, so they have a fixed stride. Strided slices
check in C that every count is equal and that the numbers are 0, 1, 2, ... While a broker is down the in-sync
and offline counts vary, but their sum and the stride stay: masks check that. Other layouts are walked. Pure;
called on the I/O thread by the response reader, and on any thread by partition look-ups.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import IllegalArgumentError, SchemaError, TruncatedError
from client_core.protocol.primitives import FlexibleReader, Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from client_core.events import LeadershipRow

_WHAT: Final = "MetadataResponse"
#: Kafka sets no limit. A broker creates at most 10,000 partitions at once; the largest known topics have some
#: tens of thousands.
MOST_PARTITIONS: Final = 200_000
#: Each replica is on its own broker, so the limit is that of brokers.
MOST_REPLICAS: Final = 10_000
OLDEST_VERSION: Final = 1
LATEST_VERSION: Final = 13

_INT32: Final = struct.Struct(">i")
_ERROR_NUMBER_LEADER: Final = struct.Struct(">hii")
_LEADER_AND_EPOCH: Final = struct.Struct(">ii")
_NUMBER_AT: Final = 2
_LEADER_AT: Final = 6
_EPOCH_AT: Final = 10
_FLEXIBLE_HEAD_BYTES: Final = 14
#: For fewer partitions, proving a stride costs more than walking them.
_FEWEST_FOR_A_STRIDE: Final = 8
_ZEROS: Final = bytes(256)
_ASCII: Final = bytes(range(128))
_NO_CODES: Final[frozenset[int]] = frozenset()


class PartitionMetadata(NamedTuple):
    """One partition of the response: node ids, not nodes. None: no leader, or no reliable epoch."""

    error_code: int
    leader_id: int | None
    leader_epoch: int | None
    replica_ids: tuple[int, ...]
    in_sync_replica_ids: tuple[int, ...]
    offline_replica_ids: tuple[int, ...]

    @property
    def leader_and_epoch(self) -> tuple[int, int]:
        """Both in wire form: negative for none."""
        return (
            -1 if self.leader_id is None else self.leader_id,
            -1 if self.leader_epoch is None else self.leader_epoch,
        )


class LocatedPartitions(NamedTuple):
    """The offsets of a topic's partitions: `offsets[i]` is that of partition `numbers[i]`, ascending.

    Both are ranges if the layout is regular. `end` is the offset after the last partition; `stride` is 0 if
    the partitions had to be walked.
    """

    offsets: Sequence[int]
    numbers: Sequence[int]
    stride: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """The fields of a version's topics. Versions with equal fields share one object.

    Epochs are used only from version 9: before, a broker may send a stale one during a reassignment
    (META-11). Source: MetadataResponse.hasReliableLeaderEpochs, Kafka 4.3.
    """

    has_offline_replicas: bool
    has_authorized_operations: bool
    has_topic_id: bool
    #: Varint lengths and tags; also reliable epochs.
    is_flexible: bool
    #: Error, number, leader and epoch: the bytes before the replicas.
    head_bytes: int
    #: A partition without replicas and tags.
    fewest_partition_bytes: int

    @property
    def has_reliable_epochs(self) -> bool:
        return self.is_flexible

    @property
    def replica_lists(self) -> int:
        return 3 if self.has_offline_replicas else 2

    def reader(self, buf: bytes, at: int, to_come: int = 0) -> Reader:
        """Returns a reader for this layout at an offset."""
        form = FlexibleReader if self.is_flexible else Reader
        return form(buf, at, _WHAT, to_come)


def layout_of(version: int) -> TopicLayout:
    """Returns the layout of a Metadata response's topics at a version.

    Raises IllegalArgumentError for an unsupported version.
    """
    if not OLDEST_VERSION <= version <= LATEST_VERSION:
        raise IllegalArgumentError(f"Metadata version {version} is not supported")
    return _layout(version >= 5, version >= 7, version >= 8, version >= 9, version >= 10)


@lru_cache(maxsize=8)
def _layout(offline: bool, epoch: bool, operations: bool, flexible: bool, topic_id: bool) -> TopicLayout:
    head_bytes = 14 if epoch else 10
    counts_bytes = (3 if offline else 2) * (1 if flexible else 4)
    return TopicLayout(
        offline, operations, topic_id, flexible, head_bytes, head_bytes + counts_bytes + flexible
    )


# -- look-ups ------------------------------------------------------------------------------------------------


def locate_partitions(
    buf: bytes, first: int, count: int, layout: TopicLayout, start: int = 0, to_come: int = 0
) -> LocatedPartitions:
    """Locates `count` partitions from `first` on; offsets are relative to `start`, the topic's beginning.

    Raises SchemaError if they are malformed or exceed a limit, and TruncatedError if some are in the
    `to_come` bytes that are not in `buf` yet.
    """
    left = len(buf) - first + to_come
    if count * layout.fewest_partition_bytes > left:
        raise SchemaError(f"{_WHAT}: {count} partitions do not fit in the {left} bytes left")
    if count > MOST_PARTITIONS:
        raise SchemaError(f"{_WHAT}: {count} partitions of one topic, more than {MOST_PARTITIONS}")
    if count == 0:
        return LocatedPartitions(range(0), range(0), 0, first - start)
    if to_come and count * (_skip_partition(buf, first, layout, to_come) - first) > len(buf) - first:
        raise TruncatedError(f"{_WHAT}: {count} partitions are not complete yet")  # if they are of one size
    stride = _stride(buf, first, count, layout)
    if stride is None:
        return _walk(buf, first, count, layout, start, to_come)
    return regular_partitions(first - start, count, stride)


@lru_cache(maxsize=4096)
def regular_partitions(first: int, count: int, stride: int) -> LocatedPartitions:
    """Returns the offsets of partitions 0 to `count` - 1 at a stride. Topics that are alike share it."""
    end = first + count * stride
    return LocatedPartitions(range(first, end, stride), range(count), stride, end)


def _stride(buf: bytes, first: int, count: int, layout: TopicLayout) -> int | None:
    """Returns the proven stride of the partitions 0 to `count` - 1; None if it can't be proven."""
    if layout.is_flexible:
        return flexible_stride(buf, first, count)
    return _classic_stride(buf, first, count, layout)


def pass_over_partitions(
    buf: bytes, at: int, count: int, layout: TopicLayout, to_come: int = 0
) -> tuple[int, int]:
    """Skips partitions; returns how many of `count` are left, and the offset after the skipped ones.

    Decodes nothing. Some are left only if they are in the `to_come` bytes that have not arrived.
    """
    if count >= _FEWEST_FOR_A_STRIDE:
        stride = _stride(buf, at, count, layout)
        if stride is not None:
            return 0, at + count * stride
    while count:
        try:
            at = _skip_partition(buf, at, layout, to_come)
        except TruncatedError:
            break
        count -= 1
    return count, at


def flexible_stride(buf: bytes, first: int, count: int, numbers: Iterable[bytes] | None = None) -> int | None:
    """Returns the proven stride of all partitions; None if there is none, or it can't be proven.

    `numbers` has the four bytes of the partitions' numbers as columns, most significant first; None: they are
    0, 1, 2, ... Lengths are one byte each, the count plus one; `*_at` is the offset in the first partition.
    """
    try:
        replicas_at = first + _FLEXIBLE_HEAD_BYTES
        replicas = buf[replicas_at]
        in_sync_at = replicas_at + 4 * replicas - 3
        in_sync = buf[in_sync_at]
        offline_at = in_sync_at + 4 * in_sync - 3
        offline = buf[offline_at]
        tags_at = offline_at + 4 * offline - 3
    except IndexError:
        return None
    if not (0 < replicas < 0x80 and in_sync > 0 and offline > 0 and in_sync + offline < 0x80):
        return None
    stride = tags_at + 1 - first
    end = first + count * stride
    if end > len(buf) or not _numbers_are(buf, first, end, stride, numbers or _number_columns(count)):
        return None
    if buf[replicas_at:end:stride] != buf[replicas_at : replicas_at + 1] * count:
        return None
    if buf[tags_at:end:stride] != bytes(count):
        return None  # tags are allowed, but never sent
    lengths = buf[in_sync_at:end:stride]
    return stride if _lists_compensate(buf, in_sync_at, end, stride, lengths, in_sync + offline) else None


def _lists_compensate(
    buf: bytes, in_sync_at: int, end: int, stride: int, lengths: bytes, together: int
) -> bool:
    """Returns whether each partition's in-sync and offline lengths add up to `together`.

    `lengths` has the in-sync lengths, one byte per partition.
    """
    for in_sync in set(lengths):
        if not 0 < in_sync < together:
            return False
        offline = buf[in_sync_at + 4 * in_sync - 3 : end : stride]
        expected = bytes((together - in_sync,)) * len(lengths)
        concerned = lengths.translate(_ZEROS[:in_sync] + b"\xff" + _ZEROS[in_sync + 1 :])
        if (_as_int(offline) ^ _as_int(expected)) & _as_int(concerned):
            return False
    return True


def _as_int(column: bytes) -> int:
    return int.from_bytes(column, "little")


def _classic_stride(buf: bytes, first: int, count: int, layout: TopicLayout) -> int | None:
    """Like flexible_stride, for versions with four-byte lengths; proves only equal lengths."""
    lengths_at = []
    at = first + layout.head_bytes
    for _ in range(layout.replica_lists):
        lengths_at.append(at)
        length = int.from_bytes(buf[at : at + 4], "big")
        if length > MOST_REPLICAS:
            return None  # the walk raises the error
        at += 4 + 4 * length
    stride = at - first
    end = first + count * stride
    if end > len(buf) or not _numbers_are(buf, first, end, stride, _number_columns(count)):
        return None
    for length_at in lengths_at:
        for k in range(length_at, length_at + 4):
            if buf[k:end:stride] != buf[k : k + 1] * count:
                return None
    return stride


def _numbers_are(buf: bytes, first: int, end: int, stride: int, numbers: Iterable[bytes]) -> bool:
    """Returns whether the partition numbers are these, in this order."""
    at = first + _NUMBER_AT
    for expected in numbers:
        if buf[at:end:stride] != expected:
            return False
        at += 1
    return True


@lru_cache(maxsize=32)
def _number_columns(count: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Returns the four bytes of the numbers 0 to count - 1, one column for each byte, most significant first.

    The first column is all zeros, since MOST_PARTITIONS fits in three bytes.
    """

    def column(run: int) -> bytes:
        """Returns the byte values 0, 1, 2, ..., each `run` times."""
        return b"".join(bytes((value & 0xFF,)) * min(run, count) for value in range(count // run + 1))[:count]

    ones = (bytes(range(256)) * (count // 256 + 1))[:count]
    return bytes(count), column(1 << 16), column(1 << 8), ones


def _walk(
    buf: bytes, first: int, count: int, layout: TopicLayout, start: int, to_come: int
) -> LocatedPartitions:
    """Locates the partitions one by one; of two with the same number the later one counts."""
    found: dict[int, int] = {}
    at = first
    for _ in range(count):
        behind = _skip_partition(buf, at, layout, to_come)
        found[_INT32.unpack_from(buf, at + _NUMBER_AT)[0]] = at
        at = behind
    numbers = sorted(found)
    if numbers[0] < 0:
        raise SchemaError(f"{_WHAT}: partition number {numbers[0]} is negative")
    is_dense = numbers[-1] == len(numbers) - 1
    offsets = array("I", [found[number] - start for number in numbers])
    return LocatedPartitions(offsets, range(len(numbers)) if is_dense else tuple(numbers), 0, at - start)


def _skip_partition(buf: bytes, start: int, layout: TopicLayout, to_come: int) -> int:
    """Returns the offset after the partition that begins at `start`."""
    at = start + layout.head_bytes
    if layout.is_flexible:
        try:
            for _ in range(layout.replica_lists):
                encoded = buf[at]
                if not 0 < encoded < 0x80:
                    return _skip_unusual_partition(buf, start, layout, to_come)
                at += 4 * encoded - 3  # the count's byte, and encoded - 1 replicas
            if buf[at] == 0:
                return at + 1
        except IndexError:
            return _skip_unusual_partition(buf, start, layout, to_come)  # which raises the error
    return _skip_unusual_partition(buf, start, layout, to_come)


def _skip_unusual_partition(buf: bytes, start: int, layout: TopicLayout, to_come: int) -> int:
    reader = layout.reader(buf, start, to_come)
    reader.take(layout.head_bytes)
    for _ in range(layout.replica_lists):
        count = reader.passed_array_length(4)
        if count > MOST_REPLICAS:
            raise reader.wrong(f"{count} replicas of one partition, more than {MOST_REPLICAS}")
        reader.take(4 * count)
    reader.skip_tags()
    return reader.pos


# -- reading -------------------------------------------------------------------------------------------------


def read_partition(buf: bytes, at: int, layout: TopicLayout) -> PartitionMetadata:
    """Returns the partition at a located offset."""
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
    """Returns the leader id of the partition at a located offset."""
    leader_id: int = _INT32.unpack_from(buf, at + _LEADER_AT)[0]
    return leader_id if leader_id >= 0 else None


def epoch_at(buf: bytes, at: int, layout: TopicLayout) -> int | None:
    """Returns the leader epoch of the partition at a located offset, if reliable (META-11)."""
    if not layout.has_reliable_epochs:
        return None
    leader_epoch: int = _INT32.unpack_from(buf, at + _EPOCH_AT)[0]
    return leader_epoch if leader_epoch >= 0 else None


def leader_and_epoch_at(buf: bytes, at: int, layout: TopicLayout) -> tuple[int | None, int | None]:
    """Returns `leader_at` and `epoch_at`."""
    leader_id: int
    leader_epoch: int
    leader_id, leader_epoch = _LEADER_AND_EPOCH.unpack_from(buf, at + _LEADER_AT)
    is_reliable = layout.is_flexible and leader_epoch >= 0
    return leader_id if leader_id >= 0 else None, leader_epoch if is_reliable else None


def leaders_and_epochs(buf: bytes, located: LocatedPartitions, layout: TopicLayout) -> list[tuple[int, ...]]:
    """Returns leader id and epoch of each partition in order, negative for none, to compare at once."""
    offsets = located.offsets
    if not layout.has_reliable_epochs:
        return [(_INT32.unpack_from(buf, offset + _LEADER_AT)[0], -1) for offset in offsets]
    return [_LEADER_AND_EPOCH.unpack_from(buf, offset + _LEADER_AT) for offset in offsets]


def differing_leaders(
    was_buf: bytes, was: LocatedPartitions, buf: bytes, located: LocatedPartitions
) -> bytes | None:
    """Returns a byte for each partition, not 0 if its leader or epoch differs; None if none differs.

    When a broker fails, this takes most of the time. The eight bytes are compared column by column in C, so
    that other threads wait only briefly. Both layouts must have a stride and the same numbers.
    """
    differs = 0
    first, was_first = located.offsets[0] + _LEADER_AT, was.offsets[0] + _LEADER_AT
    for k in range(_LEADER_AND_EPOCH.size):
        column = buf[first + k : located.end : located.stride]
        was_column = was_buf[was_first + k : was.end : was.stride]
        if column != was_column:
            differs |= _as_int(column) ^ _as_int(was_column)
    return differs.to_bytes(len(located.numbers), "little") if differs else None


def changed_leaders(
    was_buf: bytes,
    was: LocatedPartitions,
    buf: bytes,
    located: LocatedPartitions,
    differs: bytes,
    numbers: Sequence[int],
) -> list[LeadershipRow]:
    """Returns the changes of the partitions whose byte in `differs` is not 0; only these are read.

    `numbers` has the number of each partition in its topic.
    """
    first, was_first = located.offsets[0] + _LEADER_AT, was.offsets[0] + _LEADER_AT
    stride, was_stride = located.stride, was.stride
    read = _LEADER_AND_EPOCH.unpack_from
    return [
        (number, read(was_buf, was_first + n * was_stride), read(buf, first + n * stride))
        for number, n in zip(compress(numbers, differs), compress(located.numbers, differs), strict=True)
    ]


class PartitionFaults(NamedTuple):
    """The errors of a topic's partitions, counted once when the topic is read.

    `error_codes` are the distinct codes except 0; `misses_epoch`: a partition has no reliable epoch.
    """

    error_codes: frozenset[int]
    leaderless: int
    misses_epoch: bool


#: Most topics have none: they share this object.
NO_FAULTS: Final = PartitionFaults(_NO_CODES, 0, False)


def find_faults(buf: bytes, located: LocatedPartitions, layout: TopicLayout) -> PartitionFaults:
    """Returns the faults of a topic: a few slices when it has none."""
    high, low = _byte_column(buf, located, 0), _byte_column(buf, located, 1)
    codes: frozenset[int] = _NO_CODES
    if high.strip(b"\0") or low.strip(b"\0"):
        pairs = set(zip(high, low, strict=True)) - {(0, 0)}
        codes = frozenset(int.from_bytes(pair, "big", signed=True) for pair in pairs)
    if layout.has_reliable_epochs:
        misses_epoch = not _byte_column(buf, located, _EPOCH_AT).isascii()
    else:
        misses_epoch = len(located.offsets) > 0
    # The first byte of a negative int32 is above 0x7F: no epoch, or no leader.
    leaders = _byte_column(buf, located, _LEADER_AT)
    leaderless = 0 if leaders.isascii() else len(leaders.translate(None, _ASCII))
    if codes or leaderless or misses_epoch:
        return PartitionFaults(codes, leaderless, misses_epoch)
    return NO_FAULTS


def _byte_column(buf: bytes, located: LocatedPartitions, at: int) -> bytes:
    """Returns the byte at offset `at` of each partition."""
    if located.stride:
        return buf[located.offsets[0] + at : located.end : located.stride]
    return bytes([buf[offset + at] for offset in located.offsets])
