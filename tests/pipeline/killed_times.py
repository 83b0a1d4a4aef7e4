"""Drivers that are killed with SIGKILL at random times, from files and from real Kafka, into both stores.

    python -m tests.pipeline.killed_times [KILLS [SEED]]     1 if a table differs, or a run can't resume

A chain is one store and one driver after the other on it. Each is killed at a time of its own, counted from
the start of the job; half of the times lie in its first second. A driver that comes to its end before has to
leave the same tables as an undisturbed run, as has one after the last kill. Two chains run at a time.
"""

from __future__ import annotations

import itertools
import random
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Producer

from pipeline.stores.store import KINDS
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_chain import driver, undisturbed, write_events
from tests.pipeline.killed_job import ALL, FEW, KAFKA, NEVER_CAME
from tests.support.kafka_home import find_kafka_home
from tests.support.kraft import KraftCluster

if TYPE_CHECKING:
    import subprocess

    from tests.pipeline.kept_tables import Tables

_TOPIC: Final = "pilotfish.events"
_PARTITIONS: Final = 3
_KILLS_A_CHAIN: Final = 10
_EARLY_MS: Final = (20, 1_000)
_LATE_MS: Final = (1_000, 12_000)
_NEVER_MS: Final = 10_000_000
#: All tables take three times as long: one chain in four has them.
_TABLES: Final = (FEW, FEW, FEW, ALL)


class Chain(NamedTuple):
    """Drivers on one store."""

    number: int
    kills: int
    source: str
    kind: str
    tables: str
    wanted: Tables

    def run(self, seed: int, folder: Path) -> int:
        """Returns how many of its drivers that came to their end did not leave the wanted tables."""
        times = random.Random(f"{seed}/{self.number}")
        wrong = killed = ended = 0
        while killed < self.kills:
            after_ms = times.randint(*times.choice((_EARLY_MS, _LATE_MS)))
            done = self._driver(folder / str(ended), after_ms)
            if done.returncode == -signal.SIGKILL:
                killed += 1
                continue
            wrong += self._is_wrong(folder / str(ended), done, killed)
            ended += 1
        out = folder / str(ended)
        return wrong + self._is_wrong(out, self._driver(out, _NEVER_MS), killed)

    def _driver(self, out: Path, after_ms: int) -> subprocess.CompletedProcess[str]:
        return driver([self.source, str(out), self.tables, f"after:{self.kind}:{after_ms}"])

    def _is_wrong(self, out: Path, done: subprocess.CompletedProcess[str], killed: int) -> bool:
        is_at_its_end = done.returncode == NEVER_CAME
        found = differences(kept_tables(out / self.kind), self.wanted) if is_at_its_end else done.stderr
        of = KAFKA if self.source.startswith(KAFKA) else "files"
        where = f"chain {self.number}, {of} to {self.kind}, {self.tables} tables, {killed} kills"
        print(f"{where}: {found or 'the same tables'}", flush=True)
        return bool(found)


def produce_events(events: Path, kafka: KraftCluster) -> str:
    """Returns the source of a new topic that has the files' lines."""
    # A line came when the broker appended it, however often it is read.
    config = {"message.timestamp.type": "LogAppendTime"}
    kafka.admin.create_topic(_TOPIC, partitions=_PARTITIONS, config=config)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number, file in enumerate(sorted(path for path in events.rglob("*") if path.is_file())):
        for line in file.read_bytes().splitlines():
            producer.produce(_TOPIC, line, partition=number % _PARTITIONS)
    assert producer.flush(60) == 0
    return f"{KAFKA}{kafka.bootstrap_servers}/{_TOPIC}"


def main(kills: int = 100, seed: int = 1) -> int:
    """Prints each end of a driver, and how many were killed."""
    home = find_kafka_home()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        work = Path(name)
        events = work / "events"
        write_events(events)
        with KraftCluster(home.java, home.jars, work / "kafka", brokers=1) as kafka:
            sources = (str(events), produce_events(events, kafka))
            wanted = {
                (source, tables): undisturbed(source, work / f"undisturbed-{number}-{tables}", tables)
                for number, source in enumerate(sources)
                for tables in (FEW, ALL)
            }
            kinds = itertools.cycle(itertools.product(sources, KINDS))
            tables = random.Random(seed)
            chains = []
            for number, first in enumerate(range(0, kills, _KILLS_A_CHAIN)):
                source, kind = next(kinds)
                which = tables.choice(_TABLES)
                count = min(_KILLS_A_CHAIN, kills - first)
                chains.append(Chain(number, count, source, kind, which, wanted[source, which]))
            wrong = sum(pool.map(lambda chain: chain.run(seed, work / f"chain-{chain.number}"), chains))
    print(f"{kills} kills in {len(chains)} chains, seed {seed}: {wrong} stuck or different", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
