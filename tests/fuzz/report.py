"""The last run that was kept, as a table in Markdown: for `docs/reliability.md`."""

from __future__ import annotations

from tests.fuzz.results import Part, Run


def inputs_tried_table(run: Run | None = None) -> str:
    """A row for each part of the run: what was tried, and how many faults were found."""
    run = Run.read() if run is None else run
    lines = [
        "| part | tried | faults |",
        "|---|--:|--:|",
    ]
    lines += [_row(part) for part in run.parts]
    lines += [
        "",
        f"Seed {run.seed}, Python {run.python}; `make fuzz` makes the same inputs from the same seed.",
    ]
    return "\n".join(lines)


def _row(part: Part) -> str:
    return f"| {part.name} | {part.inputs:,} {part.unit} | {len(part.faults)} |"
