"""kafka-python: `send` with a future for each record, and its sticky partitioner, as in Java.

Its default partitioner scatters records without a key, which would make smaller batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka import KafkaProducer
from kafka.partitioner.sticky import StickyPartitioner

from benchmarks.producers.line_protocol import PATIENCE_S, as_keywords, serve, timed_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class KafkaPython:
    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self.topic = topic
        self.producer: Any = KafkaProducer(partitioner=StickyPartitioner(), **as_keywords(settings))

    def run(self, value: bytes, records: int) -> int:
        topic, send = self.topic, self.producer.send
        futures = [send(topic, value) for _ in range(records)]
        self.producer.flush()
        return sum(future.succeeded() for future in futures)

    def wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        topic, send = self.topic, self.producer.send
        return timed_each(lambda: send(topic, value).get(PATIENCE_S), records)

    def close(self) -> None:
        self.producer.close()


if __name__ == "__main__":
    serve(KafkaPython)
