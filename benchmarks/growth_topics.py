"""Measures growth over known topics in process: look-ups in the prepared table, refreshes, and memory.

The response bytes have a broker's format. Parsing and answering are the sidecar's code. CPU is that of this
thread.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from client_core import SystemClock
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from service.lookup.lookup_table import LookupTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core import Clock, MetadataCache
    from service.base.producer_protocol import Producer

VERSION: Final = 13
PARTITIONS_PER_TOPIC: Final = 3
BROKERS: Final = (1, 2, 3)
#: The number of topics that are looked up at each size.
ASKED: Final = 10
LOOK_UPS: Final = 50_000


def topic_name(number: int) -> str:
    return f"topic-{number:06d}"


def asked(topics: int) -> list[str]:
    """Returns the names to look up, spread over the known topics."""
    return [topic_name(number * topics // ASKED) for number in range(ASKED)]


def response(topics: int) -> bytes:
    """Returns a Metadata response with `topics` topics."""
    brokers = tuple(
        MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092, rack=None) for n in BROKERS
    )
    found = tuple(
        MetadataResponseTopic(
            name=topic_name(number),
            topic_id=UUID(int=number + 1),
            partitions=tuple(_partition(number, partition) for partition in range(PARTITIONS_PER_TOPIC)),
        )
        for number in range(topics)
    )
    return MetadataResponse(brokers=brokers, cluster_id="growth", controller_id=1, topics=found).encode(
        VERSION
    )


def _partition(topic: int, partition: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0,
        partition_index=partition,
        leader_id=BROKERS[(topic + partition) % len(BROKERS)],
        leader_epoch=5,
        replica_nodes=BROKERS,
        isr_nodes=BROKERS,
        offline_replicas=(),
    )


class Known:
    """The client's metadata of many topics, and a table over it: the parts of a Producer that they need."""

    def __init__(self, topics: int) -> None:
        self.clock: Clock = SystemClock()
        self._metadata = ProducerMetadata(MetadataConfig(), Random(1), self.clock)
        self._metadata.bootstrap([("broker-1", 9092)])
        for number in range(topics):
            self._metadata.add(topic_name(number), self.clock.now_ms())
        self.table = LookupTable(cast("Producer", self), "growth")

    @property
    def cache(self) -> MetadataCache:
        return self._metadata.answered_cache

    def refresh(self, body: bytes) -> None:
        now_ms = self.clock.now_ms()
        self._metadata.request_update(False, reason="manual")
        request = self._metadata.new_metadata_request_and_version(now_ms)
        answer = request.builder.decode_response(body, VERSION)
        self._metadata.update(request.request_version, answer, request.is_partial, now_ms)

    def look_up(self, paths: Sequence[bytes], count: int) -> None:
        find = self.table.find
        for _ in range(count // len(paths)):
            for path in paths:
                find(path)


def measure_topics(sizes: Sequence[int], rounds: int) -> dict[str, dict[int, list[float]]]:
    """Measures every size once a round."""
    bodies = {size: response(size) for size in sizes}
    lived = {size: Known(size) for size in sizes}
    for size, known in lived.items():
        known.refresh(bodies[size])
        if len(known.cache.topics) != size:
            raise SystemExit(f"{len(known.cache.topics):,} of {size:,} topics are known after a refresh")
    look_ups: dict[int, list[float]] = {size: [] for size in sizes}
    firsts: dict[int, list[float]] = {size: [] for size in sizes}
    agains: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size, known in lived.items():
            paths = [f"/v1/topics/{name}/leader?partition=0".encode() for name in asked(size)]
            known.look_up(paths, ASKED)
            if any(known.table.find(path) is None for path in paths):
                raise SystemExit("a look-up of a known topic found nothing")
            look_ups[size].append(_cpu_s(partial(known.look_up, paths, LOOK_UPS)) / LOOK_UPS * 1e6)
            fresh = Known(size)
            firsts[size].append(_cpu_s(partial(fresh.refresh, bodies[size])) * 1e3)
            agains[size].append(_cpu_s(partial(known.refresh, bodies[size])) * 1e3)
    return {
        "look-up, CPU us": look_ups,
        "first refresh, CPU ms": firsts,
        "refresh again, CPU ms": agains,
        "snapshot, KB": {size: [_snapshot_bytes(size, bodies[size]) / 1e3] for size in sizes},
    }


def _cpu_s(run: Callable[[], object]) -> float:
    """Returns CPU seconds of this thread without the collector, which would walk the other sizes' objects."""
    gc.collect()
    gc.disable()
    try:
        began_s = time.thread_time()
        run()
        return time.thread_time() - began_s
    finally:
        gc.enable()


def _snapshot_bytes(size: int, body: bytes) -> int:
    """Returns the memory that a first refresh adds, without the requested names."""
    known = Known(size)
    gc.collect()
    tracemalloc.start()
    try:
        known.refresh(body)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
