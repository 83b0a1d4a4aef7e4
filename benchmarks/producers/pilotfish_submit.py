"""Pilotfish's `submit`, which takes many records and reports them together. The sidecar uses it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from benchmarks.producers.line_protocol import PATIENCE_S, serve, timed_each
from client_core import KafkaProducer, ProducerConfig, ProduceResult, ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core import Result

RECORDS_PER_TICKET: Final = 500
_CLOSE_MS: Final = 10_000


class PilotfishSubmit:
    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self.topic = topic
        self.producer = KafkaProducer(ProducerConfig.from_mapping(settings))
        self.producer.start()

    def run(self, value: bytes, records: int) -> int:
        reported = acknowledged = 0
        all_told = threading.Event()

        def done(result: Result) -> None:
            nonlocal reported, acknowledged
            assert isinstance(result, ProduceResult)
            reported += len(result.outcomes)
            acknowledged += sum(isinstance(outcome, RecordMetadata) for outcome in result.outcomes)
            if reported == records:
                all_told.set()

        deadline_ms = self.producer.clock.now_ms() + int(PATIENCE_S * 1_000)
        topic = self.topic
        for first in range(0, records, RECORDS_PER_TICKET):
            self.producer.submit(
                topic,
                [ProducerRecord(topic, value) for _ in range(min(RECORDS_PER_TICKET, records - first))],
                block_deadline_ms=deadline_ms,
                deadline_ms=deadline_ms,
                done=done,
            )
        self.producer.flush()
        all_told.wait(PATIENCE_S)
        return acknowledged

    def wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        return timed_each(lambda: self.run(value, 1), records)

    def close(self) -> None:
        self.producer.close(_CLOSE_MS)


if __name__ == "__main__":
    serve(PilotfishSubmit)
