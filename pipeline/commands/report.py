"""`pilotfish-pipeline report`: writes one HTML file from the gold tables, with Spark only if needed."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pipeline.commands.run_options import refuse_empty
from pipeline.commands.sentences import said_in_a_sentence
from pipeline.errors import PipelineError
from pipeline.stores.store import DELTA, KINDS, PARQUET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.commands.sentences import JavaLog
    from pipeline.report.view import Gold

_SCHEME: Final = "://"


class ReportError(PipelineError):
    """The report can't be written to --out."""


@click.command()
@click.option("--tables", required=True, metavar="DIR", help="The folder of the tables: --out of `run`.")
@click.option("--store", type=click.Choice(KINDS), default=PARQUET, show_default=True, help="Their format.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The file; an existing one is replaced.",
)
@click.option("--cluster", metavar="ID", help="Only this cluster. Default: all of them.")
@click.option("--master", help="Spark's master, where Spark is needed: --store delta, or tables at a URI.")
@click.option(
    "--jars",
    type=click.Path(path_type=Path, file_okay=False),
    help="--store delta: the folder of the jars. Default: that of `pilotfish-pipeline jars`.",
)
@click.option("--verbose", is_flag=True, help="Show all that Spark logs, and the stack of a failure.")
def report(
    tables: str,
    store: str,
    out: Path,
    cluster: str | None,
    master: str | None,
    jars: Path | None,
    verbose: bool,
) -> None:
    """Write what the tables say as one HTML file: what to do first, then the plots behind it.

    The file has no script and loads nothing from other hosts. The same tables give the same file.
    """
    with said_in_a_sentence(verbose=verbose) as java_log:
        refuse_empty("--tables", tables)
        if not out.absolute().parent.is_dir():
            raise ReportError(f"There is no folder {out.absolute().parent} for --out: make it first.")
        from pipeline.report import report_html

        with _gold(tables, store, master, jars, java_log) as gold:
            html = report_html(gold, cluster)
        _write_whole(out, html)
    click.echo(f"The report is in {out} ({len(html) / 1e3:,.0f} kB): open it in a browser.")


@contextmanager
def _gold(
    tables: str, store: str, master: str | None, jars: Path | None, java_log: JavaLog
) -> Iterator[Gold]:
    """Opens the tables. Stops the Spark session afterwards, unless it was already running."""
    from pipeline.report.view import ParquetGold, StoreGold

    if store == PARQUET and _SCHEME not in tables:
        yield ParquetGold(Path(tables))
        return
    from pipeline.jars.connector_jars import connector_jars, default_folder
    from pipeline.session import is_running, is_submitted, spark_session
    from pipeline.stores.folders import FAILED, Folders
    from pipeline.stores.formats import open_store

    needs_jars = store == DELTA and not is_submitted()
    is_ours = not is_running()
    with java_log.given_to_java():
        spark = spark_session(
            master=master,
            jars=connector_jars(jars or default_folder()) if needs_jars else (),
            is_short=True,
        )
    try:
        opened = open_store(spark, tables, store)
        yield StoreGold(opened, Folders(spark).read_json(f"{opened.out}/{FAILED}"))
    finally:
        if is_ours:
            spark.stop()


def _write_whole(out: Path, html: str) -> None:
    """Writes the file as a whole or not at all."""
    beside = out.with_name(f".{out.name}.{os.getpid()}.new")
    try:
        beside.write_text(html, encoding="utf-8")
        beside.replace(out)
    except OSError as error:
        raise ReportError(f"{out} can't be written: {error.strerror}.") from error
