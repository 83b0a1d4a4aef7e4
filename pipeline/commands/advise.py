"""`pilotfish-pipeline advise`: writes gold_advice to a file, a compacted topic, or both."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pipeline.commands.run_options import refuse_empty
from pipeline.commands.sentences import said_in_a_sentence
from pipeline.errors import PipelineError
from pipeline.stores.store import KINDS, PARQUET


@click.command()
@click.option("--tables", required=True, metavar="DIR", help="The folder of the tables: --out of `run`.")
@click.option("--store", type=click.Choice(KINDS), default=PARQUET, show_default=True, help="Their format.")
@click.option("--out", metavar="FILE", help="The file for PILOTFISH_ADVICE; - for standard output.")
@click.option("--topic", help="The compacted topic; a record for each cluster and service.")
@click.option(
    "--sidecar", metavar="URL", help="--topic: the sidecar that writes it, as http://127.0.0.1:8085."
)
@click.option("--token-file", metavar="FILE", help="--topic: a file with the sidecar's token.")
@click.option(
    "--ca-file", metavar="FILE", help="--topic: PEM authorities that the sidecar's TLS is judged by."
)
@click.option("--cluster", metavar="ID", help="Only the advice for this cluster.")
@click.option("--service", metavar="NAME", help="Only the advice for this service.")
@click.option(
    "--jars",
    type=click.Path(path_type=Path, file_okay=False),
    help="--store delta: the folder of the jars. Default: that of `pilotfish-pipeline jars`.",
)
@click.option("--verbose", is_flag=True, help="Show all that Spark logs, and the stack of a failure.")
def advise(
    tables: str,
    store: str,
    out: str | None,
    topic: str | None,
    sidecar: str | None,
    token_file: str | None,
    ca_file: str | None,
    cluster: str | None,
    service: str | None,
    jars: Path | None,
    verbose: bool,
) -> None:
    """Write the advice from `run` for sidecars that start: topics to warm, and how often to refresh.

    A sidecar reads a file (its setting advice). docs/advice.md explains how to deliver the file to it, and
    what the topic is for.
    """
    if out is None and topic is None:
        raise click.UsageError("say where it is to go: --out FILE, or --topic NAME with --sidecar URL")
    if (topic is None) != (sidecar is None):
        raise click.UsageError("--topic NAME and --sidecar URL go together: the sidecar writes to the topic")
    from pipeline.advise.document import entries_of, file_content, rows_of_advice, write_whole

    with said_in_a_sentence(verbose=verbose) as java_log:
        refuse_empty("--tables", tables)
        refuse_empty("--out", out)
        with java_log.given_to_java():
            rows = rows_of_advice(tables, store, jars)
        entries = entries_of(rows, cluster, service)
        if out == "-":
            sys.stdout.buffer.write(file_content(entries))
        elif out is not None:
            write_whole(Path(out), file_content(entries))
            click.echo(f"advice for {len(entries)} services in {out}", err=True)
    if topic is not None and sidecar is not None:
        from pipeline.advise.topic import publish_by

        try:
            publish_by(sidecar, topic, entries, token_file, ca_file)
        except PipelineError as error:
            click.echo(f"pilotfish-pipeline: {error}", err=True)
            sys.exit(error.exit_code)
        click.echo(f"advice for {len(entries)} services in topic {topic}", err=True)
