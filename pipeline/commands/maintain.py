"""`pilotfish-pipeline maintain`: bounds a store's cost and files over time.

    close          days that are over: their gold rows stay as they are from then on (closing.py)
    retention      removes events and gold rows that are older than --keep-days
    compaction     writes small batches and files together
    vacuum         deletes files that no table needs

Each step may be repeated: after a kill at any moment `run` goes on, and a repeated `maintain` does the rest.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Unpack

import click

from pipeline.commands.existing_tables import Where, existing_tables, of_existing_tables, refuse_no_folder
from pipeline.commands.sentences import said_in_a_sentence
from pipeline.errors import PipelineError
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS, GOLD_DATA_QUALITY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.refresh import Refresh
    from pipeline.stores.store import Store


#: A century. No date is 9,999,999 days before another.
_MOST_KEEP_DAYS: Final = 36_500


class MaintainError(PipelineError):
    """Tables that are not up to date, or a retention that is too short."""


@click.command()
@click.option("--keep-days", type=int, metavar="DAYS", help="Remove what is older. Default: keep all.")
@of_existing_tables("Say what would be done, and change nothing.")
def maintain(*, keep_days: int | None, dry_run: bool, verbose: bool, **where: Unpack[Where]) -> None:
    """Close days that are over, remove old ones, and write small files together. Once a day is enough.

    Ages are counted from the latest event. Run it while no `run --follow` writes.
    """
    with said_in_a_sentence(verbose=verbose) as java_log:
        refuse_no_folder(where["out"])
        from pipeline.closing import least_keep_days

        if keep_days is not None and keep_days < least_keep_days():
            raise MaintainError(
                f"--keep-days {keep_days}: give at least {least_keep_days()}; younger days are still open."
            )
        if keep_days is not None and keep_days > _MOST_KEEP_DAYS:
            raise MaintainError(f"--keep-days {keep_days}: to keep all events, leave it out.")
        with existing_tables(java_log, dry_run=dry_run, **where) as (store, refresh):
            _maintain(store, refresh, keep_days, is_dry_run=dry_run)


def _maintain(store: Store, refresh: Refresh, keep_days: int | None, *, is_dry_run: bool) -> None:
    if refresh.is_due():
        raise MaintainError(
            f"The tables in {store.out} are not up to date, and closed days stay as they are:"
            " `pilotfish-pipeline run` makes them, or names the ones that fail."
        )
    times = times_of_events(store)
    if times is None:
        click.echo(f"{store.out} has no events yet: there is nothing to do.")
        return
    if is_dry_run:
        _say_what_would_be_done(store, *times, keep_days)
        return
    for line in maintain_store(store, refresh, *times, keep_days):
        click.echo(line)


def maintain_store(
    store: Store, refresh: Refresh, first: datetime, latest: datetime, keep_days: int | None
) -> Iterator[str]:
    """Takes all steps; yields a sentence for each. `first` and `latest` are the times of the events.

    May be repeated after a kill.
    """
    from pipeline.closing import closed_days

    keep_from = _keep_from(latest, keep_days)
    closed = closed_days(latest)
    if first < closed.since:
        refresh.close(closed, keep_from)
        yield f"Days before {closed.before:%Y-%m-%d} are closed."
    if keep_from is not None:
        old, old_rejects = _old(store, keep_from)
        removed = store.read(BRONZE_EVENTS).where(old).count()
        refresh.progress.doing(f"removing {removed:,} events")
        store.remove(BRONZE_EVENTS, old)
        store.remove(BRONZE_REJECTS, old_rejects)
        yield f"{removed:,} events before {keep_from:%Y-%m-%d} are removed."
    written = 0
    for table in (BRONZE_EVENTS, BRONZE_REJECTS, *(refresh.silver_names if store.merges_in_place else ())):
        refresh.progress.doing(f"writing small files of {table} together")
        written += store.compact(table)
    yield f"{written:,} small files or batches are written together."
    refresh.progress.doing("deleting files that are not needed")
    store.vacuum([BRONZE_EVENTS, BRONZE_REJECTS, *refresh.names])


def _say_what_would_be_done(store: Store, first: datetime, latest: datetime, keep_days: int | None) -> None:
    from pipeline.closing import closed_days

    closed, keep_from = closed_days(latest), _keep_from(latest, keep_days)
    if first < closed.since:
        click.echo(f"Days before {closed.before:%Y-%m-%d} would be closed.")
    if keep_from is not None:
        old = store.read(BRONZE_EVENTS).where(_old(store, keep_from)[0]).count()
        click.echo(f"{old:,} events before {keep_from:%Y-%m-%d} would be removed.")
    click.echo("Small files would be written together, and files that are not needed deleted.")


def times_of_events(store: Store) -> tuple[datetime, datetime] | None:
    """Returns the first and the latest event, of boots whose clocks are not known to be wrong."""
    boots = store.read(GOLD_DATA_QUALITY).where("NOT is_left_out")
    row = boots.selectExpr("unix_micros(min(first_event))", "unix_micros(max(last_event))").first()
    if row is None or row[0] is None:
        return None
    return datetime.fromtimestamp(row[0] / 1e6, UTC), datetime.fromtimestamp(row[1] / 1e6, UTC)


def _keep_from(latest: datetime, keep_days: int | None) -> datetime | None:
    if keep_days is None:
        return None
    return latest.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=keep_days)


def _old(store: Store, keep_from: datetime) -> tuple[str, str]:
    """Returns the SQL that is true for events and for rejects that are older.

    Sidecars report a partition only if it changes. So what a boot said of partitions is kept while it has
    later events.
    """
    from pipeline.closing import of_boots, sql_time
    from pipeline.event_v1 import PARTITION

    time = sql_time(keep_from)
    lasting = store.read(GOLD_DATA_QUALITY).where(f"first_event < {time} AND last_event >= {time}")
    is_lasting = of_boots(lasting.select("sidecar_id", "boot_id").collect())
    return (
        f"(observed_at < {time} AND NOT (type = '{PARTITION}' AND {is_lasting}))",
        f"received_at < {time}",
    )
