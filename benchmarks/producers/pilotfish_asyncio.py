"""Pilotfish for asyncio: `await send` returns a future per record; its loop runs per turn, as aiokafka's."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchmarks.producers.line_protocol import serve
from client_core import AsyncKafkaProducer, ProducerConfig, ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CLOSE_MS = 10_000


class PilotfishAsyncio:
    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self.topic = topic
        self.loop = asyncio.new_event_loop()
        self.producer = AsyncKafkaProducer(ProducerConfig.from_mapping(settings))
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.producer.start()

    def run(self, value: bytes, records: int) -> int:
        return self.loop.run_until_complete(self._run(value, records))

    async def _run(self, value: bytes, records: int) -> int:
        topic, send = self.topic, self.producer.send
        futures = [await send(ProducerRecord(topic, value)) for _ in range(records)]
        await self.producer.flush()
        return sum(future.exception() is None for future in futures)

    def wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        return self.loop.run_until_complete(self._wait_for_each(value, records))

    async def _wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        record, latencies_s = ProducerRecord(self.topic, value), []
        for _ in range(records):
            began_s = time.perf_counter()
            await self.producer.send_and_wait(record)
            latencies_s.append(time.perf_counter() - began_s)
        return latencies_s

    def close(self) -> None:
        self.loop.run_until_complete(self.producer.close(_CLOSE_MS))


if __name__ == "__main__":
    serve(PilotfishAsyncio)
