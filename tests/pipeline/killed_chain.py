"""A driver killed again and again, each time at a later point, and its tables in the end.

    python -m tests.pipeline.killed_chain [few]     every point, both stores: `make test-pipeline-killed`

Then there is a run on each state of the disk after each file-system call of a first, a later and a rebuilding
run, of `forget` and of `maintain` (killed_states.py). Kills at random times: killed_times.py.

A chain is one pair of stores (Parquet, Delta) and one driver after the other on them. All but the last are
killed with SIGKILL at a point of their own (killed_job.py); the last runs to its end.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.stores.store import KINDS
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_job import ALL
from tests.pipeline.killed_states import run_on_each_state
from tests.pipeline.simulate import plan_for, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.pipeline.kept_tables import Tables

_ROOT: Final = Path(__file__).parents[2]
#: Each where a driver that is killed there, and restarted, comes to the next one.
POINTS: Final = (
    "offsets",  # the batch is known, nothing of it is done
    "bronze_events",  # half of bronze
    "bronze_rejects",  # all of bronze
    "batch",  # all of the batch, but for its commit
    "offsets:2",  # the first batch is committed in between
    "silver_leader_epochs",  # Parquet: silver is half the old one; Delta: half of silver has the batch
    "gold_leader_history",  # half of gold
    "fresh",  # everything, but for the end of the process
)


def write_events(folder: Path) -> None:
    """A small fleet's files: four, so two batches; with lines that are late, doubled and broken."""
    write(
        plan_for(1000, seed=7, late=0.05, duplicates=0.05, broken=0.05),
        folder,
        folder.with_suffix(".truth.json"),
    )


def run_killed_at(points: Sequence[str], events: str | Path, out: Path, tables: str = ALL) -> None:
    """One driver after the other, each killed at its point; then one that is not."""
    for point in (*points, ""):
        done = driver([str(events), str(out), tables, point])
        wanted = -signal.SIGKILL if point else 0
        assert done.returncode == wanted, f"at {point}: {done.returncode}\n{done.stderr}"


def kill_at_all_points(events: Path, out: Path, wanted: Tables, tables: str) -> int:
    """Both stores' chain of drivers, killed at one point after the other; how many differ at its end."""
    run_killed_at(POINTS, events, out, tables)
    wrong = {kind: differences(kept_tables(out / kind), wanted) for kind in KINDS}
    for kind in KINDS:
        _say(f"{kind}, killed at {', '.join(POINTS)}: {wrong[kind] or 'the same tables'}")
    return sum(map(bool, wrong.values()))


def undisturbed(events: str | Path, out: Path, tables: str) -> Tables:
    """Returns the tables of a run to its end."""
    run_killed_at((), events, out, tables)
    return kept_tables(out / KINDS[0])


def _say(line: str) -> None:
    print(line, flush=True)


def driver(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """killed_job with these arguments, in a process group of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tests.pipeline.killed_job", *words],
        cwd=_ROOT,
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )


def main(tables: str = ALL) -> int:
    """Prints what it finds; 1 if any table differs. Minutes, all cores; fewer with a `few` of the tables."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        events = work / "events"
        write_events(events)
        wanted = undisturbed(events, work / "undisturbed", tables)
        rows = sum(sum(table.values()) for table in wanted.values())
        _say(f"undisturbed: {rows:,} rows in {len(wanted)} tables")
        wrong = kill_at_all_points(events, work / "killed", wanted, tables)
        wrong += run_on_each_state(events, work / "states")
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
