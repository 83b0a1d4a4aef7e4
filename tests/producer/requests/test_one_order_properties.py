"""Order, flush and close hold for several callers with little memory and late metadata, whatever they do.

Each caller is a thread with a script of its own: submit, send, flush, cancel. The assertions hold for any
schedule of the threads (ORD-01..03). `producer_machine.py` does the same on one thread with a mock clock,
where each failure can be repeated.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core import IllegalStateError, ProducerClosedError, ProducerRecord, RecordFailure
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from tests.support.live_producer import PATIENCE_MS, PATIENCE_S, Outcome, live_producer, submit

if TYPE_CHECKING:
    from client_core import FutureRecordMetadata, KafkaProducer

CALLERS = 3
STEPS = 60
PARTITIONS = 2
TOPICS = ("orders", "late")


@dataclass
class Caller:
    """A thread that calls the producer, and its results."""

    name: int
    random: Random
    cancels: bool
    next: int = 0
    reported: list[Outcome] = field(default_factory=list)
    futures: list[FutureRecordMetadata] = field(default_factory=list)
    cancelled: list[Outcome] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)

    def run(self, producer: KafkaProducer) -> None:
        with contextlib.suppress(IllegalStateError, ProducerClosedError):  # it is being closed
            for _ in range(STEPS):
                self.step(producer)

    def step(self, producer: KafkaProducer) -> None:
        chosen = self.random.random()
        topic = self.random.choice(TOPICS)
        partition = self.random.choice((None, 0, 1))
        if chosen < 0.5:
            values = [self.value() for _ in range(self.random.randrange(1, 4))]
            self.reported.append(submit(producer, topic, values, partition=partition, create=False))
        elif chosen < 0.94:
            record = ProducerRecord(topic, self.value(), partition=partition)
            self.futures.append(producer.send(record))
        elif chosen < 0.97 and self.cancels and self.reported:
            one = self.reported[-1]
            one.cancel()
            if not one.is_reported:
                self.cancelled.append(one)
        else:
            covered, futures = (
                [one for one in self.reported if one not in self.cancelled],
                tuple(self.futures),
            )
            producer.flush()
            self.not_covered += [repr(one) for one in covered if not one.is_reported]
            self.not_covered += [repr(one) for one in futures if not one.done()]

    def value(self) -> bytes:
        self.next += 1
        return b"%d:%06d:" % (self.name, self.next) + bytes(self.random.choice((10, 10, 300, 900)))


def failed(callers: list[Caller]) -> int:
    """How many records were reported to their callers as failed."""
    outcomes = [
        outcome
        for caller in callers
        for one in caller.reported
        if one not in caller.cancelled or one.is_reported
        for outcome in one.outcomes()
    ]
    futures = [future for caller in callers for future in caller.futures]
    return sum(isinstance(outcome, RecordFailure) for outcome in outcomes) + sum(
        future.exception(0) is not None for future in futures
    )


@pytest.mark.behaviour("ORD-01", "ORD-02", "ORD-03")
@pytest.mark.parametrize("closed_in_ms", [0, 5, PATIENCE_MS])
@pytest.mark.parametrize("seed", range(6))
def test_order_flush_and_report_hold_for_any_schedule(seed: int, closed_in_ms: int) -> None:
    random = Random(f"{seed} {closed_in_ms}")
    cancels = seed % 2 == 1
    callers = [Caller(name, Random(random.random()), cancels) for name in range(CALLERS)]
    settings = {
        "buffer.memory": random.choice((2_000, 4_000, 20_000)),
        "batch.size": random.choice((1, 500, 2_000)),
        "linger.ms": random.choice((0, 3)),
    }
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=PARTITIONS)
        with live_producer(cluster.bootstrap_servers, settings) as producer:
            threads = [threading.Thread(target=caller.run, args=(producer,)) for caller in callers]
            for thread in threads:
                thread.start()
            cluster.wait_for_requests(ApiKey.METADATA, 2 + random.randrange(3))
            cluster.create_topic("late", partitions=PARTITIONS)
            if closed_in_ms == PATIENCE_MS and seed < 3:
                for thread in threads:
                    thread.join(PATIENCE_S)
            else:
                cluster.wait_for_requests(ApiKey.PRODUCE, random.randrange(1, 40))
            report = producer.close(closed_in_ms)
            for thread in threads:
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
            assert [caller.not_covered for caller in callers] == [[]] * CALLERS
            counted = report.failed_earlier + sum(left.records for left in report.unacknowledged)
            if cancels:
                assert counted >= failed(callers)
            else:
                assert counted == failed(callers)
            assert report.flushed == (counted == 0)
            if closed_in_ms == PATIENCE_MS:
                assert report.flushed
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                values = [record.value or b"" for record in cluster.records(topic, partition)]
                for caller in callers:
                    mine = [value for value in values if value.startswith(b"%d:" % caller.name)]
                    assert [value[2:8] for value in mine] == sorted({value[2:8] for value in mine})
