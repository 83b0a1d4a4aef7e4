"""Writes the tables in the documentation that say what the code, the last benchmarks and the last faults say.

    python docs/tables.py            writes them
    python docs/tables.py --check    exits 1 and names the file where one is out of date

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`; the schema of events is a file of
its own. Run by `make docs`; a test runs the check.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from service.base.settings import kafka_settings_table, settings_table
from service.events.schema import common_fields_table, fields_tables, schema_text
from tests.chaos.report import chaos_tables
from tests.fuzz.report import inputs_tried_table
from tests.soak.report import soak_table

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parent.parent
FILES: Final = (
    "README.md",
    "docs/settings.md",
    "docs/events.md",
    "docs/pipeline-cluster.md",
    "docs/reliability.md",
    "benchmarks/README.md",
)
PIPELINE: Final = "results-pipeline.json"
TABLE: Final = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

#: The goals that README shows, by the beginnings of their names: the best and the worst of each kind.
SHOWN: Final = (
    "refresh of 10k partitions, again",
    "refresh of 100k partitions, one broker down, CPU against Java",
    "look-ups/s, leader",
    "look-ups/s, topic",
    "HTTP produce, 1 x 1 connections, p50",
    "HTTP produce, 1 x 64 connections, requests/s",
    "HTTP produce, 1 x 64 connections, CPU",
    "HTTP produce, 1000 x 4 connections, requests/s",
    "library produce, 100 B, 16 KiB, CPU",
    "library produce, one synchronous send, p50",
    "HTTP failover, acks=1, longest gap",
    "start to ready against one second",
    "RSS with 1k partitions",
)


def results(name: str = "results.json") -> dict[str, Any]:
    read: dict[str, Any] = json.loads((ROOT / "benchmarks" / name).read_text(encoding="utf-8"))
    return read


def figure(value: float) -> str:
    """Three digits that matter, as people write them."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def goals_table(*beginnings: str, file: str = "results.json") -> str:
    """The goals whose names begin so, all of them without any."""
    run = results(file)
    lines = [
        f"Measured on {run['date']}, {run['machine']}.",
        "",
        "| what | ours | theirs | ratio | goal | reached |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for goal in run["goals"]:
        if not beginnings or goal["name"].startswith(beginnings):
            reached = "yes" if goal["reached"] else "**no**"
            ours, peer, ratio = figure(goal["ours"]), figure(goal["peer"]), figure(goal["ratio"])
            bound = goal["goal"].replace("<=", "≤").replace(">=", "≥")
            lines.append(f"| {goal['name']} | {ours} | {peer} | {ratio} | {bound} | {reached} |")
    return "\n".join(lines)


def measured_pipeline(made: Callable[[], str]) -> str:
    """A table of the pipeline's benchmark, which is run apart from the others, if it was run."""
    if not (ROOT / "benchmarks" / PIPELINE).exists():
        return "Not measured yet: `make bench-pipeline`, then `make docs`."
    return made()


def pipeline_costs() -> str:
    """What runs of the pipeline cost, by number of events."""
    lines = [
        "| what | events | input | CPU | wall | events per CPU second | largest process |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for run in results(PIPELINE)["runs"]:
        cells = [
            run["what"],
            f"{run['events']:,}",
            f"{figure(run['input_bytes'] / 1e6)} MB",
            f"{figure(run['cpu_s'])} s",
            f"{figure(run['wall_s'])} s",
            figure(run["events"] / run["cpu_s"]),
            f"{figure(run['peak_bytes'] / 1e6)} MB",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def missed() -> str:
    """The goals that are not reached, as a list."""
    names = [
        f"- {goal['name']}: {figure(goal['ratio'])}, the goal is {goal['goal']}" for goal in not_reached()
    ]
    return "\n".join(names).replace("<=", "≤").replace(">=", "≥") or "All are reached."


def not_reached() -> list[dict[str, Any]]:
    return [goal for goal in results()["goals"] if not goal["reached"]]


TABLES: Final[dict[str, Callable[[], str]]] = {
    "settings": settings_table,
    "kafka-settings": kafka_settings_table,
    "goals": goals_table,
    "missed": missed,
    "event-fields": common_fields_table,
    "event-types": fields_tables,
    "speed": lambda: goals_table(*SHOWN),
    "pipeline-goals": lambda: measured_pipeline(lambda: goals_table(file=PIPELINE)),
    "chaos": chaos_tables,
    "inputs": inputs_tried_table,
    "soak": soak_table,
    "pipeline-costs": lambda: measured_pipeline(pipeline_costs),
}

#: Files that are made as a whole.
WHOLE: Final[dict[str, Callable[[], str]]] = {"docs/event-v1.schema.json": schema_text}


def written(text: str) -> str:
    """The text with each table as it is now."""
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found['name']]()}\n{found[3]}", text)


def main() -> int:
    stale = 0
    for name in (*FILES, *WHOLE):
        path = ROOT / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = WHOLE[name]() if name in WHOLE else written(before)
        if before == after:
            continue
        if "--check" in sys.argv:
            print(f"{name} is out of date; run: make docs", file=sys.stderr)
            stale = 1
        else:
            path.write_text(after, encoding="utf-8")
    return stale


if __name__ == "__main__":
    raise SystemExit(main())
