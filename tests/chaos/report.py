"""docs/reliability.md, written from what a run found; its figures come from nowhere else.

`results.json` beside this file keeps the rows of the last whole run, so that a test can hold the page to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "reliability.md"

_HEAD: Final = """# Reliability

What was done to a sidecar under load, to its brokers and to the network between, and what became of the records. All of it
is measured, by `make chaos`, `make fuzz` and `make soak`, which write this page; a few of the faults are part of `make test`.

## What is promised

- A record that was acknowledged is stored, at the offset and in the partition that were answered.
- A record that failed with `"written":"no"` is not stored; with `"written":"unknown"`, or without an answer, it may be. It is
  never stored with another key, value or partition than was sent.
- Records of one caller and key that are acknowledged stand in the order in which they were sent.
- Nothing is stored twice, but where the last column says why it may be: the [spool](spool.md), and a caller's own repetition
  under an idempotency key that a restart forgot.
- A fault that ends needs nobody's help to be over.

## Faults under load

"""
_SETUP: Final = """Three Kafka {kafka} brokers and a controller, replication 3, `min.insync.replicas=2`, `acks=all`; all settings are those that the
sidecar comes with, but for `request.timeout.ms=2000` where a half-open connection has to be found out within seconds. Seed
{seed}, {faults} faults, {minutes} minutes. A proxy stands in front of each broker.

The load: a caller for each of {partitions} partitions, twenty requests a second each; one that sends five records at once, one with
idempotency keys, one of REST Proxy v2, a stream, and where the row says so one who is content with the spool. Each waits for its
answer before it goes on, so a caller who waits asks for little. Kafka's own Java client sends as much to the same partitions
at the same time. Afterwards librdkafka reads everything back.

*Longest without a success* is the longest time, from the beginning of the fault until all callers had successes again, in
which the caller of any one partition was told of none; Java's is the same for its records of any one partition. Memory is the
sidecar's, resident; one process serves all faults that are not its own.
"""


def write(results: Mapping[str, Any]) -> None:
    """Keeps the results of a whole run, and writes the page from them."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


def page(results: Mapping[str, Any]) -> str:
    """The page of these results."""
    rows = results["rows"]
    text = _HEAD + _SETUP.format(
        kafka=results["kafka"],
        seed=results["seed"],
        faults=len(rows),
        minutes=round(results["seconds"] / 60),
        partitions=results["partitions"],
    )
    for group in dict.fromkeys(row["group"] for row in rows):
        of_group = [row for row in rows if row["group"] == group]
        text += f"\n### {group[0].upper()}{group[1:]}\n\n{_table(of_group)}"
    return text


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "| fault | requests | acknowledged | failed | lost | duplicated | longest without a success, ms | Java's | MB before, after |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
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
