"""`python -m tests.pipeline.simulate`: writes a fleet's events to a folder, and the truth beside it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from tests.pipeline.simulate.folder import to_stderr, write
from tests.pipeline.simulate.plan import DEFAULT_END, PlanError, plan_for

_EXIT_WRONG_INPUT = 2


def _time(_context: click.Context, _parameter: click.Parameter, value: str | None) -> datetime:
    if value is None:
        return DEFAULT_END
    try:
        end = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no time as in 2026-09-01T12:00:00Z") from error
    if end.tzinfo is None:
        raise click.BadParameter(f"{value!r} says no time zone: write it with a Z")
    return end.astimezone(UTC)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="An empty or new folder."
)
@click.option(
    "--events", type=int, default=100_000, show_default=True, help="Distinct valid events, exactly."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same bytes.")
@click.option("--sidecars", type=int, help="Grows with the events unless given, as the next four.")
@click.option("--topics", type=int)
@click.option("--partitions", type=int, help="Of each topic.")
@click.option("--brokers", type=int)
@click.option("--hours", type=float, help="How long the fleet is watched.")
@click.option(
    "--skew", type=float, default=0.2, show_default=True, help="Share of the events about one partition."
)
@click.option("--churn", type=float, default=2.0, show_default=True, help="Failures of brokers an hour.")
@click.option(
    "--incidents",
    type=float,
    default=4.0,
    show_default=True,
    help="An hour: brokers that flap or fail at once, replicas behind, topics that refuse records.",
)
@click.option("--silent", type=float, default=0.05, show_default=True, help="Share of sidecars killed.")
@click.option(
    "--clock-skew",
    type=float,
    default=900.0,
    show_default=True,
    help="Seconds by which wrong clocks are wrong.",
)
@click.option(
    "--duplicates", type=float, default=0.01, show_default=True, help="Share of lines that come twice."
)
@click.option(
    "--late", type=float, default=0.005, show_default=True, help="Share that comes in a later file."
)
@click.option("--broken", type=float, default=0.001, show_default=True, help="Share of unreadable lines.")
@click.option("--end", callback=_time, help="When the run ends, RFC 3339.  [default: 2026-09-01T12:00:00Z]")
@click.option("--truth", type=click.Path(path_type=Path, dir_okay=False), help="[default: OUT.truth.json]")
@click.option("--processes", type=int, help="[default: one a processor]")
@click.option("--progress/--no-progress", default=None, help="[default: on a terminal]")
def main(
    out: Path,
    events: int,
    seed: int,
    sidecars: int | None,
    topics: int | None,
    partitions: int | None,
    brokers: int | None,
    hours: float | None,
    skew: float,
    churn: float,
    incidents: float,
    silent: float,
    clock_skew: float,
    duplicates: float,
    late: float,
    broken: float,
    end: datetime,
    truth: Path | None,
    processes: int | None,
    progress: bool | None,
) -> None:
    """Write the events of a simulated fleet of sidecars, as files named as a sidecar names them."""
    shows_progress = sys.stderr.isatty() if progress is None else progress
    beside = truth or out.with_name(f"{out.name}.truth.json")
    try:
        plan = plan_for(
            events,
            seed,
            sidecars=sidecars,
            topics=topics,
            partitions=partitions,
            brokers=brokers,
            hours=hours,
            skew=skew,
            churn=churn,
            incidents=incidents,
            silent=silent,
            clock_skew_s=clock_skew,
            duplicates=duplicates,
            late=late,
            broken=broken,
            end=end,
        )
        whole = write(plan, out, beside, processes=processes, progress=to_stderr if shows_progress else None)
    except PlanError as error:
        click.echo(f"tests.pipeline.simulate: {error}", err=True)
        sys.exit(_EXIT_WRONG_INPUT)
    finally:
        if shows_progress:
            click.echo(err=True)
    click.echo(
        f"{out}: {whole['events']:,} events in {whole['lines']:,} lines of {plan.sidecars:,} sidecars over"
        f" {plan.hours:g} h. What is true of them: {beside}"
    )


if __name__ == "__main__":
    main()
