"""docs/reliability.md, written from what a run found; its figures come from nowhere else.

`results.json` beside this file keeps the rows of the last whole run, so that a test can hold the page to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESULTS: Final = Path(__file__).with_name("results.json")
_TEMPLATE: Final = Path(__file__).with_name("page.md")
PAGE: Final = Path(__file__).parents[2] / "docs" / "reliability.md"
_COLUMNS: Final = (
    "fault",
    "requests",
    "acknowledged",
    "failed",
    "lost",
    "duplicated",
    "longest without a success, ms",
    "Java's",
    "MB before, after",
)


def write(results: Mapping[str, Any]) -> None:
    """Keeps the results of a whole run, and writes the page from them."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


def page(results: Mapping[str, Any]) -> str:
    """The page of these results."""
    rows = results["rows"]
    tables = []
    for group in dict.fromkeys(row["group"] for row in rows):
        of_group = [row for row in rows if row["group"] == group]
        tables.append(f"### {group[0].upper()}{group[1:]}\n\n{_table(of_group)}")
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        kafka=results["kafka"],
        seed=results["seed"],
        faults=len(rows),
        minutes=round(results["seconds"] / 60),
        partitions=results["partitions"],
        faults_tables="\n".join(tables),
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in rows:
        doubled = f"{row['duplicated']}"
        if row["at_least_once"]:
            doubled += f" (at least once: {row['at_least_once']})"
        cells = (
            row["fault"] + ("" if row["withstood"] else ": **not withstood**"),
            f"{row['requests']:,}",
            f"{row['acknowledged']:,}",
            f"{row['failed'] + row['unanswered']:,}",
            row["lost"],
            doubled,
            _whole(row["gap_ms"]),
            _whole(row["java_gap_ms"]),
            f"{_whole(row['before_mb'])}, {_whole(row['after_mb'])}",
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _whole(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,.0f}"
