"""The batches that are on their way to a broker, by partition, and when the first of them will be too old.

They are looked at only when the earliest expiry has come, and then all of them: a batch that is sent again
stands behind younger ones. I/O thread only; the length is a plain read. Source: Sender.inFlightBatches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.clock import FOREVER_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.cluster import TopicPartition
    from client_core.producer.accumulator.producer_batch import ProducerBatch


class InFlightBatches:
    """What was sent and is not settled."""

    def __init__(self, delivery_timeout_ms: int) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._batches: dict[TopicPartition, list[ProducerBatch]] = {}
        self._count = 0
        #: No batch expires before this. It may be too early: `expired` sets it right whenever it has come.
        self.next_expiry_ms = FOREVER_MS

    def __len__(self) -> int:
        return self._count

    def of(self, topic_partition: TopicPartition) -> Sequence[ProducerBatch]:
        return tuple(self._batches.get(topic_partition, ()))

    def add(self, batch: ProducerBatch) -> None:
        self._batches.setdefault(batch.topic_partition, []).append(batch)
        self._count += 1
        self.next_expiry_ms = min(self.next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    def remove(self, batch: ProducerBatch) -> None:
        """Takes a batch out, if it is there."""
        batches = self._batches.get(batch.topic_partition)
        if batches is None or batch not in batches:
            return
        batches.remove(batch)
        self._count -= 1
        if not batches:
            del self._batches[batch.topic_partition]

    def clear(self) -> None:
        self._batches.clear()
        self._count = 0
        self.next_expiry_ms = FOREVER_MS

    def expired(self, now_ms: int) -> list[ProducerBatch]:
        """The batches that are too old; they stay in here until they are removed."""
        if now_ms < self.next_expiry_ms:
            return []
        expired: list[ProducerBatch] = []
        self.next_expiry_ms = FOREVER_MS
        for batches in self._batches.values():
            for batch in batches:
                if batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now_ms):
                    expired.append(batch)
                else:
                    expiry_ms = batch.created_ms + self._delivery_timeout_ms
                    self.next_expiry_ms = min(self.next_expiry_ms, expiry_ms)
        return expired
