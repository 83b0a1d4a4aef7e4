"""aiokafka with its compiled extension: `await send` returns a future per record; its loop runs per turn.

It has no sticky partitioner: records without a key go to random partitions. `flush` ends when all futures are
done, which costs less than a `gather` over all of them.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from benchmarks.producers.line_protocol import as_keywords, serve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class AioKafka:
    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        keywords = as_keywords(settings)
        keywords["max_batch_size"] = keywords.pop("batch_size")
        del keywords["max_in_flight_requests_per_connection"]  # it always has one request per node
        self.topic = topic
        self.loop = asyncio.new_event_loop()
        self.producer: Any = self.loop.run_until_complete(self._start(keywords))

    async def _start(self, keywords: Mapping[str, Any]) -> Any:
        producer = AIOKafkaProducer(**keywords)
        await producer.start()
        return producer

    def run(self, value: bytes, records: int) -> int:
        return self.loop.run_until_complete(self._run(value, records))

    async def _run(self, value: bytes, records: int) -> int:
        topic, send = self.topic, self.producer.send
        futures = [await send(topic, value) for _ in range(records)]
        await self.producer.flush()
        return sum(future.exception() is None for future in futures)

    def wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        return self.loop.run_until_complete(self._wait_for_each(value, records))

    async def _wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        latencies_s = []
        for _ in range(records):
            began_s = time.perf_counter()
            await self.producer.send_and_wait(self.topic, value)
            latencies_s.append(time.perf_counter() - began_s)
        return latencies_s

    def close(self) -> None:
        self.loop.run_until_complete(self.producer.stop())


if __name__ == "__main__":
    serve(AioKafka)
