"""Produce through the library on three real brokers: CPU per record and rate, ours against confluent-kafka.

Both: acks=all, idempotence on, linger.ms=5, batch.size=16384, no compression, replication factor 3. Each
record is sent by itself and has a callback (theirs) or a future (ours), and the turn ends when all are
acknowledged.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

from benchmarks.brokers import TOPIC, three_brokers
from benchmarks.measure import Sample, goal, in_turns, median, report, table, timed
from client_core import KafkaProducer, ProducerConfig, ProducerRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

RECORDS: Final = 200_000
SETTINGS: Final = {"acks": "all", "linger.ms": "5", "batch.size": "16384", "enable.idempotence": "true"}
SIZES: Final = (100, 1_024)


class Ours:
    def __init__(self, bootstrap_servers: str) -> None:
        config = ProducerConfig.from_mapping({"bootstrap.servers": bootstrap_servers, **SETTINGS})
        self.producer = KafkaProducer(config)
        self.producer.start()

    def run(self, value: bytes, records: int) -> None:
        send = self.producer.send
        futures = [send(ProducerRecord(TOPIC, value)) for _ in range(records)]
        self.producer.flush()
        for future in futures:
            future.result(0)


class ConfluentKafka:
    def __init__(self, bootstrap_servers: str) -> None:
        self.producer = Producer(
            {"bootstrap.servers": bootstrap_servers, **SETTINGS, "queue.buffering.max.messages": 1_000_000}
        )

    def run(self, value: bytes, records: int) -> None:
        acknowledged = 0
        failed = threading.Event()

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            nonlocal acknowledged
            acknowledged += 1
            if error is not None:
                failed.set()

        for number in range(records):
            self.producer.produce(TOPIC, value, on_delivery=on_delivery)
            if not number % 100:
                self.producer.poll(0)
        self.producer.flush()
        if failed.is_set() or acknowledged != records:
            raise SystemExit(f"confluent-kafka: {acknowledged} of {records} acknowledged")


def main() -> None:
    goals = []
    with three_brokers() as kafka:
        ours, theirs = Ours(kafka.bootstrap_servers), ConfluentKafka(kafka.bootstrap_servers)
        for contestant in (ours, theirs):
            contestant.run(b"warm", 1_000)
        for size in SIZES:
            value = b"x" * size
            records = RECORDS if size < 1_000 else RECORDS // 4

            def turn(
                contestant: Ours | ConfluentKafka, value: bytes = value, records: int = records
            ) -> Sample:
                return timed(records, lambda: contestant.run(value, records))

            samples = in_turns({"pilotfish": lambda: turn(ours), "confluent-kafka": lambda: turn(theirs)})
            cpu = {name: median(turns, lambda s: s.cpu_us_per_operation) for name, turns in samples.items()}
            rate = {name: median(turns, lambda s: s.per_wall_s) for name, turns in samples.items()}
            table(
                f"{size} B records, acks=all, linger 5, 16 KiB batches, idempotence",
                ("producer", "records/s", "CPU s per million"),
                [(name, rate[name], cpu[name]) for name in samples],
            )
            goals.append(
                goal(
                    f"library produce, {size} B, CPU per record against confluent-kafka",
                    ours=cpu["pilotfish"],
                    peer=cpu["confluent-kafka"],
                    at_most=1.0,
                )
            )
        ours.producer.close(10_000)
    report(goals)


if __name__ == "__main__":
    main()
