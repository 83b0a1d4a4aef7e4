"""What the last whole run of all faults found, as Markdown for docs/reliability.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESULTS: Final = Path(__file__).with_name("results.json")
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
    "at least once, for",
)


def write(results: Mapping[str, Any], path: Path = RESULTS) -> None:
    """Keeps the results of a whole run."""
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def chaos_tables(path: Path = RESULTS) -> str:
    """A table for each group of faults, and what they were measured by. FileNotFoundError before any run."""
    results = json.loads(path.read_text(encoding="utf-8"))
    rows = results["rows"]
    text = (
        f"Measured on {results['date']}, {results['machine']}: {len(rows)} faults in "
        f"{results['seconds'] / 60:.0f} minutes, seed {results['seed']}, Kafka {results['kafka']}.\n"
        f"{_stored_twice(rows)}\n"
    )
    for group in dict.fromkeys(row["group"] for row in rows):
        of_group = [row for row in rows if row["group"] == group]
        text += f"\n### {group[0].upper()}{group[1:]}\n\n{_table(of_group)}"
    return text


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in rows:
        cells = (
            row["fault"] + ("" if row["withstood"] else ": **not withstood**"),
            f"{row['requests']:,}",
            f"{row['acknowledged']:,}",
            f"{row['failed'] + row['unanswered']:,}",
            row["lost"],
            row["duplicated"],
            _whole(row["gap_ms"]),
            _whole(row["java_gap_ms"]),
            f"{_whole(row['before_mb'])}, {_whole(row['after_mb'])}",
            _why_twice(row),
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _stored_twice(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the whole run counted, of both clients."""
    of_java = [row["java_duplicated"] for row in rows if row["java_duplicated"] is not None]
    return (
        f"Records that were stored twice: {sum(row['duplicated'] for row in rows):,} of the sidecar's, "
        f"{sum(of_java):,} of the Java client's, which took part in {len(of_java)} faults."
    )


def _why_twice(row: Mapping[str, Any]) -> str:
    """Why a record may be there twice, and how many of Java's were; nothing where it may not."""
    why, javas = row["at_least_once"], row["java_duplicated"]
    return f"{why} (Java's client: {javas} twice)" if why and javas is not None else str(why)


def _whole(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,.0f}"
