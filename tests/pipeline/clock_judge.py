"""Judges the tables of fleets whose clocks are wrong (skewed_fleet.py) against the truth.

    python -m tests.pipeline.clock_judge [SEEDS [FIRST]]     a table of all gold tables that have times

Beside them are the same fleets by clocks that are right: nothing is won by saying little. A stated time may
be off by SLACK_S, as clocks that differ by less count as right.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline import tables
from tests.pipeline.fleets import T0, number_of, numbered, without_number
from tests.pipeline.skewed_fleet import Place, skewed_fleet
from tests.pipeline.whole_pipeline import Tables
from tests.support.spark import spark_of_the_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

    from tests.pipeline.skewed_fleet import Fleet

Row = dict[str, Any]

SLACK_S: Final = 1.5
#: A clock is wrong if it is off by so much at any time.
WRONG_S: Final = 2.0
#: Fleets that share one run.
_AT_ONCE: Final = 10


@dataclass(slots=True)
class Urp:
    """Of gold_urp, over all fleets."""

    rows: int = 0
    phantoms: int = 0
    bounds: int = 0
    bounds_true: int = 0
    inverted: int = 0
    certain_s: float = 0
    certain_true_s: float = 0
    widths: list[float] = field(default_factory=list)
    found: int = 0


@dataclass(slots=True)
class Judged:
    """What the tables say by the sidecars' clocks, and what by clocks that are right."""

    shortages: int = 0
    skewed: Urp = field(default_factory=Urp)
    right: Urp = field(default_factory=Urp)
    epochs: int = 0
    epochs_dated: int = 0
    epochs_too_early: int = 0
    lateness_s: list[float] = field(default_factory=list)
    lateness_right_s: list[float] = field(default_factory=list)
    waits: int = 0
    waits_right: int = 0
    waits_true: int = 0
    #: Of counts by hour: their sum, and how much of it is in another hour.
    counted: Counter[str] = field(default_factory=Counter)
    misplaced: Counter[str] = field(default_factory=Counter)
    advice: list[float] = field(default_factory=list)
    wrong: int = 0
    wrong_named: int = 0
    missed: list[str] = field(default_factory=list)
    right_named: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        ours, theirs = self.skewed, self.right
        yield (
            f"gold_urp             {ours.rows} rows ({theirs.rows} by right clocks), phantoms"
            f" {ours.phantoms}, inverted {ours.inverted}, shortages found {ours.found} of"
            f" {self.shortages} ({theirs.found}); bounds that hold the truth"
            f" {_share(ours.bounds_true, ours.bounds)}"
            f" ({_share(theirs.bounds_true, theirs.bounds)}); certain seconds true"
            f" {_share(ours.certain_true_s, ours.certain_s)}, of those by right clocks"
            f" {_share(ours.certain_true_s, theirs.certain_true_s)}; median width"
            f" {_median(ours.widths):.1f} s ({_median(theirs.widths):.1f} s)"
        )
        yield (
            f"gold_leader_history  {self.epochs} epochs, too early {self.epochs_too_early}; median lateness"
            f" {_median(self.lateness_s):.2f} s ({_median(self.lateness_right_s):.2f} s)"
        )
        yield (
            f"gold_staleness       {self.waits} rows ({self.waits_right}), reached_at true"
            f" {_share(self.waits_true, self.waits)}"
        )
        for table, counted in self.counted.items():
            yield f"{table:<20} {counted} counted, in a wrong hour {_share(self.misplaced[table], counted)}"
        near = sum(difference <= 0.05 for difference in self.advice)
        yield (
            f"gold_advice          {len(self.advice)} rows, within 5 % {near}, largest difference"
            f" {max(self.advice):.1%}"
        )
        yield (
            f"gold_data_quality    wrong clocks left out {self.wrong_named} of {self.wrong}"
            f" (not: {', '.join(self.missed) or 'none'}); right ones left out:"
            f" {', '.join(self.right_named) or 'none'}"
        )


def judge(spark: SparkSession, seeds: Iterable[int]) -> Judged:
    """Makes the tables of these fleets, twice, and compares them."""
    judged = Judged()
    waiting = [*seeds]
    while waiting:
        now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        fleets = {seed: skewed_fleet(seed) for seed in now}
        made = [
            _Made(spark, [e for n, f in fleets.items() for e in numbered(f.events(skewed=skewed), n)])
            for skewed in (True, False)
        ]
        for seed, fleet in fleets.items():
            _judge_one(judged, fleet, *({t: of.rows(t, seed) for t in _TABLES} for of in made))
    return judged


_TABLES: Final = (
    tables.GOLD_DATA_QUALITY,
    tables.GOLD_LEADER_HISTORY,
    tables.GOLD_CHURN,
    tables.GOLD_URP,
    tables.GOLD_STALENESS,
    tables.GOLD_PRODUCE_SLO,
    tables.GOLD_ADVICE,
)


class _Made:
    """The rows of each fleet by their names in it."""

    def __init__(self, spark: SparkSession, events: Sequence[Row]) -> None:
        self._tables = Tables(spark, events)
        self._rows: dict[str, dict[int | None, list[Row]]] = {}

    def rows(self, table: str, number: int) -> list[Row]:
        if table not in self._rows:
            by_number: dict[int | None, list[Row]] = defaultdict(list)
            for row in self._tables.rows(table):
                by_number[number_of(row)].append(row)
            self._rows[table] = by_number
        return [without_number(number, row) for row in self._rows[table][number]]


def _judge_one(
    judged: Judged, fleet: Fleet, ours: dict[str, list[Row]], theirs: dict[str, list[Row]]
) -> None:
    true = fleet.shortages()
    judged.shortages += sum(map(len, true.values()))
    _judge_urp(judged.skewed, true, ours[tables.GOLD_URP], fleet.hours * 3_600)
    _judge_urp(judged.right, true, theirs[tables.GOLD_URP], fleet.hours * 3_600)
    _judge_history(judged, fleet, ours[tables.GOLD_LEADER_HISTORY], theirs[tables.GOLD_LEADER_HISTORY])
    _judge_waits(judged, ours[tables.GOLD_STALENESS], theirs[tables.GOLD_STALENESS])
    _judge_hours(judged, tables.GOLD_CHURN, "elections", ours, theirs)
    _judge_hours(judged, tables.GOLD_PRODUCE_SLO, "records", ours, theirs)
    wanted = {row["service"]: row["refresh_max_age_ms"] for row in theirs[tables.GOLD_ADVICE]}
    said = {row["service"]: row["refresh_max_age_ms"] for row in ours[tables.GOLD_ADVICE]}
    assert said.keys() == wanted.keys()
    judged.advice += [abs(said[service] / wanted[service] - 1) for service in wanted]
    _judge_clocks(judged, fleet, ours[tables.GOLD_DATA_QUALITY])


def _judge_urp(
    urp: Urp, true: dict[Place, list[tuple[float, float]]], rows: Sequence[Row], end: float
) -> None:
    found = set()
    for row in rows:
        place = Place(row["topic"], row["partition"])
        bounds = [_seconds(row[name]) for name in ("start_after", "start_by", "end_after", "end_by")]
        start_after, start_by, end_after, end_by = bounds
        assert start_by is not None
        assert end_after is not None
        known = [bound for bound in bounds if bound is not None]
        urp.rows += 1
        urp.inverted += known != sorted(known)
        met = [
            (begin, stop)
            for begin, stop in true[place]
            if begin <= end_after + SLACK_S and stop >= start_by - SLACK_S
        ]
        if not met:
            urp.phantoms += 1
            continue
        found |= {(place, begin) for begin, _ in met}
        begin, stop = met[0][0], met[-1][1]
        urp.bounds += 2
        urp.bounds_true += (start_after or -math.inf) - SLACK_S <= begin <= start_by + SLACK_S
        urp.bounds_true += end_after - SLACK_S <= stop <= (math.inf if end_by is None else end_by) + SLACK_S
        urp.certain_s += end_after - start_by
        # Several shortages count as one if no sidecar saw that the partition was whole in between.
        urp.certain_true_s += max(0.0, min(end_after, stop) - max(start_by, begin))
        if start_after is not None and end_by is not None:
            urp.widths.append(start_by - start_after + end_by - end_after)
    urp.found += len(found)


def _judge_history(judged: Judged, fleet: Fleet, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
    begun = fleet.elections()
    for rows, lateness in ((ours, judged.lateness_s), (theirs, judged.lateness_right_s)):
        for row in rows:
            at = begun[row["topic"], row["partition"], row["leader_epoch"]]
            seen = _seconds(row["valid_from"])
            assert seen is not None
            if at <= 0:
                continue
            lateness.append(seen - at)
            if rows is ours:
                judged.epochs += 1
                judged.epochs_too_early += seen < at - SLACK_S


def _judge_waits(judged: Judged, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
    key = ("topic", "partition", "leader_epoch", "sidecar_id")
    reached = {tuple(row[name] for name in key): _seconds(row["reached_at"]) for row in theirs}
    judged.waits += len(ours)
    judged.waits_right += len(theirs)
    for row in ours:
        at, wanted = _seconds(row["reached_at"]), reached.get(tuple(row[name] for name in key), math.nan)
        judged.waits_true += at == wanted or (
            at is not None and wanted is not None and abs(at - wanted) <= SLACK_S
        )


def _judge_hours(
    judged: Judged, table: str, count: str, ours: dict[str, list[Row]], theirs: dict[str, list[Row]]
) -> None:
    by_hour: list[Counter[tuple[Any, ...]]] = []
    for rows in (ours[table], theirs[table]):
        counts: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            counts[row["hour"], row["topic"], row.get("broker")] += row[count]
        by_hour.append(counts)
    judged.counted[table] += by_hour[1].total()
    judged.misplaced[table] += (by_hour[0] - by_hour[1]).total()


def _judge_clocks(judged: Judged, fleet: Fleet, rows: Sequence[Row]) -> None:
    named = {row["sidecar_id"] for row in rows if row["is_left_out"]}
    for sidecar in fleet.sidecars:
        times = [at for at, _ in sidecar.looks]
        off = max((abs(sidecar.clock(at) - at) for at in times), default=0.0)
        if off >= WRONG_S:
            judged.wrong += 1
            judged.wrong_named += sidecar.name in named
            if sidecar.name not in named:
                judged.missed.append(f"{sidecar.kind} {off:.1f} s")
        elif sidecar.name in named:
            judged.right_named.append(f"{sidecar.name} of {fleet.seed}")


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else (at - T0).total_seconds()


def _median(numbers: Sequence[float]) -> float:
    return statistics.median(numbers) if numbers else math.nan


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "-"


def main(seeds: int = 100, first: int = 1) -> None:
    with tempfile.TemporaryDirectory() as scratch, spark_of_the_session(Path(scratch)) as spark:
        for line in judge(spark, range(first, first + seeds)).lines():
            print(line, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
