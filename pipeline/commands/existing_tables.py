"""Shared by commands that change tables of `run`: their options, Spark, and the lock.

@click.command()
@of_existing_tables("Count what would be removed, and change nothing.")
def forget(*, dry_run: bool, verbose: bool, **where: Unpack[Where]) -> None:
    with said_in_a_sentence(verbose=verbose) as java_log:
        with existing_tables(java_log, dry_run=dry_run, **where) as (store, refresh): ...
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from pipeline.commands.run import one_writer, session
from pipeline.commands.run_options import refuse_empty
from pipeline.errors import PipelineError
from pipeline.stores.store import DELTA, KINDS, PARQUET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.commands.sentences import JavaLog
    from pipeline.refresh import Refresh
    from pipeline.stores.store import Store

_Command = TypeVar("_Command", bound="Callable[..., object]")


class NoFolderError(PipelineError):
    """--out is no folder."""


class Where(TypedDict):
    """The options that say where the tables are, and how Spark runs."""

    out: str
    store: str
    master: str | None
    jars: Path | None
    memory: str | None
    progress: bool | None


def of_existing_tables(dry_run: str) -> Callable[[_Command], _Command]:
    """Returns a decorator that adds the options of `Where`, --dry-run with this help, and --verbose."""
    options = (
        click.option("--out", required=True, metavar="DIR", help="The folder of the tables: --out of `run`."),
        click.option(
            "--store", type=click.Choice(KINDS), default=PARQUET, show_default=True, help="Their format."
        ),
        click.option("--dry-run", is_flag=True, help=dry_run),
        click.option("--master", metavar="URL", help="Spark's master. Default: all cores of this machine."),
        click.option(
            "--jars",
            type=click.Path(path_type=Path, file_okay=False),
            help="--store delta: the folder of the jars. Default: that of `pilotfish-pipeline jars`.",
        ),
        click.option("--memory", metavar="SIZE", help="Memory of Spark's driver, such as 4g."),
        click.option(
            "--progress/--no-progress",
            default=None,
            help="Show the current step. Default: only on a terminal.",
        ),
        click.option("--verbose", is_flag=True, help="Show all that Spark logs, and the stack of a failure."),
    )

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def refuse_no_folder(out: str) -> None:
    """Raises NoFolderError or RunOptionsError if this is no folder, or empty. Needs no Spark."""
    refuse_empty("--out", out)
    if "://" not in out and not Path(out).is_dir():
        raise NoFolderError(f"--out {out} is no folder: give the one that `run` writes to.")


@contextmanager
def existing_tables(
    java_log: JavaLog,
    *,
    dry_run: bool,
    out: str,
    store: str,
    master: str | None,
    jars: Path | None,
    memory: str | None,
    progress: bool | None,
) -> Iterator[tuple[Store, Refresh]]:
    """Yields the store and what makes its tables, locked for this process unless `dry_run`.

    Raises NoFolderError, AlreadyWritingError, and StoreError for a folder without tables.
    """
    refuse_no_folder(out)
    from pipeline.progress import Progress
    from pipeline.refresh import Refresh
    from pipeline.stores.formats import open_store

    shows = sys.stderr.isatty() if progress is None else progress
    said = Progress(sys.stderr, time.monotonic, shows=shows)
    said.doing("starting Spark")
    with (
        nullcontext() if dry_run else one_writer(out),
        session(
            java_log, jars, needs_jars=store == DELTA, master=master, memory=memory, is_short=True
        ) as spark,
    ):
        try:
            open_store(spark, out, store)  # refuses a folder without tables, which the next line would make
            opened = open_store(spark, out, store, to_write=not dry_run)
            yield opened, Refresh(spark, opened, said, lambda _: None)
        finally:
            said.end()
