"""Chooses a record's partition: by key hash, or the sticky partition (KIP-794).

A key maps to (murmur2(key) & 0x7fffffff) mod all partitions, with or without a leader (ACC-18). Keyless
records stay on one partition until a batch is filled, so that batches are large. The next partition is drawn
at random from those with a leader: uniformly, or weighted towards short queues when queue lengths differ
(ACC-15, ACC-16). `partition_for_key` is pure, any thread. A BuiltInPartitioner belongs to one topic and is
guarded by that topic's lock. Source: BuiltInPartitioner, Utils.murmur2, Kafka 4.3.

A broker is lost from the end of its connection until it can be sent to again. Kafka needs about nine seconds
to elect new leaders for a dead broker's partitions. Java's partitioner keeps choosing those partitions, so
records wait that long. Here keyless records avoid them, and queued keyless batches that were never sent move
to other partitions. A lost broker is tried every `probe_interval_ms`, without risking a record; while records
wait, metadata is refreshed as often. Records with a key or a partition, and records already sent, wait as in
Java. So do all records when every leader is lost.

An interval of 0 turns this off. Kafka's client has no such option. Only the I/O thread changes the lost
brokers; `node_ids` is replaced as a whole, so any thread may read it.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from itertools import accumulate
from struct import Struct, unpack_from
from typing import TYPE_CHECKING, Final
from weakref import ref

from client_core.clock import FOREVER_MS
from client_core.errors import IllegalArgumentError, IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from random import Random

    from client_core.cluster import Cluster


_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

#: Precompiled readers of little-endian words, by number of words, for keys of up to 127 bytes.
_READ_WORDS: Final = tuple(Struct(f"<{words}I").unpack_from for words in range(32))


_log: Final = logging.getLogger(__name__)


class LostLeaders:
    """The lost brokers, and when to try each again."""

    def __init__(self, probe_interval_ms: int) -> None:
        self._probe_interval_ms = probe_interval_ms
        self._next_probe_ms: dict[int, int] = {}
        #: The present lost ids: the same set object until it changes.
        self.node_ids: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<LostLeaders {sorted(self.node_ids)}>"

    def lost(self, node_id: int, now_ms: int) -> None:
        """Notes that a broker's connection ended, or could not be made."""
        if self._probe_interval_ms <= 0 or node_id in self.node_ids:
            return
        _log.info("Records without a key avoid node %s: it is not connected", node_id)
        self._next_probe_ms[node_id] = now_ms + self._probe_interval_ms
        self.node_ids = frozenset(self._next_probe_ms)

    def found(self, node_id: int) -> None:
        """Notes that a broker can be sent to again, or is removed."""
        if node_id in self.node_ids:
            _log.info(
                "Records without a key no longer avoid node %s: it answers, or is no longer a broker", node_id
            )
            del self._next_probe_ms[node_id]
            self.node_ids = frozenset(self._next_probe_ms)

    def due(self, now_ms: int) -> Sequence[int]:
        """Returns the brokers to try now; each is due again after an interval."""
        due = [node_id for node_id, probe_ms in self._next_probe_ms.items() if probe_ms <= now_ms]
        for node_id in due:
            self._next_probe_ms[node_id] = now_ms + self._probe_interval_ms
        return due

    @property
    def next_probe_ms(self) -> int:
        """Returns when the next try is due; FOREVER_MS if no broker is lost."""
        return min(self._next_probe_ms.values(), default=FOREVER_MS)


def murmur2(data: bytes) -> int:
    """Returns Kafka's 32-bit murmur2 hash, unsigned. Source: Utils.murmur2, which returns it signed."""
    length = len(data)
    word_count = length >> 2
    words = _READ_WORDS[word_count](data) if word_count < 32 else unpack_from(f"<{word_count}I", data)
    h = _SEED ^ length
    for word in words:
        k = word * _MULTIPLIER & _MASK
        # One mask after the exclusive or suffices: the lower 32 bits do not depend on the upper ones.
        h = (h * _MULTIPLIER ^ (k ^ k >> 24) * _MULTIPLIER) & _MASK
    tail = length & 3
    if tail:
        h = (h ^ int.from_bytes(data[length - tail :], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key. An empty key is a key; keyless records use the sticky partitioner."""
    return (murmur2(key) & _POSITIVE) % partition_count


#: How many partitions `move_on` checks: in a topic of thousands an exhaustive search would be slow.
_LOOKED_AT: Final = 64

#: For a partitioner without lost brokers.
NOBODY_LOST: Final = LostLeaders(0)


class PartitionLoad:
    """The queue length of each partition of a topic, at the last `ready`.

    `queue_sizes` has the partitions with batches; all others have none. `partition_ids` are the candidates:
    with a leader, and not excluded as slow (ACC-17). `partition_count` counts all that were ever used. The
    table is only built when a partition is chosen: once per batch, not once per `ready`.
    """

    __slots__ = ("_partition_count", "_partition_ids", "_queue_sizes", "_table")

    def __init__(
        self, queue_sizes: Mapping[int, int], partition_ids: Sequence[int], partition_count: int
    ) -> None:
        self._queue_sizes = queue_sizes
        self._partition_ids = partition_ids
        self._partition_count = partition_count
        self._table: Sequence[int] | None = None

    def cumulative_frequencies(self) -> Sequence[int]:
        """Returns a running sum of `longest queue + 1 - queue`, one entry per candidate.

        Empty if the queues do not matter: all have one length and none is excluded, or one candidate.
        """
        if self._table is None:
            self._table = self._make_table()
        return self._table

    def _make_table(self) -> Sequence[int]:
        if not self._partition_ids or self._partition_count < 2:
            return ()
        sizes = [self._queue_sizes.get(partition, 0) for partition in self._partition_ids]
        longest = max(sizes)
        if min(sizes) == longest and len(sizes) == self._partition_count:
            return ()
        return tuple(accumulate(longest + 1 - size for size in sizes))

    def choose(self, random: int) -> int | None:
        """Returns the partition of a random number: the first with a greater sum. None: choose uniformly."""
        table = self.cumulative_frequencies()
        if not table:
            return None
        return self._partition_ids[bisect_right(table, random % table[-1])]


class BuiltInPartitioner:
    """Chooses partitions for a topic's keyless records. Guarded by the topic's lock."""

    __slots__ = (
        "_available",
        "_available_in",
        "_available_without",
        "_produced_bytes",
        "_random",
        "load",
        "lost",
        "partition",
        "sticky_batch_bytes",
        "topic",
    )

    def __init__(
        self, topic: str, sticky_batch_bytes: int, random: Random, lost: LostLeaders = NOBODY_LOST
    ) -> None:
        """`lost`: brokers whose partitions are avoided, if there are others."""
        if sticky_batch_bytes < 1:
            raise IllegalArgumentError(f"stickyBatchSize must be >= 1 but got {sticky_batch_bytes}")
        self.topic = topic
        self.sticky_batch_bytes = sticky_batch_bytes
        self.load: PartitionLoad | None = None
        self._random = random
        #: The sticky partition; None before the first is chosen.
        self.partition: int | None = None
        self._produced_bytes = 0
        self.lost: Final = lost
        self._available: Sequence[int] = ()
        # A weak reference: a rarely used topic would keep an old snapshot alive.
        self._available_in: ref[Cluster] | None = None
        self._available_without: Collection[int] = ()

    def current_partition(self, cluster: Cluster) -> int:
        """Returns the sticky partition; chooses one if there is none, or if its leader is lost."""
        partition = self.partition
        if partition is None or (self.lost.node_ids and partition not in self.available_partitions(cluster)):
            partition = self.partition = self._next_partition(cluster)
            self._produced_bytes = 0
        return partition

    def existing_partition(self, cluster: Cluster) -> int:
        """Returns the sticky partition; chooses an available one if the topic does not have it any more.

        A topic that was deleted and created again may have fewer partitions than before. Java appends to the
        old one, and its records wait for delivery.timeout.ms.
        """
        partition = self.current_partition(cluster)
        count = cluster.partition_count_for_topic(self.topic)
        if count is not None and partition >= count and (available := self.available_partitions(cluster)):
            partition = self.partition = available[partition % len(available)]
            self._produced_bytes = 0
        return partition

    def update(self, appended_bytes: int, cluster: Cluster, *, enable_switch: bool) -> None:
        """Counts bytes appended to the sticky partition; switches when they are enough (ACC-15).

        With `enable_switch` at batch.size, else at twice that: a partition with an incomplete batch keeps its
        records together, but not for ever.
        """
        self._produced_bytes += appended_bytes
        enough = self.sticky_batch_bytes if enable_switch else 2 * self.sticky_batch_bytes
        if self._produced_bytes >= enough:
            self.partition = self._next_partition(cluster)
            self._produced_bytes = 0

    def move_on(self, cluster: Cluster, is_good: Callable[[int], bool]) -> None:
        """Chooses as usual, then takes the first good partition from there on, if one is near."""
        self.partition = self._next_partition(cluster)
        self._produced_bytes = 0
        available = self.available_partitions(cluster)
        start = available.index(self.partition) if self.partition in available else 0
        for place in range(start, start + min(len(available), _LOOKED_AT)):
            partition = available[place % len(available)]
            if is_good(partition):
                self.partition = partition
                return

    @property
    def bytes_before_forced_switch(self) -> int:
        """Returns how many bytes the sticky partition accepts before a switch, full batches or not."""
        return 2 * self.sticky_batch_bytes - self._produced_bytes

    def available_partitions(self, cluster: Cluster) -> Sequence[int]:
        """Returns the topic's partitions with a known leader, without lost ones unless all are lost.

        Computed once per snapshot and set of lost brokers.
        """
        lost = self.lost.node_ids
        of_cluster = self._available_in
        if of_cluster is None or of_cluster() is not cluster or self._available_without is not lost:
            partitions = cluster.topic_partitions.get(self.topic)
            numbers = () if partitions is None else partitions.numbers
            leaders = {} if partitions is None else {p: partitions.leader_id(p) for p in numbers}
            led = tuple(p for p in numbers if leaders[p] in cluster.nodes_by_id)
            self._available = tuple(p for p in led if leaders[p] not in lost) or led
            self._available_in, self._available_without = ref(cluster), lost
        return self._available

    def _next_partition(self, cluster: Cluster) -> int:
        random = self._random.getrandbits(31)
        chosen = None if self.load is None else self.load.choose(random)
        available = self.available_partitions(cluster)
        # The load is from the last `ready`; a leader may be lost since.
        if chosen is not None and (not self.lost.node_ids or chosen in available):
            return chosen
        if available:
            return available[random % len(available)]
        count = cluster.partition_count_for_topic(self.topic)
        if not count:
            raise IllegalStateError(f"topic {self.topic} has no partitions to choose from")
        return random % count
