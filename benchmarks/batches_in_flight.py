"""Measures what it costs to send fewer batches at once than Kafka's client does ("window" in decision 0015).

    python -m benchmarks.batches_in_flight           five rounds, three minutes
    python -m benchmarks.batches_in_flight --rounds 9

Three real brokers, acks=all. Both columns are the same producer, but for the rule by which a batch must wait:
ours, or Kafka's: five batches of a partition. A steady rate of records, with the time of each from `send` to
its callback; and a burst of records to partitions that a new producer has not written to yet, where ours
sends the first batch alone. Medians of the rounds. Not part of `make bench`.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.brokers import PARTITIONS, TOPIC, three_brokers
from benchmarks.measure import table
from client_core import KafkaProducer, ProducerConfig, ProducerRecord
from client_core.producer.accumulator.partition_sequences import PartitionSequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.producer.results.future_record_metadata import FutureRecordMetadata

_IN_FLIGHT: Final = 5
_VALUE: Final = bytes(200)
_BURST: Final = 500
_STEADY_S: Final = 3
_TIMEOUT_S: Final = 60
#: Partitions, batch.size in bytes, records a second. The fourth is more than the brokers take.
_STEADY: Final = (
    (1, 16_384, 4_000),
    (1, 1_000, 4_000),
    (6, 1_000, 4_000),
    (1, 1_000, 20_000),
    (6, 16_384, 20_000),
)

_Figures = tuple[float, ...]


def _kafkas(sequences: PartitionSequences) -> bool:
    """Returns whether Kafka's client has as many batches of the partition in flight as it may."""
    return len(sequences.in_flight) >= _IN_FLIGHT


def _producer(servers: str, batch_bytes: int) -> KafkaProducer[bytes | None, bytes | None]:
    settings = {"bootstrap.servers": servers, "acks": "all", "linger.ms": "0", "batch.size": str(batch_bytes)}
    return KafkaProducer(ProducerConfig.from_mapping(settings))


def _steady(servers: str, partitions: int, batch_bytes: int, rate: int) -> _Figures:
    took_s: list[float] = []

    def ended(since_s: float) -> Callable[[FutureRecordMetadata], None]:
        def note(future: FutureRecordMetadata) -> None:
            future.result(0)
            took_s.append(time.perf_counter() - since_s)

        return note

    with _producer(servers, batch_bytes) as producer:
        producer.send(ProducerRecord(TOPIC, _VALUE, partition=0)).result(_TIMEOUT_S)
        began_s, sent = time.perf_counter(), 0
        while (passed_s := time.perf_counter() - began_s) < _STEADY_S:
            while sent < passed_s * rate:
                record = ProducerRecord(TOPIC, _VALUE, partition=sent % partitions)
                producer.send(record, ended(time.perf_counter()))
                sent += 1
            time.sleep(0.001)
        producer.flush()
        ended_s = time.perf_counter()
    assert len(took_s) == sent, f"{sent - len(took_s)} records failed"
    took_s.sort()
    return sent / (ended_s - began_s), took_s[sent // 2] * 1_000, took_s[sent * 99 // 100] * 1_000


def _burst(servers: str, partitions: int) -> _Figures:
    with _producer(servers, 1_000) as producer:
        # Another partition: it has the id, the metadata and the connections from here.
        producer.send(ProducerRecord(TOPIC, _VALUE, partition=PARTITIONS - 1)).result(_TIMEOUT_S)
        began_s = time.perf_counter()
        futures = [
            producer.send(ProducerRecord(TOPIC, _VALUE, partition=number % partitions))
            for number in range(_BURST)
        ]
        for future in futures:
            future.result(_TIMEOUT_S)
        return ((time.perf_counter() - began_s) * 1_000,)


def _both(run: Callable[[], _Figures], rounds: int) -> dict[str, list[float]]:
    """Returns the medians of each figure, by rule; the rules take turns."""
    ours = PartitionSequences.is_window_full
    rules = {"ours": ours, "Kafka's": property(_kafkas)}
    found: dict[str, list[_Figures]] = {name: [] for name in rules}
    for _ in range(rounds):
        for name, rule in rules.items():
            PartitionSequences.is_window_full = rule  # type: ignore[method-assign, assignment]
            try:
                found[name].append(run())
            finally:
                PartitionSequences.is_window_full = ours  # type: ignore[method-assign]
    return {name: [round(median(each), 2) for each in zip(*ran, strict=True)] for name, ran in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches_in_flight")
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    with three_brokers() as cluster:
        servers = cluster.bootstrap_servers
        _steady(servers, PARTITIONS, 16_384, 4_000)  # the brokers' compilers
        rows = [
            [f"{partitions} x {batch_bytes} bytes, {rate}/s, {rule}", *figures]
            for partitions, batch_bytes, rate in _STEADY
            for rule, figures in _both(
                partial(_steady, servers, partitions, batch_bytes, rate), rounds
            ).items()
        ]
        table("A steady rate: partitions x batch.size", ("", "records/s", "p50 ms", "p99 ms"), rows)
        rows = [
            [f"{partitions} partitions, {rule}", *figures]
            for partitions in (1, PARTITIONS - 1)
            for rule, figures in _both(partial(_burst, servers, partitions), 3 * rounds).items()
        ]
        table(f"The first {_BURST} records of a new producer, batch.size 1000", ("", "ms"), rows)


if __name__ == "__main__":
    main()
