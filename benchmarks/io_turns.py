"""Measures the CPU of the I/O thread's longest turns, with healthy and with unresponsive brokers.

    python -m benchmarks.io_turns [--requests-per-s 600] [--kafka batch.size=1048576] [--profile]

Requests of one to a hundred records come at a fixed rate, each with its own deadline. First a fake cluster
answers, then it holds every Produce, so that all records expire. CPU time of the thread excludes other load
of the machine. `--profile` shows the calls of the longest turn, and makes the turn longer.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import sys
import time
from typing import TYPE_CHECKING, Final

from benchmarks.measure import table
from client_core import KafkaProducer, ProducerConfig, ProducerRecord
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC: Final = "bench"
PARTITIONS: Final = 12
REQUESTS_PER_S: Final = 600.0
PHASE_S: Final = 8.0
TIMEOUTS_MS: Final = (20, 3_000)
SIZES: Final = (1, 1, 1, 10, 100)


class MeasuredTurns:
    """The CPU time of each turn of a producer's I/O thread, and a profile of the longest."""

    def __init__(self, producer: KafkaProducer, *, profiles: bool) -> None:
        self.took_ms: list[float] = []
        self.longest: cProfile.Profile | None = None
        self._turn = producer.io_thread.turn
        self._profiles = profiles
        producer.io_thread.turn = self._measured  # type: ignore[method-assign]

    def _measured(self) -> None:
        profile = cProfile.Profile() if self._profiles else None
        begun_s = time.thread_time()
        if profile is None:
            self._turn()
        else:
            profile.runcall(self._turn)
        took_ms = (time.thread_time() - begun_s) * 1_000
        if took_ms > max(self.took_ms, default=0.0):
            self.longest = profile
        self.took_ms.append(took_ms)


def submit_for_a_phase(producer: KafkaProducer, requests_per_s: float) -> None:
    draw = random.Random(1)
    begun_s = time.monotonic()
    for number in range(int(requests_per_s * PHASE_S)):
        time.sleep(max(0.0, begun_s + number / requests_per_s - time.monotonic()))
        deadline_ms = producer.clock.now_ms() + draw.randint(*TIMEOUTS_MS)
        records = [ProducerRecord(TOPIC, b"%d" % n) for n in range(draw.choice(SIZES))]
        producer.submit(
            TOPIC,
            records,
            deadline_ms=deadline_ms,
            block_deadline_ms=deadline_ms,
            done=lambda result: None,
        )
    time.sleep(TIMEOUTS_MS[1] / 1_000)


def main(words: Sequence[str]) -> None:
    options = argparse.ArgumentParser(prog="benchmarks.io_turns")
    options.add_argument("--requests-per-s", type=float, default=REQUESTS_PER_S)
    options.add_argument("--kafka", action="append", default=[], help="a setting of the client")
    options.add_argument("--profile", action="store_true")
    given = options.parse_args(words)
    rows = []
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        settings |= dict(setting.split("=", 1) for setting in given.kafka)
        producer = KafkaProducer(ProducerConfig.from_mapping(settings))
        turns = MeasuredTurns(producer, profiles=given.profile)
        producer.start()
        for phase in ("brokers healthy", "brokers answer no Produce"):
            turns.took_ms.clear()
            submit_for_a_phase(producer, given.requests_per_s)
            took_ms = sorted(turns.took_ms)
            rows.append((phase, len(took_ms), took_ms[len(took_ms) * 99 // 100], took_ms[-1]))
            cluster.hold_next(ApiKey.PRODUCE, times=1_000_000)
        producer.close(0)
    table("CPU of the I/O thread's turns", ("phase", "turns", "p99 ms", "longest ms"), rows)
    if turns.longest is not None:
        pstats.Stats(turns.longest).sort_stats("cumulative").print_stats(20)


if __name__ == "__main__":
    main(sys.argv[1:])
