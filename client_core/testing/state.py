"""What the fake brokers share: the controller, each broker's cache, the logs, and what a test has ordered.

Guarded by the cluster's lock; the answer modules (one per API) take it as an argument and hold no state of
their own.
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
    #: Bytes that a partition keeps; None: all.
    retain_bytes: int | None = None
    controller: Controller = field(init=False)
    caches: dict[int, MetadataCache] = field(default_factory=dict)
    logs: dict[tuple[str, int], PartitionLog] = field(default_factory=dict)
    #: Topics that a client may not see, or may see and not write to, or not see the configs of.
    undescribable: set[str] = field(default_factory=set)
    unwritable: set[str] = field(default_factory=set)
    unconfigurable: set[str] = field(default_factory=set)
    produce_faults: list[ProduceFault] = field(default_factory=list)
    #: What happens right before a partition's batch is looked at.
    meanwhile: list[tuple[str, int, Callable[[], None]]] = field(default_factory=list)
    init_producer_id_errors: deque[int] = field(default_factory=deque)
    #: What every connection must prove; None: nothing, and nobody may try.
    sasl: SaslDemand | None = None
    producer_ids_given: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.controller = Controller(self.random)

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition, empty at first."""
        found = self.logs.get((topic, partition))
        if found is None:
            found = self.logs[topic, partition] = PartitionLog(self.retain_bytes)
        return found

    def create_missing_topic(self, name: str) -> None:
        """Makes a topic as auto.create.topics.enable has it."""
        if self.controller.topic(name) is None:
            self.controller.create_topic(
                name, partitions=self.auto_create_partitions, replication_factor=self.replication_factor
            )

    def take_produce_fault(self, topic: str, partition: int) -> ProduceFault | None:
        """The next error that the test ordered for this partition; counts it down."""
        for fault in self.produce_faults:
            if fault.is_meant(topic, partition):
                fault.times_left -= 1
                return fault
        return None

    def take_meanwhile(self, topic: str, partition: int) -> Callable[[], None] | None:
        """What the test ordered to happen now."""
        for order in self.meanwhile:
            if order[:2] == (topic, partition):
                self.meanwhile.remove(order)
                return order[2]
        return None

    def wall_ms(self) -> int:
        """The calendar of the brokers, for timestamps."""
        return time.time_ns() // 1_000_000
