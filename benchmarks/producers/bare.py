"""The ceiling: a bare producer of pure Python; no idempotence, retries or checks. See `bare_producer.py`.

Each record is submitted and acknowledged separately. Batches are 16 KiB, without compression and linger, so
it is not in tables with other batches.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from benchmarks.bare_producer import BareProducer, Handed
from benchmarks.producers.line_protocol import PATIENCE_S, serve, timed_each

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def _on_its_thread(report: Callable[[list[Handed]], None], finished: list[Handed]) -> None:
    report(finished)


class Bare:
    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self.producer = BareProducer(settings["bootstrap.servers"], topic, _on_its_thread)

    def run(self, value: bytes, records: int) -> int:
        acknowledged = 0
        all_told = threading.Event()

        def done(_: Handed) -> None:
            nonlocal acknowledged
            acknowledged += 1
            if acknowledged == records:
                all_told.set()

        values, hand_over = (value,), self.producer.hand_over
        for _ in range(records):
            hand_over(Handed(values, done))
        all_told.wait(PATIENCE_S)
        return acknowledged

    def wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        return timed_each(lambda: self.run(value, 1), records)

    def close(self) -> None:
        """Does nothing: its thread ends with the process."""


if __name__ == "__main__":
    serve(Bare)
