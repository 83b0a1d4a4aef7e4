"""Pilotfish: `send` with a future for each record, as in Java programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.producers.line_protocol import PATIENCE_S, serve, timed_each
from client_core import KafkaProducer, ProducerConfig, ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CLOSE_MS = 10_000


class Pilotfish:
    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self.topic = topic
        self.producer = KafkaProducer(ProducerConfig.from_mapping(settings))
        self.producer.start()

    def run(self, value: bytes, records: int) -> int:
        topic, send = self.topic, self.producer.send
        futures = [send(ProducerRecord(topic, value)) for _ in range(records)]
        self.producer.flush()
        return sum(future.result(0).offset is not None for future in futures)

    def wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        record, send = ProducerRecord(self.topic, value), self.producer.send
        return timed_each(lambda: send(record).result(PATIENCE_S), records)

    def close(self) -> None:
        self.producer.close(_CLOSE_MS)


if __name__ == "__main__":
    serve(Pilotfish)
