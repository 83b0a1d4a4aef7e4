"""`pilotfish-pipeline jars`: Spark's Kafka connector and Delta into a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pipeline.errors import PipelineError


@click.command()
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder. Default: .cache/spark/<version>, where `run` looks too.",
)
def jars(to: Path | None) -> None:
    """Fetch Spark's Kafka and Delta connectors from Maven's central repository.

    By Maven where it is installed, else by jgo. Needed for --source kafka and --store delta only; a folder
    that has them already is left as it is.
    """
    from pipeline.jars.connector_jars import default_folder, ensure_connector_jars

    folder = to or default_folder()
    try:
        fetched = ensure_connector_jars(folder)
    except PipelineError as e:
        click.echo(f"pilotfish-pipeline: {e}", err=True)
        sys.exit(e.exit_code)
    click.echo(f"{len(fetched)} jars in {folder}")
