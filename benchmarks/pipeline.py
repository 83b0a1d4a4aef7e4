"""Measures the data pipeline on one machine: an event's cost, its growth, and duckdb in place of Spark.

    make bench-pipeline                             2,000, 0.1M, 1M and 10M events
    python -m benchmarks.pipeline --all             also 100M: 40 GB of events, and hours
    python -m benchmarks.pipeline --sizes 100000 --rounds 1 --results /tmp/r.json     during development

    whole job         `pilotfish-pipeline run --once`, files into Parquet: bronze, silver, all of gold. CPU of
                      the driver, the JVM and all other children; a new process each time, including the start
    leader history    the job's way against plain window functions over the same bronze, in one session
    duckdb            six of the gold tables from the same files, in its own process

The events are those of `python -m tests.pipeline.simulate`: a fifth of them about one partition, 1 % of the
lines duplicated, 0.1 % broken. The fleet is calmer than the simulator's default: three failures and six
incidents in four hours, because the events of more do not fit into ten million. They are made once and kept
in `.cache/bench-pipeline`. `growth` is the exponent of CPU over events: 1 is linear. The JVM's start
dominates small sizes, so the growth of the difference is reported too. Recorded in results-pipeline.json, as
`make bench` replaces results.json as a whole.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import click

from benchmarks.measure import Goal, goal, record, table
from benchmarks.process_tree import run_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS: Final = Path(__file__).with_name("results-pipeline.json")
KEPT: Final = Path(".cache/bench-pipeline")
#: The first is a small fleet's run: only what each run costs.
SIZES: Final = (2_000, 100_000, 1_000_000, 10_000_000)
LARGEST: Final = 100_000_000
ROUNDS: Final = 3
SEED: Final = 7
#: With more of them, failures alone give a sidecar more than its share of ten million events.
_FAILURES_AN_HOUR: Final = "0.75"
_CALM: Final = ("--churn", _FAILURES_AN_HOUR, "--incidents", "1.5")

#: Bound: CPU of leader history by facts / by plain windows, at ten million events.
HISTORY_GOAL: Final = 0.35
HISTORY_SIZE: Final = 10_000_000
#: Bound: close to linear.
GROWTH_GOAL: Final = 1.1
_DRIVER_MEMORY: Final = "4g"


@dataclass(frozen=True, slots=True)
class Run:
    """One row of the table of costs."""

    what: str
    events: int
    input_bytes: int
    cpu_s: float
    wall_s: float
    peak_bytes: int

    @property
    def events_per_cpu_s(self) -> float:
        return self.events / self.cpu_s


@click.command()
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="Events, by commas.")
@click.option("--all", "with_largest", is_flag=True, help="100 million as well.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Of leader history.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="Where to record.")
def main(sizes: str, with_largest: bool, rounds: int, results: Path) -> None:
    """Measures, prints and records."""
    asked = sorted({int(size) for size in sizes.split(",")} | ({LARGEST} if with_largest else set()))
    history_size = HISTORY_SIZE if HISTORY_SIZE in asked else asked[-1]
    runs: list[Run] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(dir=_folder(KEPT)) as scratch:
        for size in asked:
            events = made_events(size)
            tables = Path(scratch) / "tables"
            runs.append(whole_job(size, events, tables))
            runs.append(by_duckdb(size, events, Path(scratch) / "duckdb", tables))
            if size == history_size:
                goals += leader_history(size, tables, rounds, Path(scratch))
            shutil.rmtree(tables)
    goals += growth(runs)
    show(runs, goals)
    keep(runs, goals, results)


def made_events(size: int) -> Path:
    """Returns the folder with so many events; makes it if it is missing."""
    folder = _folder(KEPT) / f"events-{size}-{SEED}-{_FAILURES_AN_HOUR}"
    if not folder.with_name(f"{folder.name}.truth.json").exists():
        _say(f"making {size:,} events")
        shutil.rmtree(folder, ignore_errors=True)
        command = [*_python("tests.pipeline.simulate"), "--out", str(folder), "--events", str(size)]
        run_tree([*command, "--seed", str(SEED), *_CALM], _log("simulate"))
    return folder


def whole_job(size: int, events: Path, tables: Path) -> Run:
    """Runs the job for the first time over all events, into a new folder."""
    _say(f"run over {size:,} events")
    options = {"source": "files", "input": str(events), "out": str(tables)}
    options |= {"master": "local[2]", "memory": _DRIVER_MEMORY}
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    cost = run_tree([*_python("pipeline.cli"), "run", *flags, "--once", "--no-progress"], _log("run"))
    return Run("whole job", size, _bytes(events), cost.cpu_s, cost.wall_s, cost.peak_bytes)


def by_duckdb(size: int, events: Path, out: Path, tables: Path) -> Run:
    """Makes six gold tables with duckdb. Prints where its row count differs from the job's."""
    _say(f"duckdb over {size:,} events")
    log = _log("duckdb")
    cost = run_tree([*_python("benchmarks.pipeline_duckdb"), str(events), str(out)], log)
    shutil.rmtree(out)
    theirs: dict[str, int] = _reported(log)
    for name, rows in theirs.items():
        ours = _rows(tables / name)
        if ours != rows:
            click.echo(f"  {name}: {ours:,} rows by the job, {rows:,} by duckdb", err=True)
    return Run("duckdb, six tables", size, _bytes(events), cost.cpu_s, cost.wall_s, cost.peak_bytes)


def leader_history(size: int, tables: Path, rounds: int, scratch: Path) -> list[Goal]:
    """Compares the job's leader history with plain windows, by the median of CPU."""
    _say(f"leader history over {size:,} events, {rounds} rounds")
    log = scratch / "history.log"
    run_tree([*_python("benchmarks.pipeline_history"), str(tables), str(rounds)], log)
    reported: dict[str, Any] = _reported(log)
    cpu_s = {name: median(cpu for cpu, _ in costs) for name, costs in reported["costs"].items()}
    wall_s = {name: median(wall for _, wall in costs) for name, costs in reported["costs"].items()}
    table(
        f"leader history over {size:,} events",
        ("contestant", "CPU s", "wall s", "rows"),
        [(name, cpu_s[name], wall_s[name], reported["rows"][name]) for name in cpu_s],
    )
    millions = f"{size / 1_000_000:g}M"
    return [
        goal(
            f"pipeline, leader history of {millions} events, CPU against plain windows{note}",
            ours=cpu_s["facts"],
            peer=cpu_s[peer],
            at_most=HISTORY_GOAL,
        )
        for peer, note in (("windows", ""), ("lags", " with less detail (stretch)"))
    ]


def growth(runs: Sequence[Run]) -> list[Goal]:
    """Returns how the CPU of the whole job grows from each size to the next."""
    jobs = [run for run in runs if run.what == "whole job"]
    found: list[Goal] = []
    for small, large in itertools.pairwise(jobs):
        exponent = math.log(large.cpu_s / small.cpu_s) / math.log(large.events / small.events)
        sizes = f"{small.events / 1e6:g}M to {large.events / 1e6:g}M"
        name = f"pipeline, growth of CPU from {sizes} events, exponent"
        found.append(goal(name, ours=exponent, peer=1.0, at_most=GROWTH_GOAL))
        marginal = (large.events - small.events) / (large.cpu_s - small.cpu_s)
        _say(f"between {small.events:,} and {large.events:,}: {marginal:,.0f} events per CPU second")
    return found


def show(runs: Sequence[Run], goals: Sequence[Goal]) -> None:
    table(
        "what it costs",
        ("what", "events", "input MB", "CPU s", "wall s", "events per CPU s", "largest process MB"),
        [
            (
                run.what,
                run.events,
                run.input_bytes / 1e6,
                run.cpu_s,
                run.wall_s,
                run.events_per_cpu_s,
                run.peak_bytes / 1e6,
            )
            for run in runs
        ],
    )
    table(
        "goals",
        ("goal", "wanted", "ours", "peer", "ratio", "reached"),
        [(g.name, g.goal, g.ours, g.peer, g.ratio, "yes" if g.reached else "NO") for g in goals],
    )


def keep(runs: Sequence[Run], goals: Sequence[Goal], results: Path) -> None:
    """Records goals and costs; those of sizes that were not run stay."""
    before = json.loads(results.read_text())["runs"] if results.exists() else []
    record(goals, results)
    measured = {(run.what, run.events) for run in runs}
    kept = [run for run in before if (run["what"], run["events"]) not in measured]
    rows = sorted([*kept, *map(asdict, runs)], key=lambda run: (run["events"], run["what"]))
    outcome = json.loads(results.read_text()) | {"runs": rows}
    results.write_text(json.dumps(outcome, indent=1) + "\n")


def _rows(folder: Path) -> int:
    """Returns the row count of a table's Parquet files."""
    import pyarrow.dataset as ds

    return int(ds.dataset(str(folder), format="parquet").count_rows())


def _reported(log: Path) -> dict[str, Any]:
    """Returns the JSON object that a contestant printed among Spark's output."""
    line = next(line for line in reversed(log.read_text().splitlines()) if line.startswith("{"))
    reported: dict[str, Any] = json.loads(line)
    return reported


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _log(name: str) -> Path:
    return _folder(KEPT) / f"{name}.log"


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.jsonl"))


def _say(what: str) -> None:
    click.echo(f"== {what}", err=True)


if __name__ == "__main__":
    main()
