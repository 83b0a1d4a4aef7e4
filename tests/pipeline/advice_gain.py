"""What following the advice gains in a simulated fleet: how long leaders are out of date, and the refreshes.

    python -m tests.pipeline.advice_gain [SEED]     a table by service, for docs/advice.md

The job makes gold_advice of the fleet's events. Then each sidecar lives the same time again, with the advised
interval where that is shorter than its own. A sidecar is out of date while it knows another leader of some
partition than the true one, by the history of the cluster and not by any event.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline import bronze, event_v1, tables
from pipeline.sources import FilesSource
from tests.pipeline.simulate import plan_for, write
from tests.pipeline.simulate.cluster import timeline_of
from tests.pipeline.simulate.fleet import fleet_of
from tests.pipeline.simulate.plan import SECOND_US
from tests.pipeline.simulate.sightings import Views, sightings
from tests.pipeline.whole_pipeline import Tables
from tests.support.spark import spark_of_the_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.pipeline.simulate.fleet import Boot, Member
    from tests.pipeline.simulate.plan import Plan
    from tests.pipeline.simulate.sightings import Item
    from tests.pipeline.whole_pipeline import Row

_HOUR_US: Final = 3_600 * SECOND_US


class Life(NamedTuple):
    """Of all sidecars of a service: microseconds awake and out of date, and the number of refreshes."""

    awake_us: int = 0
    stale_us: int = 0
    refreshes: int = 0

    def and_(self, other: Life) -> Life:
        return Life(*(one + two for one, two in zip(self, other, strict=True)))

    @property
    def stale_s(self) -> float:
        """Returns seconds out of date, for each hour of a sidecar."""
        return 3_600 * self.stale_us / self.awake_us

    @property
    def refreshes_an_hour(self) -> float:
        """Returns refreshes, for each hour of a sidecar."""
        return self.refreshes * _HOUR_US / self.awake_us


class Gain(NamedTuple):
    """A service's life with its own interval, and with the advised one if that is shorter."""

    interval_s: float
    advised_s: float
    before: Life
    after: Life


def gains(plan: Plan, advice: Iterable[Row]) -> dict[str, Gain]:
    """Returns the gain of each service, from rows of gold_advice, without sidecars that are held back."""
    advised_us = {row["service"]: row["refresh_max_age_ms"] * 1_000 for row in advice}
    timeline = timeline_of(plan)
    lives: dict[str, list[tuple[Life, Life]]] = defaultdict(list)
    intervals: dict[str, tuple[int, int]] = {}
    for member in fleet_of(plan, timeline):
        if member.delayed is None:
            views = Views(timeline, member.topics)
            advised = member._replace(interval_us=min(member.interval_us, advised_us[member.service]))
            lives[member.service].append((_life(plan, views, member), _life(plan, views, advised)))
            intervals[member.service] = (member.interval_us, advised.interval_us)
    return {
        service: Gain(
            intervals[service][0] / SECOND_US,
            intervals[service][1] / SECOND_US,
            _sum(before for before, _ in both),
            _sum(after for _, after in both),
        )
        for service, both in sorted(lives.items())
    }


def in_all(by_service: Mapping[str, Gain]) -> tuple[Life, Life]:
    """Returns the lives of all services together, before and after."""
    every = by_service.values()
    return _sum(gain.before for gain in every), _sum(gain.after for gain in every)


def _sum(lives: Iterable[Life]) -> Life:
    total = Life()
    for life in lives:
        total = total.and_(life)
    return total


def _life(plan: Plan, views: Views, member: Member) -> Life:
    source = random.Random(f"{plan.seed} sidecar {member.number}")
    return _sum(_of_boot(views, boot, sightings(source, views, member, boot)) for boot in member.boots)


def _of_boot(views: Views, boot: Boot, items: list[Item]) -> Life:
    slots = views.timeline.slots
    ended = {change.life: change.at_us for change in views.topics if change.partitions is None}
    true_steps: list[tuple[int, int, int, int | None]] = [
        (change.at_us, 0, change.slot, change.state.leader) for change in views.partitions
    ]
    true_steps += [(ended[s.life], 0, n, None) for n, s in enumerate(slots) if s.life in ended]
    seen_steps = [(item.at_us, 1, slot, item.leader) for item in items for slot in item.slots]
    said: tuple[dict[int, int | None], ...] = ({}, {})
    stale: set[int] = set()
    stale_us, since_us = 0, boot.started_us
    for at_us, who, slot, leader in sorted([*true_steps, *seen_steps], key=lambda step: step[:2]):
        until_us = min(max(at_us, since_us), boot.ended_us)
        stale_us += (until_us - since_us) * bool(stale)
        since_us = until_us
        said[who][slot] = leader
        true, known = (leaders.get(slot) for leaders in said)
        is_stale = true is not None and known is not None and true != known
        (stale.add if is_stale else stale.discard)(slot)
    stale_us += (boot.ended_us - since_us) * bool(stale)
    refreshes = sum(item.kind == event_v1.REFRESH for item in items)
    return Life(boot.ended_us - boot.started_us, stale_us, refreshes)


def lines(by_service: Mapping[str, Gain]) -> list[str]:
    """Returns a table in Markdown, with a last row of all services."""
    rows = [
        "| service | interval | advised | out of date, s/h | with advice | refreshes/h | with advice |",
        "|---|---|---|---|---|---|---|",
    ]
    named = [
        (f"`{service}` | {gain.interval_s:.0f} s | {gain.advised_s:.0f} s", gain.before, gain.after)
        for service, gain in by_service.items()
    ]
    for name, before, after in [*named, ("all | |", *in_all(by_service))]:
        rows.append(
            f"| {name} | {before.stale_s:.0f} | {after.stale_s:.0f}"
            f" | {before.refreshes_an_hour:.0f} | {after.refreshes_an_hour:.0f} |"
        )
    return rows


def main(seed: int = 1) -> None:
    """Prints the table for a fleet of 24 sidecars over eight hours."""
    plan = plan_for(80_000, seed, sidecars=24, topics=10, hours=8.0, clock_skew_s=0.0, broken=0.0)
    with tempfile.TemporaryDirectory() as scratch, spark_of_the_session(Path(scratch)) as spark:
        folder = Path(scratch) / "events"
        write(plan, folder, folder.with_suffix(".json"))
        parsed = bronze.parse(FilesSource(str(folder)).batch(spark)).localCheckpoint()
        made = Tables(spark, (), **{tables.BRONZE_EVENTS: bronze.events(parsed)})
        print("\n".join(lines(gains(plan, made.rows(tables.GOLD_ADVICE)))))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
