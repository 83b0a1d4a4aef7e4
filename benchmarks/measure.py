"""Measures contestants in turn: CPU and wall time, medians, ratios, goals.

Not for tests: no test uses a clock to judge speed.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROUNDS: Final = 5
#: The goals of the last whole run. Only a whole run replaces it, so its date is that of each row.
RESULTS: Final = Path(__file__).parent / "results.json"
#: Where `make bench` has each benchmark record its goals; a benchmark that runs alone records none.
RESULTS_VARIABLE: Final = "PILOTFISH_BENCH_RESULTS"


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn of one contestant: operations, wall time and CPU time."""

    operations: int
    wall_s: float
    cpu_s: float

    @property
    def per_wall_s(self) -> float:
        return self.operations / self.wall_s

    @property
    def cpu_us_per_operation(self) -> float:
        return self.cpu_s / self.operations * 1e6


@dataclass(frozen=True, slots=True)
class Goal:
    """One result. `goal` is a condition on `ratio`, such as `>= 0.9`."""

    name: str
    goal: str
    ours: float
    peer: float
    ratio: float
    reached: bool


def goal(
    name: str, *, ours: float, peer: float, at_least: float | None = None, at_most: float | None = None
) -> Goal:
    """Compares ours / peer with a bound."""
    ratio = ours / peer
    if at_least is not None:
        return Goal(name, f">= {at_least}", ours, peer, round(ratio, 3), ratio >= at_least)
    assert at_most is not None, "a goal needs a bound"
    return Goal(name, f"<= {at_most}", ours, peer, round(ratio, 3), ratio <= at_most)


def timed(operations: int, run: Callable[[], object]) -> Sample:
    """Runs a function in this process; measures wall time and this process's CPU time, all threads."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Sample(operations, time.perf_counter() - wall, time.process_time() - cpu)


def in_turns(
    contestants: Mapping[str, Callable[[], Sample]], rounds: int = ROUNDS
) -> dict[str, list[Sample]]:
    """Runs every contestant once per round, in turn, so that a slow minute of the machine affects all."""
    samples: dict[str, list[Sample]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            samples[name].append(run())
    return samples


def median(samples: Sequence[Sample], figure: Callable[[Sample], float]) -> float:
    return statistics.median(figure(sample) for sample in samples)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under a head, with columns as wide as needed."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    print(f"\n{title}")
    for row in cells:
        print(
            "  "
            + "  ".join(
                text.ljust(w) if i == 0 else text.rjust(w)
                for i, (text, w) in enumerate(zip(row, widths, strict=True))
            )
        )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def machine() -> str:
    """Describes the machine for the record: processor, cores, Python."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def record(goals: Sequence[Goal], path: Path) -> None:
    """Writes the goals into the file; those of other benchmarks stay."""
    kept = json.loads(path.read_text())["goals"] if path.exists() else []
    named = {g.name for g in goals}
    rows = [row for row in kept if row["name"] not in named] + [asdict(g) for g in goals]
    outcome = {"machine": machine(), "date": datetime.now(UTC).date().isoformat(), "goals": rows}
    path.write_text(json.dumps(outcome, indent=1) + "\n")


def report(goals: Sequence[Goal]) -> None:
    """Prints the goals, and records them if this is part of `make bench`."""
    table(
        "goals",
        ("goal", "wanted", "ours", "peer", "ratio", "reached"),
        [
            (g.name, g.goal, float(g.ours), float(g.peer), g.ratio, "yes" if g.reached else "NO")
            for g in goals
        ],
    )
    path = os.environ.get(RESULTS_VARIABLE)
    if path:
        record(goals, Path(path))
    else:
        print("Not recorded: `make bench` records all benchmarks, in one run.")


def process_cpu_s(pid: int) -> float:
    """Returns the CPU seconds that a process has used so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Returns the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
