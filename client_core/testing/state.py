"""The fake brokers' shared state: controller, caches, logs, and a test's orders.

Guarded by the cluster's lock; the modules of the APIs take it as an argument and hold no state of their
own.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_core.testing.controller import Controller
from client_core.testing.partition_log import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from client_core.testing.metadata_cache import MetadataCache
    from client_core.testing.produce import ProduceFault
    from client_core.testing.sasl import SaslDemand


@dataclass(slots=True)
class ClusterState:
    """Mutable; the cluster's lock guards it."""

    random: Random
    cluster_id: str
    auto_create: bool = False
    auto_create_partitions: int = 1
    replication_factor: int = 1
    #: Limit of a partition's bytes; None: no limit.
    retain_bytes: int | None = None
    controller: Controller = field(init=False)
    caches: dict[int, MetadataCache] = field(default_factory=dict)
    logs: dict[tuple[str, int], PartitionLog] = field(default_factory=dict)
    #: Topics that a client may not describe; not write to; not describe the configs of.
    undescribable: set[str] = field(default_factory=set)
    unwritable: set[str] = field(default_factory=set)
    unconfigurable: set[str] = field(default_factory=set)
    produce_faults: list[ProduceFault] = field(default_factory=list)
    #: Actions right before a partition's batch is checked.
    meanwhile: list[tuple[str, int, Callable[[], None]]] = field(default_factory=list)
    init_producer_id_errors: deque[int] = field(default_factory=deque)
    #: The required authentication; None: none is possible.
    sasl: SaslDemand | None = None
    producer_ids_given: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.controller = Controller(self.random)

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Returns the log of a partition, empty at first."""
        found = self.logs.get((topic, partition))
        if found is None:
            found = self.logs[topic, partition] = PartitionLog(self.retain_bytes)
        return found

    def create_missing_topic(self, name: str) -> None:
        """Creates a topic like auto.create.topics.enable."""
        if self.controller.topic(name) is None:
            self.controller.create_topic(
                name, partitions=self.auto_create_partitions, replication_factor=self.replication_factor
            )

    def take_produce_fault(self, topic: str, partition: int) -> ProduceFault | None:
        """Returns the test's next error for this partition and counts it down."""
        for fault in self.produce_faults:
            if fault.is_meant(topic, partition):
                fault.times_left -= 1
                return fault
        return None

    def take_meanwhile(self, topic: str, partition: int) -> Callable[[], None] | None:
        """Returns the test's action for this moment and removes it."""
        for order in self.meanwhile:
            if order[:2] == (topic, partition):
                self.meanwhile.remove(order)
                return order[2]
        return None

    def wall_ms(self) -> int:
        """Returns the brokers' wall clock, for timestamps."""
        return time.time_ns() // 1_000_000
