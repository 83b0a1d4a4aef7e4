"""The results of the last soak, as Markdown for docs/reliability.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RESULTS: Final = Path(__file__).with_name("results.json")

#: What the table shows of the judged numbers: the sentence below it counts all.
_NAMES: Final[Mapping[str, str]] = {
    "anonymous_bytes": "memory that is no file's, MB",
    "uss_bytes": "memory of its own (USS), MB",
    "rss_bytes": "memory (RSS), MB",
    "descriptors": "open descriptors",
    "threads": "threads",
    "metric_series": "metric series",
    "our objects": "objects of our own types",
}
_IN_MEGABYTES: Final = ("anonymous_bytes", "uss_bytes", "rss_bytes")
_MEGABYTE: Final = 1024 * 1024


def soak_table(results: Path = RESULTS) -> str:
    """The table and what it was measured by. FileNotFoundError before the first soak."""
    found = json.loads(results.read_text())
    sidecar, simulated = found["sidecar"], found["simulated"]
    lines = [
        f"Measured on {found['date']}, {found['machine']}, in {found['minutes']:g} minutes, "
        f"seed {found['seed']}.",
        "",
        "| what | after warm-up | at the end | may vary by | grows |",
        "|---|---:|---:|---:|---|",
        *_rows("a sidecar", sidecar["measures"]),
        *_rows("a client in simulated time", simulated["measures"]),
        "",
        _sentence(sidecar, simulated),
    ]
    return "\n".join(lines)


def _rows(whose: str, measures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"| {whose}: {called} | {_shown(name, measures[name]['settled'])} "
        f"| {_shown(name, measures[name]['later'])} | {_shown(name, measures[name]['allowed'])} "
        f"| {'**yes**' if measures[name]['grows'] else 'no'} |"
        for name, called in _NAMES.items()
        if name in measures
    ]


def _shown(name: str, value: float) -> str:
    return f"{value / _MEGABYTE:.1f}" if name in _IN_MEGABYTES else f"{value:,.0f}"


def _sentence(sidecar: Mapping[str, Any], simulated: Mapping[str, Any]) -> str:
    did, lived = sidecar["happened"], simulated["happened"]
    acts = sidecar["rounds"] * sidecar["acts a round"]
    return (
        f"The sidecar: {sidecar['rounds']:,} rounds, {acts:,} requests and other acts of callers, "
        f"{did['brokers at new ports']:,} brokers restarted; {_judged(sidecar)}. "
        f"Simulated: {simulated['simulated minutes'] / 60:.0f} hours, "
        f"{lived['outages']:,} outages; {_judged(simulated)}."
    )


def _judged(part: Mapping[str, Any]) -> str:
    return f"{part['judged']:,} numbers judged, {len(part['grows'])} grow"
