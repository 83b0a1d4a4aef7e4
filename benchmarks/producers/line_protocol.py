"""The commands of a producer in its own process, and its measurement of itself.

    run SIZE COUNT     sends COUNT records, and waits until all are acknowledged
    wait SIZE COUNT    sends one record, waits for its acknowledgement, sends the next

Each answer has the number of acknowledged records, and the wall and CPU seconds (of the whole process, all
threads); after `wait` also the median in milliseconds. `line_peer.py` has the transport;
`benchmarks/java/ProducePeer.java` implements the same commands.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from typing import TYPE_CHECKING, Final, Protocol

from benchmarks.line_peer import answer_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PATIENCE_S: Final = 120.0


class Contestant(Protocol):
    """A producer that is ready to send to one topic."""

    def run(self, value: bytes, records: int) -> int:
        """Sends `records` records, waits for all, and returns how many were acknowledged."""
        ...

    def wait_for_each(self, value: bytes, records: int) -> Sequence[float]:
        """Sends one by one; returns the seconds until each was acknowledged. Raises if one is not."""
        ...

    def close(self) -> None: ...


def serve(make: Callable[[str, Mapping[str, str]], Contestant]) -> None:
    """Makes a producer from the arguments, and runs commands until the input ends."""
    topic, *settings = sys.argv[1:]
    contestant = make(topic, dict(setting.split("=", 1) for setting in settings))

    def run(size: str, count: str) -> dict[str, float]:
        value, records = b"x" * int(size), int(count)
        return _measured(lambda: contestant.run(value, records))

    def wait(size: str, count: str) -> dict[str, float]:
        value, records = b"x" * int(size), int(count)
        latencies_s: list[float] = []
        answer = _measured(lambda: latencies_s.extend(contestant.wait_for_each(value, records)))
        return {**answer, "acknowledged": len(latencies_s), "p50_ms": statistics.median(latencies_s) * 1_000}

    try:
        answer_lines({"run": run, "wait": wait})
    finally:
        contestant.close()


def _measured(run: Callable[[], int | None]) -> dict[str, float]:
    gc.collect()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    acknowledged = run()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {"wall_s": wall_s, "cpu_s": cpu_s, "acknowledged": acknowledged or 0}


def timed_each(send_and_wait: Callable[[], object], records: int) -> list[float]:
    """Returns the duration of each of `records` calls, in seconds."""
    latencies_s = []
    for _ in range(records):
        began_s = time.perf_counter()
        send_and_wait()
        latencies_s.append(time.perf_counter() - began_s)
    return latencies_s


def as_keywords(settings: Mapping[str, str]) -> dict[str, object]:
    """Returns Kafka's settings in the Python clients' spelling: `linger_ms=5`, `enable_idempotence=True`."""
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    return {
        name.replace(".", "_"): int(value) if value.isdecimal() else words.get(value, value)
        for name, value in settings.items()
    }
