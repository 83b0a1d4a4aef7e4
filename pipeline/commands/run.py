"""`pilotfish-pipeline run`: checks the options, starts Spark, then runs the job.

At the end it prints a table to standard output: the lines read, and each table with its number of rows.

Only one job at a time can write to a folder; a second one is refused:

    <out>/_lock   an advisory lock of the writing process; the system releases it when the process ends

This works for local folders only. For a URI there is no way to see other writers.
"""

from __future__ import annotations

import fcntl
import re
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pipeline.commands.run_options import RunOptions, kafka_settings, refuse_what_cannot_be
from pipeline.commands.sentences import FAILED, said_in_a_sentence
from pipeline.errors import PipelineError
from pipeline.stores.store import DELTA, KINDS, PARQUET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from pyspark.sql import SparkSession

    from pipeline.commands.sentences import JavaLog
    from pipeline.job import Summary
    from pipeline.sources import Source
    from pipeline.stores.store import Store


_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_DEFAULT_TOPIC: Final = "pilotfish.events"
#: Input that is read within a minute, about half a million events: see `spark_session(is_short=)`.
_LITTLE_BYTES: Final = 200_000_000


_LOCK: Final = "_lock"


class AlreadyWritingError(PipelineError):
    """Another job is writing to the folder, or the folder can't be made."""


@contextmanager
def one_writer(out: str) -> Iterator[None]:
    """Makes the folder and locks it for this process. Raises AlreadyWritingError."""
    if "://" in out:
        yield
        return
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        lock = (Path(out) / _LOCK).open("a")
    except OSError as e:
        raise AlreadyWritingError(f"--out {out} can't be written: {e.strerror or e}.") from e
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise AlreadyWritingError(
                f"Another run is writing into {out}: let it end, or give another --out."
            ) from e
        yield


class _Duration(click.ParamType[float]):
    """A duration such as `30s` or `5m`, converted to seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value).strip())
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is no time: say 30s, 5m or 1h.", param, ctx)
        return float(match[1]) * _UNITS_S[match[2]]


@click.command()
@click.option("--source", type=click.Choice(["files", "kafka"]), required=True, help="Where the events are.")
@click.option(
    "--input", metavar="DIR", help="files: the folder with the sidecars' event files. May be empty."
)
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="kafka: the brokers.")
@click.option("--topic", default=_DEFAULT_TOPIC, show_default=True, help="kafka: the topic of events.")
@click.option(
    "--starting",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="kafka: where a first run begins; later ones continue where the last one ended.",
)
@click.option(
    "--kafka", "kafka_pairs", multiple=True, metavar="NAME=VALUE", help="A Kafka setting. Repeatable."
)
@click.option(
    "--kafka-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a Kafka setting a line: for secrets, which a command line shows to everyone.",
)
@click.option("--out", required=True, metavar="DIR", help="The folder of the tables; made if it isn't there.")
@click.option(
    "--store", type=click.Choice(KINDS), default=PARQUET, show_default=True, help="The tables' format."
)
@click.option(
    "--once/--follow", default=True, show_default=True, help="Read what there is, or continue until SIGTERM."
)
@click.option(
    "--trigger",
    type=_Duration(),
    default="60s",
    show_default=True,
    help="--follow: how often to look for more.",
)
@click.option(
    "--rebuild", "rebuilds", is_flag=True, help="Make silver and gold from all of bronze again first."
)
@click.option(
    "--max-files-per-batch",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="files: the most files in a batch.",
)
@click.option(
    "--max-records-per-batch",
    type=click.IntRange(min=1),
    help="kafka: the most records in a batch. Default: no limit.",
)
@click.option("--master", help="Spark's master. Default: all cores of this machine, or spark-submit's.")
@click.option(
    "--jars",
    type=click.Path(path_type=Path, file_okay=False),
    help="--source kafka, --store delta: the folder of the jars. Default: that of `pilotfish-pipeline jars`.",
)
@click.option(
    "--memory", metavar="SIZE", help="Memory of Spark's driver, such as 4g; on one machine, of all of Spark."
)
@click.option(
    "--progress/--no-progress", default=None, help="Show the current step. Default: only on a terminal."
)
@click.option("--verbose", is_flag=True, help="Show all that Spark logs, and the stack of a failure.")
def run(
    kafka_pairs: tuple[str, ...],
    kafka_file: Path | None,
    once: bool,
    trigger: float,
    progress: bool | None,
    verbose: bool,
    **typed: Any,
) -> None:
    """Read events, and bring every table up to date.

    Lines are read only once: --out has a record of what was read. After a killed run, run it again.
    Lines that are no events go to bronze_rejects with the reason, and do not fail the run.
    """
    with said_in_a_sentence(verbose=verbose) as java_log:
        options = RunOptions(
            **typed, kafka=kafka_settings(kafka_pairs, kafka_file), every_s=None if once else trigger
        )
        summary = _run(options, java_log, shows=sys.stderr.isatty() if progress is None else progress)
    for name, why in summary.failed.items():
        click.echo(f"pilotfish-pipeline: {name} was not made, and is as it was before: {why}", err=True)
    if summary.is_cut_short:
        click.echo("Stopped before the end: run it again to continue from here.", err=True)
    if summary.is_cut_short or summary.failed:
        sys.exit(FAILED)


def _run(options: RunOptions, java_log: JavaLog, *, shows: bool) -> Summary:
    refuse_what_cannot_be(options)
    from pipeline.progress import Progress

    started_s = time.monotonic()
    progress = Progress(sys.stderr, time.monotonic, shows=shows)
    source = _source(options)
    progress.doing("starting Spark")
    is_short = options.every_s is None and _is_little(source)
    with (
        one_writer(options.out),
        session(
            java_log,
            options.jars,
            needs_jars=options.source == "kafka" or options.store == DELTA,
            master=options.master,
            memory=options.memory,
            is_short=is_short,
        ) as spark,
        stop_at_signals() as stop,
    ):
        from pipeline.job import Job
        from pipeline.stores.formats import open_store

        try:
            source.check()
            store = open_store(spark, options.out, options.store, to_write=True)
            summary = Job(spark, source, store, progress, stop=stop).run(
                options.every_s, rebuilds=options.rebuilds
            )
        finally:
            progress.end()
        _say(summary, store, time.monotonic() - started_s)
        return summary


def _source(options: RunOptions) -> Source:
    """Returns the source that the options name, without reading it."""
    from pipeline.sources import FilesSource, KafkaSource

    if options.input is not None:
        return FilesSource(options.input, options.max_files_per_batch)
    assert options.bootstrap_servers is not None, "refuse_what_cannot_be"
    return KafkaSource(
        options.bootstrap_servers,
        options.topic,
        settings=options.kafka,
        starting=options.starting,
        max_records_per_batch=options.max_records_per_batch,
    )


def _is_little(source: Source) -> bool:
    """Returns whether the input is known to be small. The size of a topic is unknown before Spark starts."""
    from pipeline.sources import FilesSource

    size_bytes = source.local_bytes() if isinstance(source, FilesSource) else None
    return size_bytes is not None and size_bytes <= _LITTLE_BYTES


@contextmanager
def session(
    java_log: JavaLog,
    jars: Path | None,
    *,
    needs_jars: bool,
    master: str | None,
    memory: str | None,
    is_short: bool,
) -> Iterator[SparkSession]:
    """Yields a Spark session, with the connectors on its class path if the source or store needs them.

    Uses a session that is already running, and leaves it running.
    """
    from pipeline.jars.connector_jars import connector_jars, default_folder
    from pipeline.session import is_running, is_submitted, spark_session

    # With spark-submit, the submitter gives the jars to Spark.
    found = connector_jars(jars or default_folder()) if needs_jars and not is_submitted() else ()
    is_ours = not is_running()
    with java_log.given_to_java(), _sigterm_ignored_by_java():
        spark = spark_session(master=master, jars=found, driver_memory=memory, is_short=is_short)
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


@contextmanager
def _sigterm_ignored_by_java() -> Iterator[None]:
    """Lets processes started meanwhile ignore SIGTERM; one for this process waits until the end.

    systemd and `timeout` send it to the whole process group. Java would end at once, in the middle of the
    batch after which this process stops. It ends with this process, which holds its standard input.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def stop_at_signals() -> Iterator[threading.Event]:
    """Yields an event that the first SIGTERM or SIGINT sets: stop after this batch. A second interrupts."""
    stop = threading.Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        click.echo("Stopping after this batch.", err=True)

    # After Spark has started, because Spark sets its own handler for SIGINT.
    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(summary: Summary, store: Store, seconds: float) -> None:
    """Prints the table at the end of a run."""
    rejects = ", ".join(f"{reason} {lines:,}" for reason, lines in sorted(summary.rejects.items()))
    click.echo(
        f"{summary.lines:,} lines in {summary.batches:,} {'batch' if summary.batches == 1 else 'batches'}:"
        f" {summary.events:,} events,"
        f" {sum(summary.rejects.values()):,} rejects{f' ({rejects})' if rejects else ''}; {seconds:.1f} s"
    )
    click.echo(f"Tables in {store.out} ({store.kind}):")
    for name, rows in summary.rows.items():
        click.echo(f"  {name:<26}{rows:>14,}")
    for name in summary.failed:
        click.echo(f"  {name:<26}{'not made':>14}")
