"""A metadata refresh, response bytes to own structure: ours against kafka-python, thread CPU.

Shape: topics of a hundred partitions, three brokers, three replicas. "first" begins with an empty cache,
"again" applies the same answer once more, "moved" one in which 1 % of the partitions have another leader and
a greater epoch.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka.cluster import ClusterMetadata
from kafka.protocol.metadata import MetadataResponse as KafkaPythonResponse

from benchmarks.measure import Sample, goal, in_turns, median, report, table
from client_core.clock import SystemClock
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

VERSION: Final = 12
PARTITIONS_PER_TOPIC: Final = 100
SIZES: Final = (1_000, 10_000, 100_000)


def topic_name(number: int) -> str:
    return f"topic-{number:05d}"


def response(partitions: int, moved: Collection[int] = ()) -> bytes:
    """A Metadata answer as a broker would send it; `moved` are numbers over all partitions."""
    brokers = tuple(
        MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092, rack=None) for n in (1, 2, 3)
    )
    topics = tuple(
        MetadataResponseTopic(
            error_code=0,
            name=topic_name(t),
            topic_id=UUID(int=t + 1),
            is_internal=False,
            partitions=tuple(_partition(t, p, moved) for p in range(PARTITIONS_PER_TOPIC)),
        )
        for t in range(partitions // PARTITIONS_PER_TOPIC)
    )
    return MetadataResponse(brokers=brokers, cluster_id="bench", controller_id=1, topics=topics).encode(
        VERSION
    )


def _partition(topic: int, partition: int, moved: Collection[int]) -> MetadataResponsePartition:
    step = 1 if topic * PARTITIONS_PER_TOPIC + partition in moved else 0
    return MetadataResponsePartition(
        error_code=0,
        partition_index=partition,
        leader_id=(topic + partition + step) % 3 + 1,
        leader_epoch=5 + step,
        replica_nodes=(1, 2, 3),
        isr_nodes=(1, 2, 3),
        offline_replicas=(),
    )


def cpu_of(run: Callable[[], object], repeats: int = 1) -> Sample:
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(repeats):
        run()
    return Sample(repeats, time.perf_counter() - wall, time.thread_time() - cpu)


class Ours:
    """The library's own way of a response: the builder reads it, the metadata takes it."""

    def __init__(self, partitions: int) -> None:
        config = MetadataConfig(
            refresh_backoff_ms=100, refresh_backoff_max_ms=1_000, max_age_ms=300_000, max_idle_ms=300_000
        )
        self.metadata = ProducerMetadata(config, Random(1), SystemClock())
        self.metadata.bootstrap([("broker-1", 9092)])
        self.now_ms = 0
        for t in range(partitions // PARTITIONS_PER_TOPIC):
            self.metadata.add(topic_name(t), self.now_ms)

    def apply(self, body: bytes) -> None:
        self.now_ms += 1_000
        self.metadata.request_update(False, reason="manual")
        asked = self.metadata.new_metadata_request_and_version(self.now_ms)
        answer = asked.builder.decode_response(body, VERSION)
        self.metadata.update(asked.request_version, answer, asked.is_partial, self.now_ms)


class KafkaPython:
    """kafka-python's way of the same."""

    def __init__(self) -> None:
        self.cluster = ClusterMetadata(bootstrap_servers=["broker-1:9092"])

    def apply(self, body: bytes) -> None:
        self.cluster.update_metadata(KafkaPythonResponse.decode(body, version=VERSION))


def measure(partitions: int) -> dict[str, list[Sample]]:
    plain = response(partitions)
    moved = response(partitions, frozenset(Random(5).sample(range(partitions), partitions // 100)))
    ours, theirs = Ours(partitions), KafkaPython()
    repeats = max(1, 10_000 // partitions)

    def ours_first() -> Sample:
        fresh = Ours(partitions)
        return cpu_of(lambda: fresh.apply(plain))

    def ours_moved() -> Sample:
        # There and back again would be refused: epochs only grow. So each round has a cache of its own.
        fresh = Ours(partitions)
        fresh.apply(plain)
        return cpu_of(lambda: fresh.apply(moved))

    ours.apply(plain)
    theirs.apply(plain)
    return in_turns(
        {
            "ours, first": ours_first,
            "ours, again": lambda: cpu_of(lambda: ours.apply(plain), repeats),
            "ours, 1 % moved": ours_moved,
            "kafka-python, first": lambda: cpu_of(lambda: KafkaPython().apply(plain)),
            "kafka-python, again": lambda: cpu_of(lambda: theirs.apply(plain), repeats),
        }
    )


def main() -> None:
    goals = []
    for partitions in SIZES:
        cpu_ms = {
            name: median(samples, lambda s: s.cpu_us_per_operation) / 1_000
            for name, samples in measure(partitions).items()
        }
        table(f"refresh of {partitions:,} partitions", ("what", "CPU ms"), list(cpu_ms.items()))
        if partitions == 10_000:
            goals = [
                goal(
                    f"refresh of 10k partitions, {again}, CPU against kafka-python",
                    ours=cpu_ms[f"ours, {again}"],
                    peer=cpu_ms[f"kafka-python, {again}"],
                    at_most=bound,
                )
                for again, bound in (("first", 0.15), ("again", 0.02))
            ]
    report(goals)


if __name__ == "__main__":
    main()
