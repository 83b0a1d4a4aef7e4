"""The spool over a whole KafkaProducer and brokers in this process, in simulated time.

    bench = SpoolBench(tmp_path / "spool")
    bench.brokers.state.controller.create_topic("orders", partitions=1, replication_factor=1)
    bench.rig.spool_in([record("a")])
    bench.live(1_000)

No thread runs. `live` turns the delivery and the producer until so much time has passed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from service.base.settings import Settings
from service.spool.spool import spool_config
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST, InProcessBrokers
from tests.support.hostile_load import hostile_producer
from tests.support.hostile_network import HostileNetwork
from tests.support.mock_clock import MockClock
from tests.support.spooling import SpoolRig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from client_core.testing.partition_log import StoredRecord


class SpoolBench:
    """A spool whose delivery and producer are turned together."""

    def __init__(self, folder: Path, *, seed: int = 5, kafka: Mapping[str, str] | None = None) -> None:
        """`kafka`: settings of the sidecar, by Kafka's names."""
        self.clock = MockClock(now_ms=1_000_000)
        self.brokers = InProcessBrokers(3, seed=seed)
        random = Random(seed)
        self.network = HostileNetwork(self.clock, self.brokers, random)
        config = spool_config(Settings(kafka={"bootstrap.servers": f"{HOST}:{FIRST_PORT}", **(kafka or {})}))
        self.producer = hostile_producer(
            config, self.clock, self.network, random, (HOST, FIRST_PORT), whole_requests=True
        )
        self.rig = SpoolRig(folder, clock=self.clock, producer=self.producer)

    def live(self, ms: int) -> None:
        until_ms = self.clock.now_ms() + ms
        while self.clock.now_ms() < until_ms:
            due_ms = self.rig.spool.delivery.turn(self.clock.now_ms())
            rest_ms = min(due_ms, until_ms) - self.clock.now_ms()
            self.network.after(max(rest_ms, 1), self.network.wakeup)
            self.producer.io_thread.turn()

    def stored(self, topic: str) -> int:
        return len(self.records(topic))

    def records(self, topic: str, partition: int = 0) -> Sequence[StoredRecord]:
        """What brokers have of a partition, in order."""
        log = self.brokers.state.logs.get((topic, partition))
        return () if log is None else log.records(partition)

    @property
    def held_bytes(self) -> int:
        buffer = self.producer.status().buffer
        return buffer.total_bytes - buffer.available_bytes
