"""Measures the library's produce on three real brokers: CPU per record, against every other client.

Each contestant has its own process (`producers/`, `java/ProducePeer.java`) and measures its whole CPU. The
process is new for each row, and sends a few thousand records before it is measured. All have the settings in
a row's title, and at most five requests in flight per node (aiokafka: one). Records have no key; each is sent
separately with a future or a callback, and a turn ends when all are acknowledged. The client chooses the
partition of a record without a key; only aiokafka scatters them.

Java has two entries. "Java" has a new JVM for each turn, so its compiler works during the turn, as in a newly
started producer. "Java, warm" keeps its JVM over a row's turns, when little is left to compile. "pilotfish,
submit" submits 500 records at a time, which no other client can. "bare Python" has no idempotence, no
retries, no linger and no checks. These two are for orientation. Slow contestants send fewer records per turn;
the CPU per record is compared. `--quick` is one round of a tenth, to check that it runs.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.brokers import PARTITIONS, three_brokers
from benchmarks.java_peer import JavaPeer
from benchmarks.line_peer import LinePeer
from benchmarks.measure import ROUNDS, Goal, Sample, goal, in_turns, report, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.line_peer import Peer
    from tests.support.kraft import KraftCluster


@dataclass(frozen=True, slots=True)
class Contestant:
    """Its program, its share of a row's records, and whether its process lives for one turn only."""

    program: str
    share: float = 1.0
    one_turn: bool = False


_JAVA_PROGRAM: Final = "ProducePeer"
OURS: Final = "pilotfish"
OURS_ASYNCIO: Final = "pilotfish, asyncio"
AIOKAFKA: Final = "aiokafka"
LIBRDKAFKA: Final = "confluent-kafka"
JAVA: Final = "Java"
WARM_JAVA: Final = "Java, warm"
CEILING: Final = "bare Python"
CONTESTANTS: Final[Mapping[str, Contestant]] = {
    OURS: Contestant("benchmarks.producers.pilotfish"),
    OURS_ASYNCIO: Contestant("benchmarks.producers.pilotfish_asyncio"),
    "pilotfish, submit": Contestant("benchmarks.producers.pilotfish_submit"),
    "kafka-python": Contestant("benchmarks.producers.kafka_python", share=0.2),
    AIOKAFKA: Contestant("benchmarks.producers.aiokafka", share=0.3),
    LIBRDKAFKA: Contestant("benchmarks.producers.confluent"),
    JAVA: Contestant(_JAVA_PROGRAM, one_turn=True),
    WARM_JAVA: Contestant(_JAVA_PROGRAM),
    CEILING: Contestant("benchmarks.producers.bare"),
}
#: The contestants that the goals name, and the bounds of their ratios.
PEERS: Final = ("kafka-python", AIOKAFKA, JAVA)
STRETCH: Final = (LIBRDKAFKA, WARM_JAVA)

IN_FLIGHT: Final = {"max.in.flight.requests.per.connection": "5"}
ALL: Final = {"acks": "all", "enable.idempotence": "true", **IN_FLIGHT}
ONE: Final = {"acks": "1", "enable.idempotence": "false", **IN_FLIGHT}
BATCHES_16K: Final = {"batch.size": "16384", "linger.ms": "5", "compression.type": "none"}
BATCHES_64K: Final = {**BATCHES_16K, "batch.size": "65536"}
LZ4: Final = {"compression.type": "lz4"}
NO_LINGER: Final = {**BATCHES_16K, "linger.ms": "0"}

#: The warm-up before the first turn: connections, caches, and a JIT compiler's first work.
WARM_UP_SHARE: Final = 0.05
#: librdkafka's time for a million records of 100 bytes on a fast run.
STRETCH_CPU_S: Final = 2.5


@dataclass(frozen=True, slots=True)
class Row:
    """One table: a record size and the settings of all contestants."""

    name: str
    size_bytes: int
    records: int
    settings: Mapping[str, str]
    replicas: int = 3
    one_at_a_time: bool = False

    @property
    def contestants(self) -> Mapping[str, Contestant]:
        """Returns all contestants; the ceiling only if its batches are the row's."""
        has_ceiling = self.settings["batch.size"] == BATCHES_16K["batch.size"]
        return {name: each for name, each in CONTESTANTS.items() if has_ceiling or name != CEILING}

    @property
    def title(self) -> str:
        settings = self.settings
        idempotence = "idempotence" if settings["enable.idempotence"] == "true" else "no idempotence"
        packing = settings["compression.type"]
        return (
            f"library produce, {self.name}: {self.size_bytes:,} B records, acks {settings['acks']}, "
            f"{idempotence}, {self.replicas} replica{'s' if self.replicas > 1 else ''}, "
            f"linger {settings['linger.ms']} ms, {int(settings['batch.size']) // 1024} KiB batches, "
            f"compression {packing}" + (", one at a time" if self.one_at_a_time else "")
        )


ROWS: Final = (
    Row("100 B, 16 KiB", 100, 100_000, {**ALL, **BATCHES_16K}),
    Row("100 B, 64 KiB", 100, 100_000, {**ALL, **BATCHES_64K}),
    Row("100 B, 64 KiB, lz4", 100, 100_000, {**ALL, **BATCHES_64K, **LZ4}),
    Row("1 KiB, 64 KiB", 1_024, 30_000, {**ALL, **BATCHES_64K}),
    Row("100 B, 16 KiB, acks 1", 100, 100_000, {**ONE, **BATCHES_16K}, replicas=1),
    Row("one synchronous send", 100, 300, {**ALL, **NO_LINGER}, one_at_a_time=True),
)


@dataclass(frozen=True, slots=True)
class Turn(Sample):
    """A sample, with the wait of each record if records were sent one by one."""

    p50_ms: float


class Figures:
    """A row's results: medians by contestant."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]]) -> None:
        self.cpu_us = {name: median(s.cpu_us_per_operation for s in turns) for name, turns in samples.items()}
        self.per_s = {name: median(s.per_wall_s for s in turns) for name, turns in samples.items()}
        self.p50_ms = {
            name: median(turn.p50_ms for turn in turns if isinstance(turn, Turn))
            for name, turns in samples.items()
        }


class Contest:
    """One row on its topic: the contestants' processes."""

    def __init__(self, row: Row, topic: str, bootstrap_servers: str, share: float) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, **row.settings}
        self._row = row
        self._arguments = (topic, *(f"{name}={value}" for name, value in settings.items()))
        self._share = share

    def turn(self, name: str, contestant: Contestant, stack: contextlib.ExitStack) -> Callable[[], Sample]:
        """Returns a function that runs a turn. The contestant's process ends with the stack or the turn."""
        row = self._row
        records = int(row.records * self._share * (1 if row.one_at_a_time else contestant.share))
        if contestant.one_turn:
            return partial(self._only_turn, name, contestant, records)
        peer = stack.enter_context(self._start(contestant))
        self._ask(name, peer, self._warm_up)
        return partial(self._ask, name, peer, records)

    @property
    def _warm_up(self) -> int:
        return int(self._row.records * WARM_UP_SHARE)

    def _only_turn(self, name: str, contestant: Contestant, records: int) -> Turn:
        with self._start(contestant) as peer:
            self._ask(name, peer, self._warm_up)
            return self._ask(name, peer, records)

    def _start(self, contestant: Contestant) -> contextlib.AbstractContextManager[Peer]:
        start = JavaPeer if contestant.program == _JAVA_PROGRAM else LinePeer
        return start(contestant.program, *self._arguments)

    def _ask(self, name: str, peer: Peer, records: int) -> Turn:
        row = self._row
        answer = peer.ask(f"{'wait' if row.one_at_a_time else 'run'} {row.size_bytes} {records}")
        if answer["acknowledged"] != records:
            raise SystemExit(
                f"{name}: {answer['acknowledged']} of {records} records were acknowledged: {row.title}"
            )
        return Turn(records, answer["wall_s"], answer["cpu_s"], answer.get("p50_ms", 0.0))


def measure(row: Row, kafka: KraftCluster, *, rounds: int, share: float) -> Figures:
    """Runs the contestants in turn for a row, on its own topic."""
    topic = row.name.replace(",", "").replace(" ", "-")
    kafka.admin.create_topic(
        topic,
        partitions=PARTITIONS,
        replication_factor=row.replicas,
        # Deletes files at once: all rows together would fill a small disk.
        config={"min.insync.replicas": str(min(2, row.replicas)), "file.delete.delay.ms": "0"},
    )
    contest = Contest(row, topic, kafka.bootstrap_servers, share)
    with contextlib.ExitStack() as stack:
        turns = {name: contest.turn(name, each, stack) for name, each in row.contestants.items()}
        figures = Figures(in_turns(turns, rounds))
    kafka.admin.delete_topic(topic)
    return figures


def show(row: Row, figures: Figures) -> None:
    ours = figures.cpu_us[OURS]
    head = ["producer", "records/s", "CPU s per million", "CPU, ours / theirs"]
    lines: list[list[object]] = [
        [name, figures.per_s[name], cpu_us, ours / cpu_us] for name, cpu_us in figures.cpu_us.items()
    ]
    if row.one_at_a_time:
        head[1:1] = ["p50 ms"]
        for line in lines:
            line[1:1] = [figures.p50_ms[str(line[0])]]
    table(row.title, head, lines)


def goals_of(row: Row, figures: Figures) -> list[Goal]:
    """Returns the goals: less CPU than each peer, and no longer wait where records are sent one by one."""
    peers = (*PEERS, *STRETCH)
    goals = [_no_more(row, "CPU per record", figures.cpu_us, peer) for peer in peers]
    goals.append(_no_more(row, "CPU per record, asyncio", figures.cpu_us, AIOKAFKA, OURS_ASYNCIO))
    if row.one_at_a_time:
        goals += [_no_more(row, "p50 ms", figures.p50_ms, peer) for peer in peers]
        goals.append(_no_more(row, "p50 ms, asyncio", figures.p50_ms, AIOKAFKA, OURS_ASYNCIO))
    return goals


def _no_more(row: Row, what: str, figures: Mapping[str, float], peer: str, ours: str = OURS) -> Goal:
    name = f"{'stretch: ' if peer in STRETCH else ''}library produce, {row.name}, {what} against {peer}"
    return goal(name, ours=figures[ours], peer=figures[peer], at_most=1.0)


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    rounds, share = (1, 0.1) if quick else (ROUNDS, 1.0)
    outcome: list[tuple[Row, Figures]] = []
    with three_brokers() as kafka:
        for row in ROWS:
            figures = measure(row, kafka, rounds=rounds, share=share)
            show(row, figures)
            outcome.append((row, figures))
    goals = [line for row, figures in outcome for line in goals_of(row, figures)]
    dearest_us = max(
        figures.cpu_us[OURS]
        for row, figures in outcome
        if row.settings["linger.ms"] != "0" and row.size_bytes == 100
    )
    goals.append(
        goal(
            f"stretch: library produce, 100 B, CPU s per million of the dearest row against {STRETCH_CPU_S}",
            ours=dearest_us,
            peer=STRETCH_CPU_S,
            at_most=1.0,
        )
    )
    report(goals)


if __name__ == "__main__":
    main()
