"""`pilotfish-pipeline jars`: fetches Spark's Kafka connector and Delta."""

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

    Uses Maven if it is installed, else jgo. Needed only for --source kafka and --store delta. A folder that
    already has them is not changed.
    """
    from pipeline.jars.connector_jars import default_folder, ensure_connector_jars

    folder = to or default_folder()
    try:
        fetched = ensure_connector_jars(folder)
    except PipelineError as e:
        click.echo(f"pilotfish-pipeline: {e}", err=True)
        sys.exit(e.exit_code)
    click.echo(f"{len(fetched)} jars in {folder}")
