"""One topic of a snapshot: partitions as response bytes, decoded on demand.

A table is immutable except `use`, which all snapshots share. A topic with unchanged bytes keeps its table
over responses, so a change is visible by identity. If an earlier response had a newer epoch for a partition
(META-11), that partition is copied into the bytes, or, if it does not fit, into the `overlay` over them.
Leaders named by a Produce response go into the overlay, too (META-22). A table with an overlay is never
reused, so a stale response can't restore the old leader. Read by any thread without a lock; created on the
I/O thread.
"""

from __future__ import annotations

from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from client_core.cluster import Node, PartitionInfo, missing_node
from client_core.metadata.topic_layout import (
    LocatedPartitions,
    PartitionFaults,
    PartitionMetadata,
    TopicLayout,
    changed_leaders,
    differing_leaders,
    epoch_at,
    find_faults,
    leader_and_epoch_at,
    leader_at,
    leaders_and_epochs,
    read_partition,
)
from client_core.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from client_core.events import LeadershipRow

#: Partitions that differ from the bytes, by number. None: removed, because a greater epoch was seen.
Overlay = dict[int, PartitionMetadata | None]
_NO_OVERLAY: Final[Mapping[int, PartitionMetadata | None]] = MappingProxyType({})
#: The offset of the topic's name: after the int16 error code.
_NAME_AT: Final = 2


class TopicUse:
    """Whether a topic was looked up since its last expiry check: set by a plain store on any thread."""

    __slots__ = ("touched",)

    def __init__(self) -> None:
        self.touched = False


class TopicTable:
    """The partitions of one topic; implements `cluster.TopicPartitions`."""

    __slots__ = (
        "_topic_id",
        "faults",
        "is_internal",
        "layout",
        "located",
        "name",
        "overlay",
        "partition_count",
        "raw",
        "use",
    )

    def __init__(
        self,
        name: str,
        is_internal: bool,
        raw: bytes,
        located: LocatedPartitions,
        layout: TopicLayout,
        use: TopicUse,
        faults: PartitionFaults | None = None,
    ) -> None:
        self.name = name
        self.is_internal = is_internal
        #: The topic's bytes in the response, from its error code to its tags. Partitions whose epoch was
        #: newer in an earlier response have that response's bytes.
        self.raw = raw
        self.layout = layout
        self.use = use
        self.overlay = _NO_OVERLAY
        self.partition_count = len(located.numbers)
        self.located = located
        #: The partitions in the bytes that have no reliable epoch (META-12), or an error (META-16).
        self.faults = find_faults(raw, located, layout) if faults is None else faults
        self._topic_id: UUID | None = None

    @property
    def topic_id(self) -> UUID | None:
        """The topic's id; None if the broker sent none, or zero. Read from the bytes when first needed."""
        found = self._topic_id
        if found is None:
            found = self._topic_id = self._read_topic_id()
        return None if found is ZERO_UUID else found

    def _read_topic_id(self) -> UUID:
        if not self.layout.has_topic_id:
            return ZERO_UUID
        reader = self.layout.reader(self.raw, _NAME_AT)
        reader.string()
        topic_id = reader.uuid()
        return ZERO_UUID if topic_id == ZERO_UUID else topic_id

    def has_id_of(self, other: TopicTable) -> bool:
        """Returns whether two tables of one topic have the same id; usually by comparing bytes."""
        located = self.located
        if located is other.located and located.stride and self.layout is other.layout:
            first = located.offsets[0]
            if self.raw[:first] == other.raw[:first]:
                return True
        return self.topic_id == other.topic_id

    @property
    def leaderless_count(self) -> int:
        """The number of partitions without a leader."""
        count = self.faults.leaderless
        for number, laid_over in self.overlay.items():
            at = self._offset(number)
            count += laid_over is not None and laid_over.leader_id is None
            count -= at is not None and leader_at(self.raw, at) is None
        return count

    def with_overlay(self, overlay: Overlay) -> TopicTable:
        """Returns the same bytes with another overlay. Raises KeyError if they lack one of its partitions."""
        other = copy(self)
        other.overlay = MappingProxyType(overlay)
        other.partition_count = len(self.located.numbers)
        for number, laid_over in overlay.items():
            if self._offset(number) is None:
                raise KeyError(f"{self.name} has no partition {number}")
            other.partition_count -= laid_over is None
        return other

    def with_partitions_of(self, earlier: TopicTable, numbers: Sequence[int]) -> TopicTable:
        """Returns the same topic, with some partitions from an earlier table (META-11).

        Returns `earlier` itself if the rest is equal. Both must have the same raw numbers, and this table no
        overlay. Tens of thousands of partitions take some milliseconds if all have the same size. So many
        come from a lagging broker that answers after another one failed.
        """
        laid_over = earlier.overlay
        overlay = {number: laid_over[number] for number in numbers if number in laid_over}
        taken = [number for number in numbers if number not in overlay] if overlay else numbers
        stride = self.located.stride
        if stride and stride == earlier.located.stride and self.layout is earlier.layout:
            table = self._with_bytes_of(earlier, taken, stride)
        else:
            overlay.update((number, earlier.metadata(number)) for number in taken)
            table = self
        if overlay:
            table = table.with_overlay(overlay)
        return earlier if table.raw == earlier.raw and table.overlay == earlier.overlay else table

    def _with_bytes_of(self, earlier: TopicTable, numbers: Sequence[int], stride: int) -> TopicTable:
        raw, from_raw = bytearray(self.raw), earlier.raw
        first, from_first = self.located.offsets[0], earlier.located.offsets[0]
        for number in numbers:
            at, from_at = first + number * stride, from_first + number * stride
            raw[at : at + stride] = from_raw[from_at : from_at + stride]
        located, layout = self.located, self.layout
        return TopicTable(self.name, self.is_internal, bytes(raw), located, layout, self.use)

    def __repr__(self) -> str:
        overlay = f" overlay={sorted(self.overlay)}" if self.overlay else ""
        return f"<TopicTable {self.name} partitions={self.partition_count}{overlay}>"

    # -- one partition ---------------------------------------------------------------------------------------

    def _offset(self, partition: int) -> int | None:
        """Returns the partition's offset in `raw`; None if it is not there."""
        numbers = self.located.numbers
        return self.located.offsets[numbers.index(partition)] if partition in numbers else None

    def metadata(self, partition: int) -> PartitionMetadata | None:
        """Returns a partition's metadata, with node ids; None if there is no such partition."""
        if partition in self.overlay:
            return self.overlay[partition]
        at = self._offset(partition)
        return None if at is None else read_partition(self.raw, at, self.layout)

    def partition(self, partition: int, nodes: Mapping[int, Node]) -> PartitionInfo | None:
        """Returns a partition's metadata, with nodes for ids; None if there is no such partition (CLU-03)."""
        found = self.metadata(partition)
        if found is None:
            return None
        return PartitionInfo(
            self.name,
            partition,
            None if found.leader_id is None else nodes.get(found.leader_id),
            found.leader_epoch,
            _resolve(found.replica_ids, nodes),
            _resolve(found.in_sync_replica_ids, nodes),
            _resolve(found.offline_replica_ids, nodes),
            found.error_code,
        )

    def leader_id(self, partition: int) -> int | None:
        """Returns the leader's node id; None without a leader, or without such a partition."""
        if partition in self.overlay:
            laid_over = self.overlay[partition]
            return None if laid_over is None else laid_over.leader_id
        at = self._offset(partition)
        return None if at is None else leader_at(self.raw, at)

    def leader_epoch(self, partition: int) -> int | None:
        """Returns the leader epoch; None without a reliable one, or without such a partition."""
        if partition in self.overlay:
            laid_over = self.overlay[partition]
            return None if laid_over is None else laid_over.leader_epoch
        at = self._offset(partition)
        return None if at is None else epoch_at(self.raw, at, self.layout)

    def leader_id_and_epoch(self, partition: int) -> tuple[int | None, int | None]:
        """Returns `leader_id` and `leader_epoch` by one look-up: the drain asks for both."""
        if partition in self.overlay:
            return self.leader_id(partition), self.leader_epoch(partition)
        numbers = self.located.numbers
        if partition not in numbers:
            return None, None
        return leader_and_epoch_at(self.raw, self.located.offsets[numbers.index(partition)], self.layout)

    # -- all partitions --------------------------------------------------------------------------------------

    @property
    def raw_numbers(self) -> Sequence[int]:
        """The partition numbers in the bytes, ascending, including those that the overlay removes."""
        return self.located.numbers

    @property
    def numbers(self) -> Sequence[int]:
        """The partition numbers, ascending: a range unless partitions are missing."""
        numbers = self.located.numbers
        if self.partition_count == len(numbers):
            return numbers
        left_out = {number for number, laid_over in self.overlay.items() if laid_over is None}
        return tuple(number for number in numbers if number not in left_out)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition, as users of AdminClient count; 0 without partitions.

        During a reassignment partitions differ, and have extra replicas.
        """
        numbers = self.numbers
        first = self.metadata(numbers[0]) if numbers else None
        return 0 if first is None else len(first.replica_ids)

    def differing(self, earlier: TopicTable, numbers: Iterable[int]) -> list[int]:
        """Those of `numbers` whose metadata differs from `earlier`, or is missing there.

        Partitions of one size are compared by bytes, which is much faster than decoding them.
        """
        located, was_located = self.located, earlier.located
        stride = located.stride
        if not stride or stride != was_located.stride or self.layout is not earlier.layout:
            return [number for number in numbers if self.metadata(number) != earlier.metadata(number)]
        raw, was_raw, overlays = self.raw, earlier.raw, self.overlay.keys() | earlier.overlay.keys()
        first, was_first, was_count = located.offsets[0], was_located.offsets[0], len(was_located.numbers)
        found = []
        for number in numbers:
            if number in overlays or number >= was_count:
                same = self.metadata(number) == earlier.metadata(number)
            else:
                at, was_at = first + number * stride, was_first + number * stride
                same = raw[at : at + stride] == was_raw[was_at : was_at + stride]
            if not same:
                found.append(number)
        return found

    def changed_leaders(self, earlier: TopicTable) -> Sequence[LeadershipRow] | None:
        """Returns the leader and epoch changes since an earlier table of this topic, compared as bytes.

        None if bytes can't be compared: a table has an overlay or unreliable epochs, or the partitions'
        numbers or sizes differ.
        """
        located, was = self.located, earlier.located
        is_reported = (
            located.stride
            and was.stride
            and located.numbers == was.numbers
            and self.layout is earlier.layout
            and self.layout.has_reliable_epochs
            and not self.overlay
            and not earlier.overlay
        )
        if not is_reported:
            return None
        differs = differing_leaders(earlier.raw, was, self.raw, located)
        if differs is None:
            return []
        return changed_leaders(earlier.raw, was, self.raw, located, differs, located.numbers)

    def leaders_and_epochs(self) -> list[tuple[int, ...]]:
        """Leader id and epoch of each raw number in order, negative for none. Partitions that the overlay
        removes keep those of the bytes.
        """
        found = leaders_and_epochs(self.raw, self.located, self.layout)
        numbers = self.located.numbers
        for number, laid_over in self.overlay.items():
            if laid_over is not None:
                found[numbers.index(number)] = laid_over.leader_and_epoch
        return found


def _resolve(node_ids: tuple[int, ...], nodes: Mapping[int, Node]) -> tuple[Node, ...]:
    return tuple(nodes.get(node_id) or missing_node(node_id) for node_id in node_ids)
