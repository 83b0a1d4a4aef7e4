"""Metadata caches as contestants: each parses a response's bytes into its own look-up structure.

Ours does the work of a running sidecar: the request's builder parses, ProducerMetadata holds the topics,
checks epochs and error codes and swaps the snapshot, every changed leader is an event, and the sidecar's
metrics count it. `Quiet` is the same without an event listener, as in most uses of the library. The others
do their client's work on the bytes after a response's header. kio is a codec and only decodes. Java has the
base class Metadata. It keeps all topics of a response, without a check whether they are still needed: less
work than ours.

CPU is that of the one thread. Threads of Java's collector are not counted.
"""

from __future__ import annotations

import gc
import io
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

import aiokafka.cluster
import kafka.cluster
from aiokafka.protocol.metadata import MetadataResponse_v5
from kafka.protocol.metadata import MetadataResponse as KafkaPythonResponse
from kio.index import load_response_schema
from kio.serial import entity_reader

from benchmarks.measure import Sample
from benchmarks.metadata_shapes import AGAIN, AIOKAFKA_VERSION, CASES, VERSION
from client_core import NO_EVENTS
from client_core.clock import SystemClock
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.protocol.api_keys import ApiKey
from service.observe.metrics import ClientMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from benchmarks.java_peer import JavaPeer
    from benchmarks.metadata_shapes import Answers
    from client_core import EventSink

_BOOTSTRAP: Final = "broker-1"


class Cache(Protocol):
    """A metadata cache in this process. `version` is that of the responses it reads."""

    version: int

    def hold(self, topics: Iterable[str]) -> None:
        """Marks these topics as needed; most caches ignore it."""
        ...

    def apply(self, body: bytes) -> None: ...

    def led_by(self, node_id: int) -> int:
        """Returns the number of partitions that a broker leads."""
        ...


class Quiet:
    """Pilotfish without an event listener."""

    version = VERSION

    def __init__(self, events: EventSink = NO_EVENTS) -> None:
        self.metadata = ProducerMetadata(MetadataConfig(), Random(1), SystemClock(), events)
        self.metadata.bootstrap([(_BOOTSTRAP, 9092)])
        self.now_ms = 0

    def hold(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.metadata.add(topic, self.now_ms)

    def apply(self, body: bytes) -> None:
        self.now_ms += 1_000
        self.metadata.request_update(False, reason="manual")
        asked = self.metadata.new_metadata_request_and_version(self.now_ms)
        answer = asked.builder.decode_response(body, self.version)
        self.metadata.update(asked.request_version, answer, asked.is_partial, self.now_ms)

    def led_by(self, node_id: int) -> int:
        tables = self.metadata.cache.topics.values()
        return sum(table.leader_id(number) == node_id for table in tables for number in table.numbers)


class Ours(Quiet):
    """Pilotfish, with its events counted by the sidecar's metrics."""

    def __init__(self) -> None:
        self.metrics = ClientMetrics()
        super().__init__(self.metrics)

    @property
    def leader_changes(self) -> int:
        """The number of leader changes that were counted."""
        samples = (sample for family in self.metrics.collect() for sample in family.samples)
        return int(sum(s.value for s in samples if s.name.endswith("metadata_leader_changes_total")))


class KafkaPython:
    """kafka-python's ClusterMetadata."""

    version = VERSION

    def __init__(self) -> None:
        self.cluster = kafka.cluster.ClusterMetadata(bootstrap_servers=[f"{_BOOTSTRAP}:9092"])

    def hold(self, topics: Iterable[str]) -> None:
        """Does nothing: it keeps all topics of a response."""

    def apply(self, body: bytes) -> None:
        self.cluster.update_metadata(KafkaPythonResponse.decode(body, version=self.version))

    def led_by(self, node_id: int) -> int:
        return len(self.cluster.partitions_for_broker(node_id) or ())


class Aiokafka:
    """aiokafka's ClusterMetadata, at the newest version it supports."""

    version = AIOKAFKA_VERSION

    def __init__(self) -> None:
        self.cluster = aiokafka.cluster.ClusterMetadata(bootstrap_servers=[f"{_BOOTSTRAP}:9092"])

    def hold(self, topics: Iterable[str]) -> None:
        """Does nothing: it keeps all topics of a response."""

    def apply(self, body: bytes) -> None:
        self.cluster.update_metadata(MetadataResponse_v5.decode(io.BytesIO(body)))

    def led_by(self, node_id: int) -> int:
        return len(self.cluster.partitions_for_broker(node_id) or ())


class Kio:
    """kio's decoder (Rust). The last message is kept, as in a cache."""

    version = VERSION

    def __init__(self) -> None:
        self._read = entity_reader(load_response_schema(ApiKey.METADATA.id, self.version))
        self._message: Any = None

    def hold(self, topics: Iterable[str]) -> None:
        """Does nothing: it keeps all topics of a response."""

    def apply(self, body: bytes) -> None:
        self._message, _ = self._read(body, 0)

    def led_by(self, node_id: int) -> int:
        return sum(p.leader_id == node_id for topic in self._message.topics for p in topic.partitions)


PYTHON_CACHES: Final[Mapping[str, Callable[[], Cache]]] = {
    "pilotfish": Ours,
    "pilotfish, nobody listening": Quiet,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "kio, decoding only": Kio,
}


def live(name: str, make: Callable[[], Cache], answers: Answers, repeats: int) -> dict[str, Sample]:
    """Applies all responses to an empty cache; returns the thread's CPU per case. `again` is repeated.

    Ends the benchmark if the cache has wrong leaders at the end.
    """
    cache = make()
    cpu: dict[str, Sample] = {}
    for case in CASES:
        cache.hold(answers.added.get(case, ()))
        body = answers.bodies[cache.version][case]
        times = repeats if case == AGAIN else 1
        gc.collect()
        started_s, cpu_s = time.perf_counter(), time.thread_time()
        for _ in range(times):
            cache.apply(body)
        cpu[case] = Sample(times, time.perf_counter() - started_s, time.thread_time() - cpu_s)
    _judge(name, answers, cache.led_by)
    if isinstance(cache, Ours) and cache.leader_changes != answers.leader_changes:
        raise SystemExit(f"{name}: {cache.leader_changes} leader changes, expected {answers.leader_changes}")
    return cpu


class JavaCaches:
    """Java's caches in their own process, which gets the bytes in files."""

    def __init__(self, java: JavaPeer, folder: Path) -> None:
        self._java = java
        self._folder = folder

    def warm(self, answers: Answers, seconds: float) -> None:
        """Applies the responses repeatedly, until the JIT has compiled the code."""
        files = " ".join(self._file(answers, case) for case in CASES)
        self._java.ask(f"warm {seconds} {files}")

    def live(self, answers: Answers, repeats: int) -> dict[str, Sample]:
        """Returns the CPU per case, as `live`."""
        self._java.ask("fresh")
        cpu: dict[str, Sample] = {}
        for case in CASES:
            times = repeats if case == AGAIN else 1
            took = self._java.ask(f"apply {times} {self._file(answers, case)}")
            cpu[case] = Sample(times, took["wall_s"], took["cpu_s"])
        _judge("Java", answers, lambda node_id: int(self._java.ask(f"led {node_id}")["partitions"]))
        return cpu

    def bytes_at_rest(self, answers: Answers, case: str) -> int:
        """Returns the heap bytes of a cache with one response in it."""
        return int(self._java.ask(f"memory {self._file(answers, case)}")["bytes"])

    def _file(self, answers: Answers, case: str) -> str:
        path = (
            self._folder / f"{answers.partitions}-{answers.per_topic}-{answers.brokers}-{CASES.index(case)}"
        )
        if not path.exists():
            path.write_bytes(answers.bodies[VERSION][case])
        return str(path)


def _judge(name: str, answers: Answers, led_by: Callable[[int], int]) -> None:
    led = Counter({node_id: led_by(node_id) for node_id in answers.led})
    if led != answers.led:
        raise SystemExit(f"{name} believes that brokers lead {dict(led)} partitions, not {dict(answers.led)}")
