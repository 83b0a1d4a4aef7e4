"""Many topics go while their records are on their way: nothing of it holds up another topic for long.

The spool over a whole KafkaProducer and brokers in this process, in simulated time.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from service.settings import Settings
from service.spool.spool import spool_config
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST, InProcessBrokers
from tests.support.hostile_load import hostile_producer
from tests.support.hostile_network import HostileNetwork
from tests.support.mock_clock import MockClock
from tests.support.spooling import SpoolRig, record

if TYPE_CHECKING:
    from pathlib import Path

#: More than the batches that Kafka's default buffer.memory has room for, at the spool's batch.size.
GONE: Final = tuple(f"gone-{number}" for number in range(1_000))
#: delivery.timeout.ms, then the wait for the topic, with room for pauses.
UNTIL_SET_ASIDE_MS: Final = 120_000 + 60_000 + 30_000


class Bench:
    """A spool whose delivery and producer are turned together."""

    def __init__(self, folder: Path) -> None:
        self.clock = MockClock(now_ms=1_000_000)
        self.brokers = InProcessBrokers(3, seed=5)
        random = Random(5)
        self.network = HostileNetwork(self.clock, self.brokers, random)
        config = spool_config(Settings(kafka={"bootstrap.servers": f"{HOST}:{FIRST_PORT}"}))
        self.producer = hostile_producer(config, self.clock, self.network, random, (HOST, FIRST_PORT))
        self.rig = SpoolRig(folder, clock=self.clock, producer=self.producer)

    def live(self, ms: int) -> None:
        until_ms = self.clock.now_ms() + ms
        while self.clock.now_ms() < until_ms:
            due_ms = self.rig.spool.delivery.turn(self.clock.now_ms())
            rest_ms = min(due_ms, until_ms) - self.clock.now_ms()
            self.network.after(max(rest_ms, 1), self.network.wakeup)
            self.producer.io_thread.turn()

    def stored(self, topic: str) -> int:
        log = self.brokers.state.logs.get((topic, 0))
        return 0 if log is None else sum(batch.record_count for batch in log.batches)

    @property
    def held_bytes(self) -> int:
        buffer = self.producer.status().buffer
        return buffer.total_bytes - buffer.available_bytes


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """All topics are known, since a record of each was delivered; then of each but one a record is sent."""
    bench = Bench(tmp_path / "spool")
    for topic in ("orders", *GONE):
        bench.brokers.state.controller.create_topic(topic, partitions=1, replication_factor=1)
    bench.rig.spool_in([record("known", topic) for topic in ("orders", *GONE)])
    bench.live(10_000)
    assert bench.rig.spool.entries == 0
    assert bench.held_bytes == 0
    bench.rig.spool_in([record("late", topic) for topic in GONE])
    bench.rig.spool.delivery.turn(bench.clock.now_ms())
    for topic in GONE:
        bench.brokers.state.controller.delete_topic(topic)
    return bench


def test_a_thousand_deleted_topics_do_not_stop_the_delivery_of_another(bench: Bench) -> None:
    for second in range(1, 31):
        bench.rig.spool_in([record(f"{second}")])
        bench.live(1_000)
        assert bench.stored("orders") == 1 + second
    assert bench.rig.spool.entries == len(GONE)


def test_their_records_are_set_aside_and_the_producer_keeps_nothing_of_them(bench: Bench) -> None:
    bench.live(5_000)
    assert bench.held_bytes > 0
    bench.live(UNTIL_SET_ASIDE_MS)
    counted = {labels: counter.value for labels, counter in bench.rig.spool.delivery.set_aside.items()}
    assert Counter({reason: value for (reason,), value in counted.items() if value}) == {
        "topic_gone": len(GONE)
    }
    assert bench.rig.spool.entries == 0
    assert bench.held_bytes == 0
    bench.rig.spool_in([record("afterwards")])
    bench.live(5_000)
    assert bench.stored("orders") == 2
