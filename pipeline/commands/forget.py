"""`pilotfish-pipeline forget`: removes events from bronze, and makes silver and gold again without them.

For events that no value rule can reject and that spoil a table: a leader epoch that a partition can't have
reached, a test sidecar. It changes nothing else: a line that arrives again is read again.

The tables are marked as not up to date before anything is removed. So after a kill at any moment the next
`run` makes them again from what bronze then has, and a repeated `forget` removes the rest.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Unpack

import click

from pipeline.commands.existing_tables import Where, existing_tables, of_existing_tables
from pipeline.commands.sentences import FAILED, said_in_a_sentence
from pipeline.errors import PipelineError
from pipeline.tables import BRONZE_EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.refresh import Refresh
    from pipeline.stores.store import Store

_PARTS_OF_AN_EVENT = 3


class ForgetError(PipelineError):
    """Nothing to forget is named, or bronze has none of it."""


@click.command()
@click.option("--sidecar", "sidecars", multiple=True, metavar="ID", help="All events of it. Repeatable.")
@click.option(
    "--event", "events", multiple=True, metavar="ID/BOOT/SEQ", help="One event, by its number. Repeatable."
)
@of_existing_tables("Count what would be removed, and change nothing.")
def forget(
    *,
    sidecars: tuple[str, ...],
    events: tuple[str, ...],
    dry_run: bool,
    verbose: bool,
    **where: Unpack[Where],
) -> None:
    """Remove events from bronze, and make every other table again without them.

    --event takes sidecar_id, boot_id and seq, as bronze_events has them: checkout-7d9f/7340000001/42. Delta
    keeps old versions of bronze until VACUUM.
    """
    with said_in_a_sentence(verbose=verbose) as java_log:
        which = condition(sidecars, events)
        with existing_tables(java_log, dry_run=dry_run, **where) as (store, refresh):
            failed = _forget(store, refresh, which, is_dry_run=dry_run)
    for name, why in failed.items():
        click.echo(f"pilotfish-pipeline: {name} was not made, and is as it was before: {why}", err=True)
    if failed:
        sys.exit(FAILED)


def condition(sidecars: Sequence[str], events: Sequence[str]) -> str:
    """Returns the SQL that is true for these events of bronze. Raises ForgetError for none, or no event."""
    found = [f"sidecar_id = {_text(sidecar)}" for sidecar in sidecars]
    for event in events:
        # A sidecar's id may have slashes itself.
        parts = event.rsplit("/", _PARTS_OF_AN_EVENT - 1)
        try:
            sidecar, boot, seq = parts[0], _bigint(parts[1]), _bigint(parts[2])
        except (IndexError, ValueError):
            raise ForgetError(
                f"--event {event}: it is sidecar_id/boot_id/seq, as in checkout-7d9f/7340000001/42."
            ) from None
        found.append(f"(sidecar_id = {_text(sidecar)} AND boot_id = {boot} AND seq = {seq})")
    if not found:
        raise ForgetError("Say what to forget: --sidecar ID, or --event SIDECAR/BOOT/SEQ.")
    return f"({' OR '.join(found)})"


def _text(value: str) -> str:
    """Returns the SQL of a text, whatever is in it."""
    return f"CAST(X'{value.encode(errors='surrogateescape').hex()}' AS STRING)"


def _bigint(text: str) -> str:
    """Returns the SQL of a BIGINT, as boot_id and seq are. Raises ValueError for anything else."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return f"CAST('{number}' AS BIGINT)"


def _forget(store: Store, refresh: Refresh, which: str, *, is_dry_run: bool) -> dict[str, str]:
    """Removes the events and makes the other tables; returns those that could not be made, and why."""
    refresh.progress.doing(f"looking for them in {BRONZE_EVENTS}")
    count = store.read(BRONZE_EVENTS).where(which).count()
    if is_dry_run:
        click.echo(f"{count:,} events would be removed from {store.out}.")
        return {}
    if count == 0 and not refresh.is_due():
        raise ForgetError(
            f"{BRONZE_EVENTS} in {store.out} has none of these events;"
            " The table gold_data_quality lists the known sidecars and boots."
        )
    forget_events(store, refresh, which)
    click.echo(f"{count:,} events are removed from {store.out}.")
    return refresh.failed


def forget_events(store: Store, refresh: Refresh, which: str) -> None:
    """Removes these events from bronze and makes all other tables. May be repeated after a kill."""
    refresh.begins_anew()
    store.remove(BRONZE_EVENTS, which)
    refresh.silver()
    refresh.gold()
