"""`python -m tests.chaos`: all faults under load, and results.json for docs/reliability.md.

    --seed N         draws the combinations and the victims; printed, random unless given
    --only WORDS     faults whose name contains these words; nothing is kept then
    --hours N        draws combinations of several faults for so long; nothing is kept then
    --list           their names

Ends with 1 where a promise was broken, and after --minutes, twenty unless given, with what it has.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.chaos import report
from tests.chaos.combinations import endless
from tests.chaos.faults import all_faults
from tests.chaos.play import play
from tests.chaos.stage import Stage
from tests.support.chaos_kraft import ChaosCluster
from tests.support.kafka_home import find_kafka_home
from tests.support.kafka_jars import KAFKA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.chaos.fault import Fault
    from tests.chaos.play import Row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    faults = [fault for fault in all_faults(arguments.seed) if arguments.only in fault.name]
    if arguments.list:
        print(*(f"{fault.group}: {fault.name}" for fault in faults), sep="\n")
        return 0
    if not faults:
        print(f"no fault has {arguments.only!r} in its name; --list shows them", file=sys.stderr)
        return 2
    print(f"seed {arguments.seed}, {len(faults)} faults", flush=True)
    began_s = time.monotonic()
    if arguments.hours:
        rows = _played(endless(arguments.seed), arguments.seed, began_s + 3_600 * arguments.hours)
        print(f"{len(rows)} combinations played, {sum(not row.withstood for row in rows)} not withstood")
        return 0 if rows and all(row.withstood for row in rows) else 1
    rows = _played(faults, arguments.seed, began_s + 60 * arguments.minutes)
    seconds = time.monotonic() - began_s
    broken = [row for row in rows if not row.withstood]
    print(f"{len(rows)} of {len(faults)} faults played in {seconds:.0f} s, {len(broken)} not withstood")
    if not arguments.only:
        report.write(
            {
                "date": datetime.now(UTC).date().isoformat(),
                "machine": _machine(),
                "kafka": KAFKA_VERSION,
                "seed": arguments.seed,
                "seconds": seconds,
                "rows": [row.document() for row in rows],
            }
        )
    return 1 if broken or len(rows) < len(faults) else 0


def _played(faults: Iterable[Fault], seed: int, deadline_s: float) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        folder = Path(temporary)
        home = find_kafka_home()
        with (
            ChaosCluster(home, folder / "kafka") as cluster,
            Stage(cluster, home, folder, Random(seed)) as stage,
        ):
            for fault in faults:
                if time.monotonic() > deadline_s:
                    print("time is up", file=sys.stderr)
                    break
                row = play(stage, fault)
                rows.append(row)
                _report(row)
    return rows


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _report(row: Row) -> None:
    print(
        f"{'ok ' if row.withstood else 'NOT'} {row.seconds:5.1f} s  {row.fault}: "
        f"{row.acknowledged} acknowledged, "
        f"{row.failed}+{row.unanswered} failed, {row.lost} lost, {row.duplicated} duplicated, "
        f"gap {row.gap_ms} ms, Java's {row.java_gap_ms}",
        flush=True,
    )
    for sentence in row.sentences:
        print(f"      {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
