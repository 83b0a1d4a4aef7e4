"""A driver killed again and again, each time further on, and what its tables are in the end.

    python -m tests.pipeline.killed_chain [few]     every point, both stores: `make test-pipeline-killed`

Then each store's first run again, killed at instants that nobody chose: KILLS of them, from its first tenth
of a second on, further apart the later they are. A driver that is killed goes on with what the one before
it left, every second time; else it begins anew, as the first writes of tables are what is tried. And what
lay on the disk at each moment of a first run: a run on each of these.

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

from pipeline.simulate import plan_for, write
from pipeline.stores.store import KINDS
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_job import ALL, FEW, NEVER_CAME
from tests.pipeline.killed_states import run_on_each_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.pipeline.kept_tables import Tables

#: Of a first run, so many are killed, in each store.
KILLS: Final = 12
_FIRST_KILL_MS: Final = 100
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


def run_killed_at(points: Sequence[str], events: Path, out: Path, tables: str = ALL) -> None:
    """One driver after the other, each killed at its point; then one that is not."""
    for point in (*points, ""):
        done = driver([str(events), str(out), tables, point])
        wanted = -signal.SIGKILL if point else 0
        assert done.returncode == wanted, f"at {point}: {done.returncode}\n{done.stderr}"


def kill_first_runs(events: Path, out: Path, wanted: Tables, tables: str) -> dict[str, int]:
    """Each store's first run, killed ever later; then a run to the end, whose tables are compared."""
    stuck = {}
    for kind in KINDS:
        stuck[kind] = 0
        for kill in range(KILLS):
            after_ms = round(_FIRST_KILL_MS * 1.4**kill)
            folder = out / f"{kind}-{kill}"
            words = [str(events), str(folder), tables]
            for point in [f"after:{kind}:{after_ms}"] * (1 + kill % 2):
                killed = driver([*words, point])
                assert killed.returncode in (-signal.SIGKILL, NEVER_CAME), killed.stderr
            done = driver([*words, ""])
            found = differences(kept_tables(folder / kind), wanted) if done.returncode == 0 else done.stderr
            stuck[kind] += bool(found)
            print(f"{kind}, killed {after_ms} ms after its first run began: {found or 'the same tables'}")
    return stuck


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
    """Prints what it finds; 1 if any table differs. Some minutes; fewer with a `few` of the tables."""
    with tempfile.TemporaryDirectory() as name:
        events, killed, undisturbed = (Path(name) / part for part in ("events", "killed", "undisturbed"))
        write_events(events)
        run_killed_at((), events, undisturbed, tables)
        wanted = kept_tables(undisturbed / KINDS[0])
        rows = sum(sum(table.values()) for table in wanted.values())
        print(f"undisturbed: {rows:,} rows in {len(wanted)} tables")
        run_killed_at(POINTS, events, killed, tables)
        wrong = {kind: differences(kept_tables(killed / kind), wanted) for kind in KINDS}
        for kind in KINDS:
            print(f"{kind}, killed at {', '.join(POINTS)}: {wrong[kind] or 'the same tables'}")
        few = Path(name) / "few"
        run_killed_at((), events, few, FEW)
        stuck = kill_first_runs(events, Path(name) / "first", kept_tables(few / KINDS[0]), FEW)
        torn = run_on_each_state(events, Path(name) / "states")
        return 1 if any(wrong.values()) or any(stuck.values()) or torn else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
