"""Writes the generated tables of the documentation: from the code, the last benchmarks and the last faults.

    python docs/tables.py            writes them
    python docs/tables.py --check    exits 1 and names the file that is out of date

A table is between `<!-- table NAME -->` and `<!-- end of table -->`; the schema of events is a separate file.
`make docs` runs it; a test runs the check.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from service.base.settings import kafka_settings_table, settings_table
from service.events.schema import common_fields_table, fields_tables, schema_text
from service.wire.reasons import problems_table
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
    "docs/http.md",
    "docs/pipeline-cluster.md",
    "docs/reliability.md",
    "benchmarks/README.md",
)
PIPELINE: Final = "results-pipeline.json"
TABLE: Final = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

#: README's figures: a goal's name, the measured quantity, our unit, the peer.
SPEED: Final = (
    (
        "look-ups/s, leader, against bare uvicorn",
        "leader look-ups over HTTP, 16 connections",
        "/s",
        "uvicorn with a fixed body of the same bytes",
    ),
    (
        "HTTP produce, 1 x 64 connections, requests/s against the bridge",
        "HTTP produce, one record a request, 64 connections",
        "/s",
        "a small bridge of uvicorn and librdkafka",
    ),
    (
        "HTTP produce, 1 x 1 connections, p50 against the bare producer",
        "HTTP produce, one request at a time, median",
        " ms",
        "a minimal Python producer, with no retries and no checks",
    ),
    ("start to ready against one second", "start until ready", " s", "the goal"),
    ("RSS with 1k partitions against 70 MB", "resident memory, 1,000 partitions known", " MB", "the goal"),
)


def results(name: str = "results.json") -> dict[str, Any]:
    read: dict[str, Any] = json.loads((ROOT / "benchmarks" / name).read_text(encoding="utf-8"))
    return read


def figure(value: float) -> str:
    """Returns a number with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def goals_table(file: str = "results.json") -> str:
    """Returns all goals of a benchmark run: quantity, peer, and whether the goal was reached."""
    run = results(file)
    lines = [
        f"Measured on {run['date']}, {run['machine']}.",
        "",
        "| what | ours | theirs | ratio | goal | reached |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for goal in run["goals"]:
        reached = "yes" if goal["reached"] else "**no**"
        ours, peer, ratio = figure(goal["ours"]), figure(goal["peer"]), figure(goal["ratio"])
        bound = goal["goal"].replace("<=", "≤").replace(">=", "≥")
        lines.append(f"| {goal['name']} | {ours} | {peer} | {ratio} | {bound} | {reached} |")
    return "\n".join(lines)


def speed_table() -> str:
    """Returns README's five figures. Raises KeyError with the name of a goal that the last run lacks."""
    run = results()
    goals = {goal["name"]: goal for goal in run["goals"]}
    lines = [
        f"Measured on {run['date']}, {run['machine']}.",
        "",
        "| what | Pilotfish | compared with | goal reached |",
        "|---|---:|---|---|",
    ]
    for name, what, unit, peer in SPEED:
        goal = goals[name]
        reached = "yes" if goal["reached"] else "**no**"
        ours, theirs = figure(goal["ours"]), figure(goal["peer"])
        lines.append(f"| {what} | {ours}{unit} | {theirs}{unit}: {peer} | {reached} |")
    return "\n".join(lines)


def measured_pipeline(made: Callable[[], str]) -> str:
    """Returns a table of the pipeline's benchmark, which is run separately, if it was run."""
    if not (ROOT / "benchmarks" / PIPELINE).exists():
        return "Not measured yet: `make bench-pipeline`, then `make docs`."
    return made()


def pipeline_costs() -> str:
    """Returns the costs of the pipeline's runs, by number of events."""
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
    """Returns the goals that are not reached, as a list."""
    names = [
        f"- {goal['name']}: {figure(goal['ratio'])}, the goal is {goal['goal']}" for goal in not_reached()
    ]
    return "\n".join(names).replace("<=", "≤").replace(">=", "≥") or "All are reached."


def not_reached() -> list[dict[str, Any]]:
    return [goal for goal in results()["goals"] if not goal["reached"]]


TABLES: Final[dict[str, Callable[[], str]]] = {
    "settings": settings_table,
    "problems": problems_table,
    "kafka-settings": kafka_settings_table,
    "goals": goals_table,
    "missed": missed,
    "event-fields": common_fields_table,
    "event-types": fields_tables,
    "speed": speed_table,
    "pipeline-goals": lambda: measured_pipeline(lambda: goals_table(file=PIPELINE)),
    "chaos": chaos_tables,
    "inputs": inputs_tried_table,
    "soak": soak_table,
    "pipeline-costs": lambda: measured_pipeline(pipeline_costs),
}

#: Files that are generated as a whole.
WHOLE: Final[dict[str, Callable[[], str]]] = {"docs/event-v1.schema.json": schema_text}


def written(text: str) -> str:
    """Returns the text with each table up to date."""
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found['name']]()}\n{found[3]}", text)


def out_of_date() -> dict[str, str]:
    """Returns the files that are out of date, and their new texts."""
    now: dict[str, str] = {}
    for name in (*FILES, *WHOLE):
        path = ROOT / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = WHOLE[name]() if name in WHOLE else written(before)
        if before != after:
            now[name] = after
    return now


def main() -> int:
    stale = out_of_date()
    if "--check" in sys.argv:
        for name in stale:
            print(f"{name} is out of date; run: make docs", file=sys.stderr)
        return 1 if stale else 0
    for name, text in stale.items():
        (ROOT / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
