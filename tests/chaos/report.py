"""What the last whole run of all faults found, as Markdown for docs/reliability.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.duplicates import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESULTS: Final = Path(__file__).with_name("results.json")
_COLUMNS: Final = (
    "fault",
    "acknowledged",
    "duplicated",
    "longest without a success, ms",
    "Java's",
)
#: A letter for each cause, which the legend above the tables explains.
_CAUSES: Final = {rule.value: chr(ord("A") + index) for index, rule in enumerate(Rule)}


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
        f"{_counted(rows)}\n{_stored_twice(rows)}\n\nCauses of duplicates:\n\n"
    )
    text += "".join(f"- {letter}: {cause}.\n" for cause, letter in _CAUSES.items())
    for group in dict.fromkeys(row["group"] for row in rows):
        of_group = [row for row in rows if row["group"] == group]
        text += f"\n### {group[0].upper()}{group[1:]}\n\n{_table(of_group)}"
    return text


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in rows:
        cells = (
            row["fault"] + _faults(row),
            f"{row['acknowledged']:,}",
            _causes(row) or row["duplicated"],
            _whole(row["gap_ms"]),
            _whole(row["java_gap_ms"]),
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _faults(row: Mapping[str, Any]) -> str:
    """What a row's name is followed by, where the sidecar did not withstand the fault."""
    lost = f", {row['lost']} lost" if row["lost"] else ""
    return "" if row["withstood"] and not lost else f": **not withstood{lost}**"


def _counted(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the whole run counted."""
    of = {name: sum(row[name] for row in rows) for name in ("requests", "acknowledged", "lost")}
    most_mb = max((row["after_mb"] for row in rows if row["after_mb"] is not None), default=None)
    return (
        f"{of['requests']:,} requests, {of['acknowledged']:,} records acknowledged, "
        f"{of['lost']:,} of them lost. "
        f"The sidecar's memory (RSS) was {_whole(most_mb)} MB at most."
    )


def _stored_twice(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the whole run counted, of both clients."""
    of_java = [row["java_duplicated"] for row in rows if row["java_duplicated"] is not None]
    return (
        f"Records that were stored twice: {sum(row['duplicated'] for row in rows):,} of the sidecar's, "
        f"{sum(of_java):,} of the Java client's, which took part in {len(of_java)} faults."
    )


def _causes(row: Mapping[str, Any]) -> str:
    """Why records were stored twice, by the letters of the legend; nothing where none was."""
    causes = str(row["at_least_once"])
    for cause, letter in _CAUSES.items():
        causes = causes.replace(cause, letter)
    return causes


def _whole(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,.0f}"
