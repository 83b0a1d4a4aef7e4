"""Measures a metadata refresh, from response bytes to structure: ours and four others, thread CPU.

`metadata_shapes.py` has the changes between responses, `metadata_peers.py` the contestants. All get the same
bytes except aiokafka, which uses an older version of the same responses, without topic ids and epochs. Java
is warmed up for seconds. A round applies all responses to a new cache of each contestant, in turn; the
figures are medians. A cache's cost is per topic or per partition, so there are shapes from one to a hundred
partitions a topic. `metadata_rest.py` then measures a cache's memory with a thousand topics, and how long a
refresh stalls other threads.

`--quick` runs two rounds, to check that everything works. `--shape=10000,10,9` measures only this shape:
partitions, partitions a topic, brokers.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

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


class Shape(NamedTuple):
    """A cluster's size, and how its partitions are spread."""

    partitions: int
    per_topic: int
    brokers: int

    def __str__(self) -> str:
        size = f"{self.partitions // 1_000}k partitions"
        if (self.per_topic, self.brokers) == (100, 3):
            return size
        return f"{size}, {self.per_topic} a topic, {self.brokers} brokers"


#: The shape of memory, and the number of its rounds: short measurements vary more.
LARGEST: Final = Shape(100_000, 100, 3)
SHAPES: Final = {
    Shape(1_000, 100, 3): 15,
    Shape(10_000, 100, 3): 7,
    LARGEST: 5,
    Shape(10_000, 1, 9): 5,
    Shape(10_000, 10, 9): 7,
    Shape(10_000, 50, 9): 7,
    Shape(100_000, 10, 9): 3,
}
#: Goals for CPU by shape: case, peer, and the greatest ratio.
CPU_GOALS: Final = {
    Shape(10_000, 100, 3): (
        (FIRST, "kafka-python", 0.15),
        (AGAIN, "kafka-python", 0.02),
        (AGAIN, "Java", 0.05),
    ),
    LARGEST: ((FIRST, "Java", 0.15), (AGAIN, "Java", 0.05), (BROKER_DOWN, "Java", 0.3)),
    Shape(10_000, 1, 9): ((AGAIN, "Java", 0.05),),
    Shape(10_000, 10, 9): ((FIRST, "Java", 0.35), (AGAIN, "Java", 0.05), (BROKER_DOWN, "Java", 0.9)),
    Shape(10_000, 50, 9): ((FIRST, "Java", 0.35), (AGAIN, "Java", 0.05), (BROKER_DOWN, "Java", 0.9)),
    Shape(100_000, 10, 9): ((FIRST, "Java", 0.35), (AGAIN, "Java", 0.05), (BROKER_DOWN, "Java", 0.9)),
}
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
    table(f"refresh of {_shape(size)}, CPU ms", ("who", *CASES), rows)


def _shape(size: Answers) -> Shape:
    return Shape(size.partitions, size.per_topic, size.brokers)


def cpu_goals(shape: Shape, cpu_ms: CpuMs) -> Iterator[Goal]:
    for case, peer, bound in CPU_GOALS.get(shape, ()):
        yield goal(
            f"refresh of {shape}, {case}, CPU against {peer}",
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


def main(is_quick: bool = False, only: Shape | None = None) -> None:
    goals: list[Goal] = []
    with (
        tempfile.TemporaryDirectory(prefix="pilotfish-bench-") as folder,
        JavaPeer("MetadataPeer", str(VERSION)) as process,
    ):
        java = JavaCaches(process, Path(folder))
        for shape, rounds in SHAPES.items() if only is None else {only: STALL_ROUNDS}.items():
            cpu_ms = cpu_of_lives(size := answers(*shape), java, QUICK_ROUNDS if is_quick else rounds)
            print_lives(size, cpu_ms)
            goals += cpu_goals(shape, cpu_ms)
        if only is None:
            size = answers(*LARGEST)
            goals.append(memory_goal(size, answers(10_000), java))
    if only is None:
        goals.append(stall_goal(size, QUICK_ROUNDS if is_quick else STALL_ROUNDS))
    report(goals)


def _only(arguments: list[str]) -> Shape | None:
    for argument in arguments:
        if argument.startswith("--shape="):
            return Shape(*map(int, argument.removeprefix("--shape=").split(",")))
    return None


if __name__ == "__main__":
    main("--quick" in sys.argv[1:], _only(sys.argv[1:]))
