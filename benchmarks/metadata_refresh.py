"""Measures a metadata refresh, from response bytes to structure: ours and four others, thread CPU.

`metadata_shapes.py` has the changes between responses, `metadata_peers.py` the contestants. All get the same
bytes except aiokafka, which uses an older version of the same responses, without topic ids and epochs. Java
is warmed up for seconds. A round applies all responses to a new cache of each contestant, in turn; the
figures are medians. `metadata_rest.py` then measures a cache's memory with a thousand topics, and how long a
refresh stalls other threads.

`--quick` runs two rounds, to check that everything works.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.java_peer import JavaPeer
from benchmarks.measure import Goal, goal, median, report, table
from benchmarks.metadata_peers import PYTHON_CACHES, JavaCaches, live
from benchmarks.metadata_rest import bytes_at_rest, quiet_stall_s, worst_stall_s
from benchmarks.metadata_shapes import AGAIN, BROKER_DOWN, CASES, FIRST, VERSION, answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Sample
    from benchmarks.metadata_shapes import Answers

OURS: Final = "pilotfish"
KAFKA_PYTHON: Final = "kafka-python"
JAVA: Final = "Java"
#: Partitions, and rounds: short measurements vary more.
SIZES: Final = {1_000: 15, 10_000: 7, 100_000: 5}
STALL_ROUNDS: Final = 5
#: The contestants whose stalls are measured: the others take seconds each, and are like kafka-python.
STALLING: Final = (OURS, KAFKA_PYTHON)
QUICK_ROUNDS: Final = 2
JAVA_WARM_S: Final = 4.0
#: Below this number of partitions, `again` is too short to measure, and is repeated. Not above it: garbage of
#: the previous repetition would be collected in it.
_AGAIN_PARTITIONS: Final = 5_000
#: Bounds: how late another thread may be, and the memory of a partition.
STALL_MS: Final = 5.0
BYTES_A_PARTITION: Final = 100.0

CpuMs = dict[str, dict[str, float]]


def cpu_of_lives(size: Answers, java: JavaCaches, rounds: int) -> CpuMs:
    """Returns CPU ms by contestant and case: medians of the rounds, contestants in turn."""
    repeats = max(1, _AGAIN_PARTITIONS // size.partitions)
    java.warm(size, JAVA_WARM_S)
    lives: dict[str, list[dict[str, Sample]]] = {}
    for _ in range(rounds):
        for name, make in PYTHON_CACHES.items():
            lives.setdefault(name, []).append(live(name, make, size, repeats))
        lives.setdefault(JAVA, []).append(java.live(size, repeats))
    return {
        name: {
            case: median([cpu[case] for cpu in of_one], lambda s: s.cpu_us_per_operation) / 1_000
            for case in CASES
        }
        for name, of_one in lives.items()
    }


def print_lives(size: Answers, cpu_ms: CpuMs) -> None:
    rows: list[tuple[object, ...]] = [(name, *of_one.values()) for name, of_one in cpu_ms.items()]
    rows.extend(
        (f"{OURS} / {peer}", *(cpu_ms[OURS][case] / cpu_ms[peer][case] for case in CASES))
        for peer in (JAVA, KAFKA_PYTHON)
    )
    table(f"refresh of {size.partitions:,} partitions, CPU ms", ("who", *CASES), rows)


def cpu_goals(partitions: int, cpu_ms: CpuMs) -> Iterator[Goal]:
    wanted = {
        10_000: ((FIRST, KAFKA_PYTHON, 0.15), (AGAIN, KAFKA_PYTHON, 0.02), (AGAIN, JAVA, 0.15)),
        100_000: ((FIRST, JAVA, 0.15), (BROKER_DOWN, JAVA, 0.3)),
    }
    for case, peer, bound in wanted.get(partitions, ()):
        yield goal(
            f"refresh of {partitions // 1_000}k partitions, {case}, CPU against {peer}",
            ours=cpu_ms[OURS][case],
            peer=cpu_ms[peer][case],
            at_most=bound,
        )


def memory_goal(size: Answers, of_peers: Answers, java: JavaCaches) -> Goal:
    """Compares memory per partition: ours at full size, the others with fewer topics of the same size."""
    weighs: dict[str, float] = {}
    for name, make in PYTHON_CACHES.items():
        given = size if name == OURS else of_peers
        weighs[name] = bytes_at_rest(make, given) / given.partitions
    weighs[JAVA] = java.bytes_at_rest(size, FIRST) / size.partitions
    topics = len(size.added[FIRST])
    table(
        f"{topics:,} topics of {size.partitions // topics} partitions at rest; "
        f"{len(of_peers.added[FIRST]):,} topics for Python's others",
        ("who", "bytes a partition"),
        list(weighs.items()),
    )
    return goal(
        "metadata at rest, bytes a partition, against 100",
        ours=weighs[OURS],
        peer=BYTES_A_PARTITION,
        at_most=1.0,
    )


def stall_goal(size: Answers, rounds: int) -> Goal:
    late_ms: dict[str, list[float]] = {"nothing": []}
    for _ in range(rounds):
        late_ms["nothing"].append(quiet_stall_s() * 1_000)
        for name, make in PYTHON_CACHES.items():
            if name in STALLING:
                late_ms.setdefault(name, []).append(worst_stall_s(make, size) * 1_000)
    table(
        f"another thread while {size.partitions:,} partitions are refreshed: late by ms",
        ("who refreshes", "median of the rounds' worst", "worst of all"),
        [(name, statistics.median(found), max(found)) for name, found in late_ms.items()],
    )
    return goal(
        "another thread stalled by a refresh of 100k partitions, ms, against 5",
        ours=statistics.median(late_ms[OURS]),
        peer=STALL_MS,
        at_most=1.0,
    )


def main(is_quick: bool = False) -> None:
    goals: list[Goal] = []
    with (
        tempfile.TemporaryDirectory(prefix="pilotfish-bench-") as folder,
        JavaPeer("MetadataPeer", str(VERSION)) as process,
    ):
        java = JavaCaches(process, Path(folder))
        smaller = size = answers(min(SIZES))
        for partitions, rounds in SIZES.items():
            smaller, size = size, answers(partitions)
            cpu_ms = cpu_of_lives(size, java, QUICK_ROUNDS if is_quick else rounds)
            print_lives(size, cpu_ms)
            goals += cpu_goals(partitions, cpu_ms)
        goals.append(memory_goal(size, smaller, java))
    goals.append(stall_goal(size, QUICK_ROUNDS if is_quick else STALL_ROUNDS))
    report(goals)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
