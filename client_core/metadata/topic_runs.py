"""Reads runs of topics that follow each other: their heads one by one, their partitions in one pass.

For a topic of few partitions, proving a stride (`topic_layout.py`) costs more than its bytes are worth. So
the heads of a run are read first, each topic's end being taken from the lengths in its first partition. Then
the partitions of all topics of one stride are joined and proven by the same columns, and compared with those
of the known tables by columns too. If the proof fails, nothing of the run counts, and the caller reads its
first topic alone. Flexible versions only. Pure; called on the I/O thread by the response reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.metadata.leader_epochs import TopicDifference, compare
from client_core.metadata.topic_layout import (
    NO_FAULTS,
    LocatedPartitions,
    changed_leaders,
    differing_leaders,
    find_faults,
    flexible_stride,
    regular_partitions,
)
from client_core.metadata.topic_table import TopicTable, TopicUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from client_core.metadata.topic_layout import TopicLayout

_FLEXIBLE_HEAD_BYTES: Final = 14
_UUID_BYTES: Final = 16
#: A topic's authorized operations, and no tags.
_REST_BYTES: Final = 5
#: A length below this, plus one, takes one byte.
_ONE_BYTE: Final = 0x80
_ONES: Final = bytes(range(_ONE_BYTE))


#: A topic of a run: its start, its name, its first partition, their number and stride, their end, its end.
Head = tuple[int, bytes, int, int, int, int, int]


def read_heads(
    buf: bytes, at: int, layout: TopicLayout, most: int, next_known: Iterable[bytes]
) -> list[Head]:
    """Returns the heads of at most `most` topics from `at` on, unproven: those of usual topics.

    A run ends before a topic with an error, a long name, or many partitions, and before an unchanged topic:
    `next_known` has the bytes of the known tables from here on. The topic before an unusual one is left out,
    because its end may be wrong.
    """
    heads: list[Head] = []
    id_bytes = _UUID_BYTES if layout.has_topic_id else 0
    known = iter(next_known)
    try:
        while len(heads) < most and not buf.startswith(next(known, b"\xff"), at):
            encoded_size = buf[at + 2]
            internal_at = at + 2 + encoded_size + id_bytes
            count = buf[internal_at + 1] - 1
            first = internal_at + 2
            in_sync_at = first + 4 * buf[first + _FLEXIBLE_HEAD_BYTES] + 11
            offline_at = in_sync_at + 4 * buf[in_sync_at] - 3
            stride = offline_at + 4 * buf[offline_at] - 2 - first
            partitions_end = first + count * stride
            end = partitions_end + _REST_BYTES
            if (
                buf[end - 1]
                or buf[at]
                or buf[at + 1]
                or not 1 < encoded_size < _ONE_BYTE
                or not 0 < count < _ONE_BYTE - 1
            ):
                del heads[-1:]
                break
            name = buf[at + 3 : at + 2 + encoded_size]
            heads.append((at, name, first, count, stride, partitions_end, end))
            at = end
    except IndexError:
        pass  # the rest has not arrived, or is no usual topic
    return heads


class Run(NamedTuple):
    """The topics of a run: tables in order, each known table that one replaces or is, and the differences."""

    tables: list[TopicTable]
    known: list[TopicTable | None]
    differences: dict[str, TopicDifference]
    #: The bytes of new and changed topics.
    new_bytes: int
    end: int


def read_run(
    buf: bytes,
    heads: Sequence[Head],
    layout: TopicLayout,
    known_topics: Mapping[str, TopicTable],
    wanted: set[str] | None,
) -> Run | None:
    """Returns the run's topics; None if they are not as the heads suggest, or not all are `wanted`."""
    try:
        names = [name.decode() for _, name, *_ in heads]
    except UnicodeDecodeError:
        return None
    if len(set(names)) < len(names) or (wanted is not None and not wanted.issuperset(names)):
        return None
    by_stride: dict[int, list[Head]] = {}
    for head in heads:
        by_stride.setdefault(head[4], []).append(head)
    proven = {stride: _prove(buf, of_stride, stride, layout) for stride, of_stride in by_stride.items()}
    if None in proven.values():
        return None
    run = Run([], [], {}, 0, heads[-1][-1])
    new_bytes = 0
    changed: dict[int, list[tuple[TopicTable, TopicTable]]] = {stride: [] for stride in by_stride}
    for name, (start, _, first, count, stride, _, end) in zip(names, heads, strict=True):
        raw = buf[start:end]
        known = known_topics.get(name)
        run.known.append(known)
        if known is not None and known.layout is layout and not known.overlay and known.raw == raw:
            run.tables.append(known)
            continue
        located = regular_partitions(first - start, count, stride)
        faults = NO_FAULTS if proven[stride] else find_faults(raw, located, layout)
        use = TopicUse() if known is None else known.use
        is_internal = buf[first - 2] != 0
        table = TopicTable(name, is_internal, raw, located, layout, use, faults)
        run.tables.append(table)
        new_bytes += end - start
        if known is None:
            continue
        if known.located is located and known.layout is layout and not known.overlay:
            changed[stride].append((known, table))
        else:
            run.differences[name] = compare(known, table)
    for stride, pairs in changed.items():
        _compare_all(pairs, stride, run.differences)
    return run._replace(new_bytes=new_bytes)


def _prove(buf: bytes, heads: Sequence[Head], stride: int, layout: TopicLayout) -> bool | None:
    """Returns whether no partition has a fault; None if one is not where it must be."""
    partitions = b"".join([buf[first:end] for _, _, first, _, _, end, _ in heads])
    count = len(partitions) // stride
    zeros = bytes(count)
    ones = b"".join([_ONES[:partitions] for _, _, _, partitions, _, _, _ in heads])
    if flexible_stride(partitions, 0, count, (zeros, zeros, zeros, ones)) != stride:
        return None
    return find_faults(partitions, _all(count, stride), layout) is NO_FAULTS


def _all(count: int, stride: int) -> LocatedPartitions:
    return LocatedPartitions(range(0, count * stride, stride), range(count), stride, count * stride)


def _compare_all(
    pairs: Sequence[tuple[TopicTable, TopicTable]], stride: int, differences: dict[str, TopicDifference]
) -> None:
    """Compares the leaders of tables with those of their successors of the same layout, by columns."""
    if not pairs:
        return
    before = b"".join([_partitions(known) for known, _ in pairs])
    after = b"".join([_partitions(table) for _, table in pairs])
    together = _all(len(before) // stride, stride)
    differs = differing_leaders(before, together, after, together) or bytes(len(together.numbers))
    numbers = b"".join([_ONES[: table.partition_count] for _, table in pairs])
    rows = changed_leaders(before, together, after, together, differs, numbers)
    start = row = 0
    for known, table in pairs:
        end = start + table.partition_count
        last_row = row + end - start - differs.count(0, start, end)
        differences[table.name] = TopicDifference(known, table, rows[row:last_row])
        start, row = end, last_row


def _partitions(table: TopicTable) -> bytes:
    located = table.located
    return table.raw[located.offsets[0] : located.end]
