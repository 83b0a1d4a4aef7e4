"""confluent-kafka, librdkafka from Python: a delivery callback for each record, served while it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

from benchmarks.producers.line_protocol import serve, timed_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import KafkaError, Message

#: Records sent between two polls for callbacks: a poll after each record would cost more.
_RECORDS_BETWEEN_POLLS: Final = 100
_OWN: Final = {
    "queue.buffering.max.messages": 1_000_000,  # all of a turn: by default it would reject some
    "log_level": 3,  # errors: on a new cluster it logs warnings about retries
}


class Confluent:
    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self.topic = topic
        self.producer = Producer({**settings, **_OWN})
        self.acknowledged = 0

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1

    def run(self, value: bytes, records: int) -> int:
        self.acknowledged = 0
        topic, produce, on_delivery = self.topic, self.producer.produce, self._on_delivery
        for number in range(records):
            produce(topic, value, on_delivery=on_delivery)
            if not number % _RECORDS_BETWEEN_POLLS:
                self.producer.poll(0)
        self.producer.flush()
        return self.acknowledged

    def wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        return timed_each(lambda: self._send_and_wait(value), records)

    def _send_and_wait(self, value: bytes) -> None:
        before = self.acknowledged
        self.producer.produce(self.topic, value, on_delivery=self._on_delivery)
        self.producer.flush()
        if self.acknowledged != before + 1:
            raise RuntimeError("a record was not acknowledged")

    def close(self) -> None:
        self.producer.flush()


if __name__ == "__main__":
    serve(Confluent)
