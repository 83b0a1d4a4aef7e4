"""What a run of the data pipeline costs on day 7, 30, 120 and 365 of a store that is maintained each day.

    python -m benchmarks.pipeline_year [--store delta] [--days 7,30]      not part of `make bench-pipeline`

For each day there is a store of its own: all days before are read and maintained at once, then the two days
before the last are read, and maintained, one after the other, as a nightly job would. Measured is the run
that reads the last day: CPU of the driver, the JVM and all other children, and the files that the store has.
The goal is CPU on day 365 of at most 1.2 times that of day 7. A day has 600 events (tests/pipeline/days.py).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from benchmarks.measure import table
from benchmarks.process_tree import run_tree
from pipeline.stores.store import KINDS
from tests.pipeline.days import Days

if TYPE_CHECKING:
    from collections.abc import Iterable

DAYS: Final = (7, 30, 120, 365)
_COMMAND: Final = (sys.executable, "-m", "pipeline.cli")
#: Nightly jobs before the measured one.
_NIGHTS: Final = 2


class Trigger(NamedTuple):
    """A row of the result."""

    store: str
    day: int
    run_cpu_s: float
    maintain_cpu_s: float
    files: int
    tables_bytes: int


def measure(store: str, day: int, work: Path) -> Trigger:
    """Returns what the run of a day costs."""
    events, out = work / "events", work / "out"
    events.mkdir(parents=True)
    days = Days(work / "fleet")

    def command(name: str, *words: str) -> float:
        options = ("--out", str(out), "--store", store)
        return run_tree([*_COMMAND, name, *words, *options], work / "log").cpu_s

    def run(numbers: Iterable[int]) -> float:
        days.write(events, numbers)
        return command("run", "--source", "files", "--input", str(events))

    def maintain() -> float:
        return command("maintain")

    run(range(day - _NIGHTS))
    maintain()
    for number in range(day - _NIGHTS, day):
        run([number])
        maintain_cpu_s = maintain()
    run_cpu_s = run([day])
    files = [path for path in out.rglob("*") if path.is_file()]
    return Trigger(
        store, day, run_cpu_s, maintain_cpu_s, len(files), sum(path.stat().st_size for path in files)
    )


@click.command()
@click.option("--store", "stores", multiple=True, type=click.Choice(KINDS), default=KINDS)
@click.option("--days", default=",".join(map(str, DAYS)), show_default=True, help="By commas.")
def main(stores: tuple[str, ...], days: str) -> None:
    """Measures and prints."""
    rows: list[Trigger] = []
    for store in stores:
        for day in map(int, days.split(",")):
            with tempfile.TemporaryDirectory() as work:
                rows.append(measure(store, day, Path(work)))
            click.echo(f"{rows[-1]}")
    table("A run of one day", Trigger._fields, rows)


if __name__ == "__main__":
    main()
